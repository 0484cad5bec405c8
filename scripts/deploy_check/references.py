"""What is named is there: ConfigMaps, Secrets and their keys, ports, service accounts, volumes, selectors."""

import re

from .facts import CONFIG_MAPS, SECRETS
from .refused import name_of, refuse_unless
from .workloads import containers, environment, named, of_kind, ports, selects, workloads

# Ends of the names of variables that name a file.
FILES = ("CREDENTIALS", "KEYS_FILE", "CA_FILE", "TLS__CERTIFICATE", "TLS__KEY")


def check(documents):
    check_volumes(documents)
    check_secrets(documents)
    check_order(documents)
    check_selectors(documents)
    check_services(documents)
    check_targets(documents)


def templates_of(documents):
    return [template for _, template in workloads(documents)]


def check_volumes(documents):
    accounts = named(documents, "ServiceAccount")
    maps = {name: set(document["data"]) for name, document in named(documents, "ConfigMap").items()} | CONFIG_MAPS
    for document, template in workloads(documents):
        place, pod = name_of(document), template["spec"]
        if document["kind"] != "Pod":
            account = pod.get("serviceAccountName")
            refuse_unless(
                account in accounts,
                place,
                f"service account {account} does not exist",
                "add it to serviceaccounts.yaml",
            )
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        volumes |= {claim["metadata"]["name"] for claim in document["spec"].get("volumeClaimTemplates", [])}
        for volume in pod.get("volumes", []):
            if "configMap" not in volume:
                continue
            name = volume["configMap"]["name"]
            refuse_unless(
                name in maps, place, f"ConfigMap {name} of volume {volume['name']} does not exist", "correct the name"
            )
            for item in volume["configMap"].get("items", []):
                known = item["key"] in maps[name]
                refuse_unless(
                    known, place, f"{item['key']} is not in ConfigMap {name}", "add the file, or remove the item"
                )
        for container in pod["containers"]:
            mounts = {mount["mountPath"] for mount in container.get("volumeMounts", [])}
            for mount in container.get("volumeMounts", []):
                refuse_unless(
                    mount["name"] in volumes, place, f"volume {mount['name']} does not exist", "add the volume"
                )
            for variable, needed in directories(container).items():
                problem = f"{variable} names {needed}, which is not mounted"
                refuse_unless(
                    any(needed == path or path.startswith(f"{needed}/") for path in mounts), place, problem, "mount it"
                )


def check_order(documents):
    """`$(NAME)` in a value is replaced only if NAME stands before it; otherwise the process gets the text as it is."""
    for document, _, container in containers(documents):
        before = set()
        for entry in container.get("env", []):
            for used in re.findall(r"\$\((\w+)\)", entry.get("value") or ""):
                problem = f"uses $({used}), which does not stand before it"
                refuse_unless(
                    used in before, f"{name_of(document)}, {entry['name']}", problem, f"move {used} before it"
                )
            before.add(entry["name"])


def directories(container):
    """Directories that variables name: each must be mounted."""
    values = {name: entry.get("value") or "" for name, entry in environment(container).items()}
    found = {
        name: value for name, value in values.items() if name in ("AILOOP_CONFIG", "AILOOP__COMPOSER__PROMPTS_DIR")
    }
    files = {name: value for name, value in values.items() if name.endswith(FILES) and value.startswith("/")}
    return found | {name: value.rpartition("/")[0] for name, value in files.items()}


def check_secrets(documents):
    for document in documents:
        remedy = "let the operator create it; values name it"
        refuse_unless(document["kind"] != "Secret", name_of(document), "a Secret is in the repository", remedy)
    for document, pod, container in containers(documents):
        for name, entry in environment(container).items():
            reference = entry.get("valueFrom", {}).get("secretKeyRef")
            if reference:
                check_key(f"{name_of(document)}, {name}", reference["name"], reference["key"])
        for source in container.get("envFrom", []):
            check_key(name_of(document), source["secretRef"]["name"], None)
        for volume in pod.get("volumes", []):
            if "secret" in volume:
                for item in volume["secret"].get("items") or [{"key": None}]:
                    check_key(
                        f"{name_of(document)}, volume {volume['name']}", volume["secret"]["secretName"], item["key"]
                    )


def check_key(place, secret, key):
    remedy = f"use one of {', '.join(sorted(SECRETS))}"
    refuse_unless(secret in SECRETS, place, f"Secret {secret} is not among those that the operator makes", remedy)
    keys = SECRETS[secret]
    problem = f"Secret {secret} has no key {key}"
    refuse_unless(keys is None or key is None or key in keys, place, problem, f"use {', '.join(sorted(keys or []))}")


def check_selectors(documents):
    labels = [template["metadata"].get("labels", {}) for template in templates_of(documents)]
    for document, template in workloads(documents):
        if document["kind"] in ("Deployment", "StatefulSet"):
            fits = selects(document["spec"]["selector"], template["metadata"]["labels"])
            refuse_unless(fits, name_of(document), "does not select its own pods", "use the same labels in both")
    for document in of_kind(documents, "PodDisruptionBudget", "PodMonitor"):
        fits = any(selects(document["spec"]["selector"], of) for of in labels)
        refuse_unless(fits, name_of(document), "selects no pod", "use the labels of the pods")


def check_services(documents):
    for document in of_kind(documents, "Service"):
        place, selector = name_of(document), {"matchLabels": document["spec"]["selector"]}
        fits = [
            template
            for template in templates_of(documents)
            if selects(selector, template["metadata"].get("labels", {}))
        ]
        refuse_unless(fits, place, "selects no pod", "use the labels of the pods")
        for port in document["spec"]["ports"]:
            target = port.get("targetPort", port["port"])
            has = all(any(target in pair for pair in ports(template)) for template in fits)
            problem = f"port {port['port']} leads to {target}, which no container has"
            refuse_unless(has, place, problem, "name a port of the container")


def check_targets(documents):
    """What scales, scrapes and routes leads to something."""
    deployments, services = named(documents, "Deployment"), named(documents, "Service")
    for document in of_kind(documents, "HorizontalPodAutoscaler", "ScaledObject"):
        target = document["spec"]["scaleTargetRef"]["name"]
        refuse_unless(
            target in deployments, name_of(document), f"Deployment {target} does not exist", "correct scaleTargetRef"
        )
    for document in of_kind(documents, "PodMonitor"):
        fits = [
            t for t in templates_of(documents) if selects(document["spec"]["selector"], t["metadata"].get("labels", {}))
        ]
        for endpoint in document["spec"]["podMetricsEndpoints"]:
            has = all(any(endpoint["port"] == name for name, _ in ports(template)) for template in fits)
            refuse_unless(
                has, name_of(document), f"port {endpoint['port']} is of no container", "name a port of the container"
            )
    for document in of_kind(documents, "BackendTLSPolicy"):
        for target in document["spec"]["targetRefs"]:
            problem = f"Service {target['name']} does not exist"
            refuse_unless(target["name"] in services, name_of(document), problem, "correct targetRefs")
        for authority in document["spec"]["validation"].get("caCertificateRefs", []):
            problem = f"ConfigMap {authority['name']} has no key ca.crt"
            has = "ca.crt" in CONFIG_MAPS.get(authority["name"], ())
            refuse_unless(has, name_of(document), problem, "name a ConfigMap with the authority of the certificate")
    for document in of_kind(documents, "HTTPRoute", "GRPCRoute"):
        for backend in (b for rule in document["spec"]["rules"] for b in rule["backendRefs"]):
            service = services.get(backend["name"])
            refuse_unless(
                service, name_of(document), f"Service {backend['name']} does not exist", "correct backendRefs"
            )
            known = [port["port"] for port in service["spec"]["ports"]]
            problem = f"Service {backend['name']} has no port {backend['port']}"
            refuse_unless(backend["port"] in known, name_of(document), problem, f"use one of {known}")
