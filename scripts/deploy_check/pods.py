"""Pods are hardened, bounded, probed, and given the time that their drain takes."""

from . import facts
from .facts import quantity
from .refused import name_of, refuse_unless
from .workloads import containers, environment, of_kind, ports, selects, value_of, workloads


def check(documents):
    for document, template in workloads(documents):
        check_hardening(document, template["spec"])
    for document, pod, container in containers(documents):
        check_container(document, container)
        if document["kind"] in ("Deployment", "StatefulSet"):
            check_probes(document, container)
        if document["kind"] == "Deployment":
            check_drain(document, pod, container)
        check_memory(document, container)
        check_telemetry(document, container)
    check_pre_stop(documents)
    check_store(documents)


def check_hardening(document, pod):
    context, name = pod.get("securityContext", {}), name_of(document)
    remedy = "use the helper ailoop.podCommon"
    refuse_unless(context.get("runAsNonRoot") is True, name, "may run as root", remedy)
    refuse_unless(
        context.get("seccompProfile", {}).get("type") == "RuntimeDefault", name, "has no seccomp profile", remedy
    )
    refuse_unless(
        pod.get("automountServiceAccountToken") is False, name, "mounts a token of the Kubernetes API", remedy
    )


def check_container(document, container):
    place, own = f"{name_of(document)}, container {container['name']}", container.get("securityContext", {})
    hard = (
        own.get("allowPrivilegeEscalation") is False
        and own.get("readOnlyRootFilesystem") is True
        and own.get("capabilities", {}).get("drop") == ["ALL"]
    )
    refuse_unless(hard, place, "is not hardened", "use the helper ailoop.hardened")
    image = container["image"]
    refuse_unless(
        ":" in image.rpartition("/")[2], place, f"image {image} has neither tag nor digest", "set image.digest"
    )


def check_memory(document, container):
    place, resources = f"{name_of(document)}, container {container['name']}", container.get("resources", {})
    limit, request = resources.get("limits", {}).get("memory"), resources.get("requests", {})
    refuse_unless(limit, place, "has no limit of memory", "set resources.limits.memory")
    refuse_unless("cpu" in request, place, "requests no cpu", "set resources.requests.cpu")
    least = facts.MEMORY_MIN
    refuse_unless(
        quantity(limit) >= least, place, f"memory limit {limit} is too small", f"give it {least >> 20}Mi or more"
    )
    fits = quantity(request.get("memory", limit)) <= quantity(limit)
    refuse_unless(fits, place, "requests more memory than its limit", "raise resources.limits.memory")
    cache = value_of(container, "AILOOP__ORCHESTRATOR__CACHE_BYTES")
    if container.get("args") == ["orchestrator"]:
        remedy = "set orchestrator.cache_bytes to half of the limit; docs/deployment.md has what a session takes"
        refuse_unless(cache, place, "has no cache size", remedy)
        problem = f"a cache of {cache} bytes does not fit the limit {limit}"
        refuse_unless(int(cache) <= quantity(limit) / 2, place, problem, remedy)
    go = value_of(container, "GOMEMLIMIT")
    if container["name"] == "nats":
        remedy = "set GOMEMLIMIT to 85 % of the memory limit"
        refuse_unless(go, place, "has no GOMEMLIMIT", remedy)
        refuse_unless(
            quantity(go.removesuffix("B")) <= 0.9 * quantity(limit), place, f"GOMEMLIMIT {go} of {limit}", remedy
        )


def check_probes(document, container):
    place = f"{name_of(document)}, container {container['name']}"
    tool = document["spec"]["template"]["metadata"]["labels"].get("app.kubernetes.io/component") == "tool"
    if tool:
        return
    named = dict(ports({"spec": {"containers": [container]}}))
    for probe, path in facts.HEALTH_PATHS.items():
        found = container.get(probe)
        refuse_unless(found, place, f"has no {probe}", f"add one, at {path}")
        port = (found.get("httpGet") or found.get("tcpSocket") or {}).get("port")
        known = port in named or port in named.values()
        refuse_unless(
            known, f"{place}, {probe}", f"port {port} is not among {sorted(named)}", "name a port of the container"
        )
        if container["name"] == "ailoop":
            get = found.get("httpGet", {})
            problem = f"asks {get.get('path')} at {port}"
            remedy = f"ask {path} at `health`: a probe of liveness must not depend on NATS"
            refuse_unless(get.get("path") == path and port == "health", f"{place}, {probe}", problem, remedy)


def check_drain(document, pod, container):
    drain = value_of(container, "AILOOP__DRAIN_TIMEOUT")
    if drain is None:
        return
    stop = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    needed, grace = int(drain) + stop + facts.DRAIN_SLACK, pod["terminationGracePeriodSeconds"]
    problem, remedy = f"needs {needed} s to end and gets {grace} s", "raise terminationGracePeriodSeconds"
    refuse_unless(needed <= grace, name_of(document), problem, remedy)


def check_telemetry(document, container):
    """The variable that ailoop reads says HTTP where the port of the collector is that of OTLP over HTTP."""
    endpoint = value_of(container, "AILOOP__TELEMETRY__OTLP_ENDPOINT")
    if endpoint is None or not endpoint.endswith(facts.OTLP_HTTP_PORT):
        return
    protocol, place = value_of(container, "AILOOP__TELEMETRY__OTLP_PROTOCOL"), name_of(document)
    problem, remedy = f"sends {protocol or 'grpc'} to {endpoint}", "set AILOOP__TELEMETRY__OTLP_PROTOCOL to http"
    refuse_unless(protocol == "http", f"{place}, AILOOP__TELEMETRY__OTLP_PROTOCOL", problem, remedy)


def check_pre_stop(documents):
    """Endpoints learn late that a pod goes. A headless Service has no such delay that a client could not see."""
    services = [service for service in of_kind(documents, "Service") if service["spec"].get("clusterIP") != "None"]
    for document, template in workloads(documents):
        labels = template["metadata"].get("labels", {})
        served = [service for service in services if selects({"matchLabels": service["spec"]["selector"]}, labels)]
        if served:
            stops = all("preStop" in container.get("lifecycle", {}) for container in template["spec"]["containers"])
            problem = f"is behind Service/{served[0]['metadata']['name']} and has no preStop"
            refuse_unless(stops, name_of(document), problem, "let preStop sleep for some seconds")


def check_store(documents):
    """nats-server refuses before its disk is full."""
    for document in of_kind(documents, "StatefulSet"):
        size = document["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"]
        for container in document["spec"]["template"]["spec"]["containers"]:
            if container["name"] != "nats":
                continue
            most = environment(container).get("NATS_MAX_FILE_STORE", {}).get("value")
            remedy = "set NATS_MAX_FILE_STORE to 85 % of the volume"
            refuse_unless(most, name_of(document), "has no NATS_MAX_FILE_STORE", remedy)
            problem = f"max_file_store {most} fills the volume of {size}"
            refuse_unless(int(most) <= 0.9 * quantity(size), name_of(document), problem, remedy)
