"""Reads rendered documents: pods and what is in them."""

# Kinds that make pods; a Pod is its own template.
KINDS = ("Deployment", "StatefulSet", "Job", "Pod")


def of_kind(documents, *kinds):
    return [document for document in documents if document["kind"] in kinds]


def named(documents, kind):
    return {document["metadata"]["name"]: document for document in of_kind(documents, kind)}


def workloads(documents):
    """(document, pod template) of everything that makes pods."""
    for document in of_kind(documents, *KINDS):
        yield document, document if document["kind"] == "Pod" else document["spec"]["template"]


def containers(documents):
    """(document, pod spec, container) of each container."""
    for document, template in workloads(documents):
        for container in template["spec"]["containers"]:
            yield document, template["spec"], container


def component(template):
    return template["metadata"].get("labels", {}).get("app.kubernetes.io/component")


def environment(container):
    """The entries of `env` by name."""
    return {entry["name"]: entry for entry in container.get("env", [])}


def value_of(container, name):
    return environment(container).get(name, {}).get("value")


def ports(template):
    """(container's name of the port or None, number) of each port of a pod."""
    return [
        (port.get("name"), port["containerPort"])
        for container in template["spec"]["containers"]
        for port in container.get("ports", [])
    ]


def selects(selector, labels):
    """Whether a label selector fits labels."""
    if not (selector.get("matchLabels") or {}).items() <= labels.items():
        return False
    for wanted in selector.get("matchExpressions") or []:
        value, values = labels.get(wanted["key"]), wanted.get("values", [])
        fits = {
            "In": value in values,
            "NotIn": value not in values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not fits[wanted["operator"]]:
            return False
    return True
