"""Reads manifests: documents, selectors, quantities, and the environment of a container."""

import base64
import pathlib
import re

import yaml

# Kinds that the runner acts on. Others are named at the end as not emulated.
CLUSTER_KINDS = {"Namespace", "ClusterRole", "ClusterRoleBinding", "StorageClass", "CustomResourceDefinition"}
WORKLOADS = {"Deployment", "StatefulSet", "Job", "Pod"}
EMULATED = WORKLOADS | {
    "Namespace", "ConfigMap", "Secret", "Service", "ServiceAccount", "PersistentVolumeClaim", "PodDisruptionBudget", "NetworkPolicy",
}
SUFFIXES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "m": 1e-3, "": 1}


class Refused(Exception):
    """A manifest or a command asks for something wrong, or for something that the runner does not do."""


class Missing(Exception):
    """A ConfigMap, a Secret or a key of one is not there (yet)."""


def read(source):
    """The documents of a file or of a text, with lists taken apart."""
    text = source.read_text() if isinstance(source, pathlib.Path) else source
    documents = []
    for document in yaml.safe_load_all(text):
        if document and document.get("kind", "").endswith("List") and "items" in document:
            documents += document["items"]
        elif document:
            documents.append(document)
    return documents


def key_of(document, namespace="default"):
    """(kind, namespace, name); what belongs to no namespace has an empty one."""
    kind, metadata = document["kind"], document.get("metadata", {})
    return kind, "" if kind in CLUSTER_KINDS else metadata.get("namespace", namespace), metadata["name"]


def pod_template(document):
    """The pod that a workload makes: metadata and spec."""
    return document if document["kind"] == "Pod" else document["spec"]["template"]


def all_containers(spec):
    return spec.get("initContainers", []) + spec.get("containers", [])


def matches(selector, labels):
    """Whether a label selector selects; an absent one selects nothing, an empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for rule in selector.get("matchExpressions") or []:
        key, operator, values = rule["key"], rule["operator"], rule.get("values") or []
        holds = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }[operator]
        if not holds:
            return False
    return True


def quantity(text):
    """A Kubernetes quantity as a number: `64Mi`, `500m`, `2`."""
    number, suffix = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text)).groups()
    return float(number) * SUFFIXES[suffix]


def scaled(value, total, round_up):
    """An integer, or a percentage of a total."""
    if isinstance(value, str) and value.endswith("%"):
        share = int(value[:-1]) * total
        return -(-share // 100) if round_up else share // 100
    return int(value)


def expand(text, variables):
    """Replaces `$(NAME)` by the value of a variable that is known; `$$` is a dollar sign."""

    def value(found):
        if found.group(0) == "$$":
            return "$"
        return variables.get(found.group(1), found.group(0))

    return re.sub(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)", value, text)


def contents(document):
    """The keys of a ConfigMap or a Secret, as bytes."""
    if document["kind"] == "Secret":
        plain = {key: value.encode() for key, value in (document.get("stringData") or {}).items()}
        return {key: base64.b64decode(value) for key, value in (document.get("data") or {}).items()} | plain
    plain = {key: value.encode() for key, value in (document.get("data") or {}).items()}
    return plain | {key: base64.b64decode(value) for key, value in (document.get("binaryData") or {}).items()}


def field(pod, path):
    """What the downward API gives for a fieldPath."""
    found = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
    if found:
        return getattr(pod, found.group(1)).get(found.group(2), "")
    values = {
        "metadata.name": pod.name, "metadata.namespace": pod.namespace, "metadata.uid": pod.uid, "spec.nodeName": pod.node,
        "spec.serviceAccountName": pod.spec.get("serviceAccountName", "default"), "status.podIP": pod.ip, "status.podIPs": pod.ip,
        "status.hostIP": pod.node_ip,
    }
    if path not in values:
        raise Refused(f"{pod.name}: the field {path} is not emulated")
    return values[path]


def _resource(container, reference):
    amount = container.get("resources", {})
    for part in reference["resource"].split("."):
        amount = amount.get(part, "0") if isinstance(amount, dict) else amount
    return str(-(-quantity(amount) // quantity(reference.get("divisor", "1"))).__int__())


def environment(container, pod, lookup, services=()):
    """The variables of a container. `lookup(kind, name)` gives a document or None; `services` are links."""

    def key(kind, reference):
        document = lookup(kind, reference["name"])
        value = contents(document).get(reference["key"]) if document else None
        if value is None and not reference.get("optional"):
            raise Missing(f"{kind} {reference['name']} with the key {reference['key']}")
        return None if value is None else value.decode()

    variables = dict(services)
    for source in container.get("envFrom", []):
        for which, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if which in source:
                document = lookup(kind, source[which]["name"])
                if document is None and not source[which].get("optional"):
                    raise Missing(f"{kind} {source[which]['name']}")
                all_keys = contents(document) if document else {}
                variables |= {source.get("prefix", "") + name: value.decode() for name, value in all_keys.items()}
    for entry in container.get("env", []):
        source = entry.get("valueFrom")
        if source is None:
            value = expand(entry.get("value", ""), variables)
        elif "secretKeyRef" in source:
            value = key("Secret", source["secretKeyRef"])
        elif "configMapKeyRef" in source:
            value = key("ConfigMap", source["configMapKeyRef"])
        elif "fieldRef" in source:
            value = field(pod, source["fieldRef"]["fieldPath"])
        elif "resourceFieldRef" in source:
            value = _resource(container, source["resourceFieldRef"])
        else:
            raise Refused(f"{pod.name}: the variable {entry['name']} comes from {', '.join(source)}, which is not emulated")
        if value is not None:
            variables[entry["name"]] = value
    return variables


def service_links(services):
    """The variables that a pod gets for each Service of its namespace: (name, cluster IP, ports)."""
    variables = {}
    for name, address, ports in services:
        prefix = name.upper().replace("-", "_")
        variables[f"{prefix}_SERVICE_HOST"] = address
        for index, port in enumerate(ports):
            protocol, number = port.get("protocol", "TCP"), port["port"]
            if index == 0:
                variables |= {f"{prefix}_SERVICE_PORT": str(number), f"{prefix}_PORT": f"{protocol.lower()}://{address}:{number}"}
            if port.get("name"):
                variables[f"{prefix}_SERVICE_PORT_{port['name'].upper().replace('-', '_')}"] = str(number)
            each = f"{prefix}_PORT_{number}_{protocol}"
            variables |= {
                each: f"{protocol.lower()}://{address}:{number}", f"{each}_PROTO": protocol.lower(),
                f"{each}_PORT": str(number), f"{each}_ADDR": address,
            }
    return variables


def named_secrets(documents):
    """The keys of Secrets that pods need and no document has: {(namespace, name): {key}}."""
    present = {key_of(document)[1:] for document in documents if document["kind"] == "Secret"}
    needed = {}

    def need(namespace, name, keys, optional):
        if not optional and (namespace, name) not in present:
            needed.setdefault((namespace, name), set()).update(keys)

    for document in documents:
        if document["kind"] not in WORKLOADS:
            continue
        namespace, spec = key_of(document)[1], pod_template(document)["spec"]
        for container in all_containers(spec):
            for entry in container.get("env", []):
                reference = (entry.get("valueFrom") or {}).get("secretKeyRef")
                if reference:
                    need(namespace, reference["name"], [reference["key"]], reference.get("optional"))
            for source in container.get("envFrom", []):
                if "secretRef" in source:
                    need(namespace, source["secretRef"]["name"], [], source["secretRef"].get("optional"))
        for volume in spec.get("volumes", []):
            sources = [volume] + (volume.get("projected") or {}).get("sources", [])
            for secret in (source["secret"] for source in sources if "secret" in source):
                keys = [item["key"] for item in secret.get("items", [])]
                need(namespace, secret.get("secretName") or secret.get("name"), keys, secret.get("optional"))
    return needed
