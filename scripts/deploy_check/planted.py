"""Mistakes, planted one by one: each must be refused, by a message that names its place and a remedy."""

import copy
import pathlib
import shutil
import tempfile

from . import availability, autoscaling, files, manifests, matrix, nats, network, parity, pods, references, routes, schemas
from .paths import BASE, CHART
from .refused import Refused
from .render import render_chart


def must_refuse(what, place, check, *arguments):
    """The text of the refusal, which must name the place."""
    try:
        check(*arguments)
    except Refused as refused:
        names = place in refused.place or place in refused.problem
        if names and refused.remedy:
            return str(refused)
        raise Refused("the check itself", f"of {what} it says {refused}, which does not name {place}", "correct the check") from None
    raise Refused("the check itself", f"lets in {what}", "correct the check") from None


def find(documents, target):
    """The first document of `kind` or `kind/name`."""
    kind, _, name = target.partition("/")
    return next(d for d in documents if d["kind"] == kind and d["metadata"]["name"].startswith(name))


def spec(document):
    return document["spec"]["template"]["spec"]


def container(document):
    return spec(document)["containers"][0]


def variable(document, name):
    return next(entry for entry in container(document)["env"] if entry["name"] == name)


def without(document, name):
    container(document)["env"] = [entry for entry in container(document)["env"] if entry["name"] != name]


def set_variable(name, value):
    return lambda d: variable(d, name).update(value=value)


def drop(name):
    return lambda d: without(d, name)


def probe(name, **change):
    return lambda d: container(d)[name]["httpGet"].update(change)


def credentials(document):
    return next(v for v in spec(document)["volumes"] if v["name"] == "nats-credentials")["secret"]


def trigger(document):
    return document["spec"]["triggers"][0]["metadata"]


def rule(document, direction="egress"):
    return document["spec"][direction][0]


EDGE, GATEWAY, ORCHESTRATOR = (f"Deployment/ailoop-{name}" for name in ("edge", "gateway", "orchestrator"))
COMPOSER, EXECUTOR, HOST = (f"Deployment/ailoop-{name}" for name in ("composer", "executor", "tool-host"))
NATS, JOB, SCALED = "StatefulSet/ailoop-nats", "Job/ailoop-bootstrap", "ScaledObject/ailoop-gateway"
ROUTE, GRPC, MONITOR = "HTTPRoute/ailoop-edge", "GRPCRoute/ailoop-edge", "PodMonitor/ailoop"
RESULTS = "AILOOP__TOOL_HOST__RESULTS__LOGIN__CREDENTIALS"

# (what, object, change, check, what the message must name). Of the setup with everything on.
CHANGES = [
    # Fields that Kubernetes or an operator does not know.
    ("an unknown field", EDGE, lambda d: spec(d).update(terminationGracePeriod=3), schemas.check, "terminationGracePeriod"),
    ("an unknown field in a probe", EDGE, lambda d: container(d)["livenessProbe"].update(intervalSeconds=3), schemas.check, "intervalSeconds"),
    ("a wrong type", EXECUTOR, lambda d: d["spec"].update(minReadySeconds="two"), schemas.check, "minReadySeconds"),
    ("a missing field", EDGE, lambda d: d["spec"].pop("selector"), schemas.check, "selector"),
    ("an unknown field of a policy", "NetworkPolicy", lambda d: d["spec"].update(direction="in"), schemas.check, "direction"),
    ("an unknown field of a ScaledObject", SCALED, lambda d: d["spec"].update(maxReplicas=3), schemas.check, "maxReplicas"),
    ("a number in a trigger", SCALED, lambda d: trigger(d).update(lagThreshold=64), schemas.check, "lagThreshold"),
    ("an unknown field of an HTTPRoute", ROUTE, lambda d: d["spec"]["rules"][0].update(timeout="0s"), schemas.check, "timeout"),
    ("an unknown field of a GRPCRoute", GRPC, lambda d: d["spec"]["rules"][0].update(timeouts={}), schemas.check, "timeouts"),
    ("an unknown field of a PodMonitor", MONITOR, lambda d: d["spec"]["podMetricsEndpoints"][0].update(every="30s"), schemas.check, "every"),
    ("an unknown field of an ExternalSecret", "ExternalSecret", lambda d: d["spec"].update(store="vault"), schemas.check, "store"),
    ("an old API version", "ExternalSecret", lambda d: d.update(apiVersion="external-secrets.io/v1beta1"), schemas.check, "v1beta1"),
    ("a broken agents.yaml", "ConfigMap/ailoop-config", lambda d: d["data"].update({"agents.yaml": "agents: {e: {promt: x}}"}), schemas.check_configuration, "agents.yaml"),
    ("an ailoop.yaml that is no YAML", "ConfigMap/ailoop-config", lambda d: d["data"].update({"ailoop.yaml": "nats: ["}), schemas.check_configuration, "ailoop.yaml"),
    # Pods.
    ("a drain longer than the grace", GATEWAY, lambda d: spec(d).update(terminationGracePeriodSeconds=5), pods.check, "ailoop-gateway"),
    ("a container that may write its image", EDGE, lambda d: container(d)["securityContext"].pop("readOnlyRootFilesystem"), pods.check, "ailoop-edge"),
    ("a pod that may be root", NATS, lambda d: spec(d)["securityContext"].pop("runAsNonRoot"), pods.check, "ailoop-nats"),
    ("a probe of another port", EDGE, probe("readinessProbe", port="metrics"), pods.check, "readinessProbe"),
    ("a probe of another path", COMPOSER, probe("readinessProbe", path="/ready"), pods.check, "readinessProbe"),
    ("liveness that depends on NATS", EXECUTOR, probe("livenessProbe", path="/readyz"), pods.check, "livenessProbe"),
    ("a service without a probe", HOST, lambda d: container(d).pop("startupProbe"), pods.check, "startupProbe"),
    ("an edge without preStop", EDGE, lambda d: container(d).pop("lifecycle"), pods.check, "preStop"),
    ("a limit of 8Mi", COMPOSER, lambda d: container(d)["resources"]["limits"].update(memory="8Mi"), pods.check, "8Mi"),
    ("an image without a tag", HOST, lambda d: container(d).update(image="registry.example.com:5000/ailoop"), pods.check, "ailoop-tool-host"),
    ("a cache that fills the memory", ORCHESTRATOR, set_variable("AILOOP__ORCHESTRATOR__CACHE_BYTES", "1073741824"), pods.check, "ailoop-orchestrator"),
    ("nats-server without GOMEMLIMIT", NATS, drop("GOMEMLIMIT"), pods.check, "GOMEMLIMIT"),
    ("a store as large as the volume", NATS, set_variable("NATS_MAX_FILE_STORE", "53687091200"), pods.check, "max_file_store"),
    # References.
    ("a ConfigMap that is not there", EDGE, lambda d: spec(d)["volumes"][0]["configMap"].update(name="gone"), references.check, "gone"),
    ("a file that is not in its ConfigMap", GATEWAY, lambda d: spec(d)["volumes"][0]["configMap"]["items"][0].update(key="gone.yaml"), references.check, "gone.yaml"),
    ("a directory of the configuration that is not mounted", EDGE, lambda d: container(d)["volumeMounts"].pop(0), references.check, "AILOOP_CONFIG"),
    ("prompts that are not mounted", COMPOSER, set_variable("AILOOP__COMPOSER__PROMPTS_DIR", "/etc/prompts"), references.check, "/etc/prompts"),
    ("a Secret that nobody makes", EDGE, lambda d: variable(d, "AILOOP__EDGE__TOKEN")["valueFrom"]["secretKeyRef"].update(name="edge"), references.check, "Secret edge"),
    ("a key that the Secret does not have", EDGE, lambda d: variable(d, "AILOOP__EDGE__TOKEN")["valueFrom"]["secretKeyRef"].update(key="tokn"), references.check, "tokn"),
    ("a file of users that the Secret does not have", NATS, lambda d: spec(d)["volumes"][1]["secret"]["items"][0].update(key="users.conf"), references.check, "users.conf"),
    ("a service account that is not there", EXECUTOR, lambda d: spec(d).update(serviceAccountName="default"), references.check, "default"),
    ("a Service for nobody", "Service/ailoop-edge", lambda d: d["spec"].update(selector={"app": "gone"}), references.check, "ailoop-edge"),
    ("a Service port that nobody has", "Service/ailoop-edge", lambda d: d["spec"]["ports"][0].update(targetPort="http"), references.check, "http"),
    ("a variable before the one that it uses", NATS, lambda d: container(d)["env"].reverse(), references.check, "NATS_ROUTES_SECRET"),
    ("a budget for nobody", "PodDisruptionBudget/ailoop-edge", lambda d: d["spec"]["selector"]["matchLabels"].update({"app.kubernetes.io/component": "edg"}), references.check, "ailoop-edge"),
    ("a monitor of a port that nobody has", MONITOR, lambda d: d["spec"]["podMetricsEndpoints"][0].update(port="metrics"), references.check, "metrics"),
    ("an HTTPRoute to a port that nobody has", ROUTE, lambda d: d["spec"]["rules"][0]["backendRefs"][0].update(port=8080), references.check, "8080"),
    ("a GRPCRoute to a Service that is not there", GRPC, lambda d: d["spec"]["rules"][0]["backendRefs"][0].update(name="edge"), references.check, "Service edge"),
    ("an autoscaler of nobody", SCALED, lambda d: d["spec"]["scaleTargetRef"].update(name="gateway"), references.check, "gateway"),
    # NATS.
    ("a service that runs another one's command", GATEWAY, lambda d: container(d).update(args=["bootstrap"]), nats.check, "ailoop-gateway"),
    ("a service without credentials", EDGE, drop("AILOOP__NATS__CREDENTIALS"), nats.check, "ailoop-edge"),
    ("an unknown NATS role", EDGE, lambda d: variable(d, "AILOOP__NATS__CREDENTIALS").update(name="AILOOP__TOOL_HOST__CLIENT__LOGIN__CREDENTIALS"), nats.check, "client is no NATS role"),
    ("a kind of tools with another one's credentials", HOST, set_variable(RESULTS, "/var/run/secrets/ailoop/mail.creds"), nats.check, RESULTS),
    ("a kind of tools whose credentials are not mounted", HOST, lambda d: credentials(d)["items"].pop(), nats.check, "ailoop-tool-host"),
    ("credentials of another role in a pod", EDGE, lambda d: credentials(d)["items"].append({"key": "admin.creds", "path": "admin.creds"}), nats.check, "admin"),
    ("the credentials of every role in a pod", EXECUTOR, lambda d: credentials(d).pop("items"), nats.check, "ailoop-executor"),
    ("credentials that are not updated", EDGE, lambda d: container(d)["volumeMounts"][1].update(subPath="edge.creds"), nats.check, "ailoop-edge"),
    ("a password in the environment", GATEWAY, lambda d: container(d)["env"].append({"name": "AILOOP__NATS__PASSWORD", "value": "x"}), nats.check, "AILOOP__NATS__PASSWORD"),
    ("an address of nobody", EXECUTOR, set_variable("AILOOP__NATS__URL", "nats://nats:4222"), nats.check, "nats://nats:4222"),
    ("one copy on three servers", JOB, set_variable("AILOOP__NATS__REPLICAS", "1"), nats.check, "1 copies"),
    ("three copies on one server", NATS, lambda d: d["spec"].update(replicas=1), nats.check_copies, "3 copies"),
    ("a bootstrap that only verifies", JOB, lambda d: container(d).update(args=["bootstrap"]), nats.check, "only verifies"),
    ("a bootstrap without the configuration", JOB, lambda d: container(d)["volumeMounts"].pop(0), nats.check, "retention_days"),
    ("a bootstrap with another configuration", JOB, lambda d: spec(d)["volumes"][0]["configMap"].update(name="ailoop-nats-config"), nats.check, "another ailoop.yaml"),
    ("an unknown field for nats-server", "ConfigMap/ailoop-nats-config", lambda d: replace(d, "server.conf", "max_file_store", "max_files_store"), nats.check_configuration, "max_files_store"),
    ("a cluster that announces addresses of pods", "ConfigMap/ailoop-nats-config", lambda d: replace(d, "cluster.conf", "no_advertise: true", ""), nats.check_configuration, "no_advertise"),
    ("routes without a password", "ConfigMap/ailoop-nats-config", lambda d: replace(d, "cluster.conf", "authorization", "permissions"), nats.check_configuration, "cluster"),
    ("a route to nobody", NATS, set_variable("NATS_ROUTE_2", '"nats://routes:$(NATS_ROUTES_SECRET)@nats-2.nats:6222"'), nats.check_configuration, "ailoop-nats-2"),
    # Availability.
    ("a service without a budget", "PodDisruptionBudget/ailoop-gateway", lambda d: d.update(kind="Gone"), availability.check, "ailoop-gateway"),
    ("a budget that lets no pod go", "PodDisruptionBudget/ailoop-nats", lambda d: d["spec"].update(maxUnavailable=0), availability.check, "ailoop-nats"),
    ("a single composer in production", COMPOSER, lambda d: d["spec"].update(replicas=1), availability.check_production, "ailoop-composer"),
    ("a single edge in production", "HorizontalPodAutoscaler/ailoop-edge", lambda d: d["spec"].update(minReplicas=1), availability.check_production, "ailoop-edge"),
    ("servers in one zone", NATS, lambda d: spec(d)["topologySpreadConstraints"][0].update(whenUnsatisfiable="ScheduleAnyway"), availability.check_production, "zone"),
    # Autoscalers and routes.
    ("a consumer that KEDA does not find", SCALED, lambda d: trigger(d).update(consumer="models"), autoscaling.check, "AI_LOOP_MODEL/models"),
    ("a queue of another service", SCALED, lambda d: trigger(d).update(stream="AI_LOOP_TOOL", consumer="tool"), autoscaling.check, "does not work"),
    ("KEDA at a Service that is not headless", SCALED, lambda d: trigger(d).update(natsServerMonitoringEndpoint="ailoop-edge.ailoop.svc:8222"), autoscaling.check, "headless"),
    ("KEDA at another port", SCALED, lambda d: trigger(d).update(natsServerMonitoringEndpoint="ailoop-nats.ailoop.svc:4222"), autoscaling.check, "4222"),
    ("a threshold far from a pod's places", SCALED, lambda d: trigger(d).update(lagThreshold="5"), autoscaling.check, "lagThreshold"),
    ("HPA and KEDA for one Deployment", "HorizontalPodAutoscaler/ailoop-edge", lambda d: d["spec"]["scaleTargetRef"].update(name="ailoop-gateway"), autoscaling.check, "ailoop-gateway"),
    ("replicas beside an autoscaler", GATEWAY, lambda d: d["spec"].update(replicas=2), autoscaling.check, "fixed number"),
    ("a WebSocket with a time-out", ROUTE, lambda d: d["spec"]["rules"][0]["timeouts"].update(request="60s"), routes.check, "/ws"),
    ("one name for HTTP and gRPC", GRPC, lambda d: d["spec"].update(hostnames=["agents.example.org"]), routes.check, "agents.example.org"),
    # Network.
    ("a network without default-deny", "NetworkPolicy/ailoop-default-deny", lambda d: d["spec"]["podSelector"].update(matchLabels={"app": "gone"}), network_of_everything := (lambda docs: network.check(docs, EVERYTHING.around)), "reaches"),
    ("egress to the cloud's metadata", "NetworkPolicy/ailoop-model-providers", lambda d: rule(d)["to"][0]["ipBlock"]["except"].remove("169.254.0.0/16"), network_of_everything, "metadata"),
    ("egress to private networks", "NetworkPolicy/ailoop-model-providers", lambda d: rule(d)["to"][0]["ipBlock"].pop("except"), network_of_everything, "reaches"),
    ("DNS that includes the metadata address", "NetworkPolicy/ailoop-dns", lambda d: rule(d)["to"].append({"ipBlock": {"cidr": "169.254.0.0/16"}}) or rule(d).pop("ports"), network_of_everything, "metadata"),
    ("a gateway without providers", "NetworkPolicy/ailoop-model-providers", lambda d: rule(d)["ports"][0].update(port=80), network_of_everything, "ailoop-gateway"),
    ("services without NATS", "NetworkPolicy/ailoop-to-nats", lambda d: d["spec"]["podSelector"]["matchExpressions"][0]["values"].remove("executor"), network_of_everything, "ailoop-executor"),
    ("tools of another namespace without NATS", "NetworkPolicy/ailoop-nats", lambda d: rule(d, "ingress")["from"].pop(), network_of_everything, "team-tools"),
    ("KEDA without the monitor", "NetworkPolicy/ailoop-nats", lambda d: d["spec"]["ingress"].pop(), network_of_everything, "keda"),
    ("a monitor that everyone reaches", "NetworkPolicy/ailoop-nats", lambda d: d["spec"]["ingress"][-1].pop("from"), network_of_everything, "8222"),
    ("DNS that OpenShift does not have", "NetworkPolicy/ailoop-dns", lambda d: rule(d)["to"].pop(0), network_of_everything, "kube-system"),
    ("an edge without its load balancer", "NetworkPolicy/ailoop-edge", lambda d: rule(d, "ingress")["from"].pop(1), network_of_everything, "load balancer"),
    ("a tool-host that fetches nothing", "NetworkPolicy/ailoop-tool-host-web", lambda d: d.update(kind="Gone"), network_of_everything, "ailoop-tool-host-web"),
    # Secrets.
    ("a Secret in the repository", "ConfigMap/ailoop-config", lambda d: d.update(kind="Secret"), references.check_secrets, "Secret/ailoop-config"),
]


def replace(document, file, old, new):
    assert old in document["data"][file], f"{file} has no {old}"
    document["data"][file] = document["data"][file].replace(old, new, 1)


EVERYTHING = next(setup for setup in matrix.SETUPS if "everything" in setup.file)

# (what, values, what the message must name)
VALUES = [
    ("an unknown key", {"edge": {"tokn": "x"}}, "tokn"),
    ("an unknown section", {"nat": {}}, "nat"),
    ("two nats-servers", {"nats": {"replicas": 2}}, "/nats/replicas"),
    ("a malformed digest", {"image": {"digest": "sha256:abc"}}, "/image/digest"),
    ("a size without its unit", {"gateway": {"resources": {"limits": {"memory": "512"}}}}, "/gateway/resources"),
    ("a plain text token", {"edge": {"env": [{"name": "AILOOP__EDGE__TOKEN", "value": "secret"}]}}, "AILOOP__EDGE__TOKEN"),
    ("a token in ailoop.yaml", {"config": {"settings": {"edge": {"token": "secret"}}}}, "edge.token"),
    ("a password in an address", {"nats": {"enabled": False, "copies": 3, "url": "nats://a:b@nats:4222"}}, "nats.url"),
    ("an existing NATS beside its own", {"nats": {"url": "nats://nats:4222"}}, "nats.enabled"),
    ("no NATS at all", {"nats": {"enabled": False}}, "nats.url"),
    ("an existing NATS of unknown size", {"nats": {"enabled": False, "url": "nats://nats:4222"}}, "nats.copies"),
    ("three copies on one server of its own", {"nats": {"copies": 3}}, "nats.copies"),
    ("KEDA without a monitor", {"autoscaling": {"mode": "keda"}, "nats": {"enabled": False, "copies": 3, "url": "nats://n:4222"}}, "autoscaling.keda.endpoint"),
    ("two autoscalers", {"autoscaling": {"mode": "keda,hpa"}}, "/autoscaling/mode"),
    ("a minimum above the maximum", {"executor": {"autoscaling": {"min": 20}}}, "executor.autoscaling"),
    ("an unknown kind of tools", {"toolHost": {"kinds": ["mails"]}}, "/toolHost/kinds"),
    ("commands beside mail", {"extraToolHosts": {"x": {"kinds": ["mail", "command"]}}}, "mail"),
    ("one name for both routes", {"gatewayApi": {"enabled": True, "parentRefs": [{"name": "g"}], "hostnames": ["a.b"], "grpcHostnames": ["a.b"]}}, "a.b"),
    ("a route without a gateway", {"gatewayApi": {"enabled": True}}, "gatewayApi.parentRefs"),
    ("a store without a name", {"externalSecrets": {"enabled": True}}, "externalSecrets.store.name"),
    ("an edge that nobody reaches", {"networkPolicy": {"edge": {"from": []}}}, "networkPolicy.edge"),
]


def plant_changes():
    documents = EVERYTHING.render()
    for what, target, change, check, place in CHANGES:
        copies = copy.deepcopy(documents)
        change(find(copies, target))
        yield must_refuse(what, place, check, copies)


def plant_values():
    for what, values, place in VALUES:
        yield must_refuse(what, place, lambda of=values: render_chart(values=of))


def plant_files():
    yield must_refuse("a path that is not there", "nowhere", files.check_dockerfile, "COPY nowhere nowhere")
    with tempfile.TemporaryDirectory() as scratch:
        directory = pathlib.Path(shutil.copytree(BASE, pathlib.Path(scratch) / "base"))
        edge = directory / "edge.yaml"
        text = edge.read_text()
        edge.write_text(text.replace("replicas: 2", "replicas: 3"))
        yield must_refuse("a base that somebody edited", "edge.yaml", manifests.check, directory)
        edge.write_text(text)
        (directory / "old.yaml").write_text(text)
        yield must_refuse("a file that the chart no longer renders", "old.yaml", manifests.check, directory)
    chart = render_chart(files=[CHART / "values-local.yaml"])
    overlay = copy.deepcopy(chart)
    set_variable("AILOOP__DRAIN_TIMEOUT", "9")(find(overlay, EDGE))
    yield must_refuse("an overlay that differs from the chart", "Deployment/ailoop-edge", parity.check, "local", overlay, chart)
    overlay = [d for d in chart if d["kind"] != "PodDisruptionBudget"]
    yield must_refuse("an overlay that lacks an object", "PodDisruptionBudget", parity.check, "local", overlay, chart)


def plant(verbose=False):
    """How many mistakes were planted, which all were refused."""
    said = [*plant_changes(), *plant_values(), *plant_files()]
    if verbose:
        print(*said, sep="\n")
    return len(said)
