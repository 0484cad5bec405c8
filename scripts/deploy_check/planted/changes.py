"""Mistakes in rendered manifests: of the setup with everything on."""

from .. import autoscaling, availability, matrix, nats, network, pods, references, routes, schemas

EVERYTHING = next(setup for setup in matrix.SETUPS if "everything" in setup.file)


def check_network(documents):
    network.check(documents, EVERYTHING.around)


def find(documents, target):
    """The first document of `kind` or `kind/name`."""
    kind, _, name = target.partition("/")
    return next(d for d in documents if d["kind"] == kind and d["metadata"]["name"].startswith(name))


def spec(document):
    return document["spec"]["template"]["spec"]


def container(document):
    return spec(document)["containers"][0]


def volume(document, name):
    return next(entry for entry in spec(document)["volumes"] if entry["name"] == name)


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
# Of cluster.conf.
AUTHORIZATION = """  authorization {
    user: routes
    password: $NATS_ROUTES_PASSWORD
  }
"""
RESULTS = "AILOOP__TOOL_HOST__RESULTS__LOGIN__CREDENTIALS"


def replace(document, file, old, new):
    assert old in document["data"][file], f"{file} has no {old}"
    document["data"][file] = document["data"][file].replace(old, new, 1)


# For each check: (what, object, change, what the message must name).
CHANGES = [
    (
        schemas.check,
        [
            ("an unknown field", EDGE, lambda d: spec(d).update(terminationGracePeriod=3), "terminationGracePeriod"),
            (
                "an unknown field in a probe",
                EDGE,
                lambda d: container(d)["livenessProbe"].update(intervalSeconds=3),
                "intervalSeconds",
            ),
            ("a wrong type", EXECUTOR, lambda d: d["spec"].update(minReadySeconds="two"), "minReadySeconds"),
            ("a missing field", EDGE, lambda d: d["spec"].pop("selector"), "selector"),
            ("an unknown field of a policy", "NetworkPolicy", lambda d: d["spec"].update(direction="in"), "direction"),
            ("an unknown field of a ScaledObject", SCALED, lambda d: d["spec"].update(maxReplicas=3), "maxReplicas"),
            ("a number in a trigger", SCALED, lambda d: trigger(d).update(lagThreshold=64), "lagThreshold"),
            (
                "an unknown field of an HTTPRoute",
                ROUTE,
                lambda d: d["spec"]["rules"][0].update(timeout="0s"),
                "timeout",
            ),
            ("an unknown field of a GRPCRoute", GRPC, lambda d: d["spec"]["rules"][0].update(timeouts={}), "timeouts"),
            (
                "an unknown field of a PodMonitor",
                MONITOR,
                lambda d: d["spec"]["podMetricsEndpoints"][0].update(every="30s"),
                "every",
            ),
            (
                "an unknown field of an ExternalSecret",
                "ExternalSecret",
                lambda d: d["spec"].update(store="vault"),
                "store",
            ),
            (
                "an old API version",
                "ExternalSecret",
                lambda d: d.update(apiVersion="external-secrets.io/v1beta1"),
                "v1beta1",
            ),
        ],
    ),
    (
        schemas.check_configuration,
        [
            (
                "a broken agents.yaml",
                "ConfigMap/ailoop-config",
                lambda d: d["data"].update({"agents.yaml": "agents: {e: {promt: x}}"}),
                "agents.yaml",
            ),
            (
                "an ailoop.yaml that is no YAML",
                "ConfigMap/ailoop-config",
                lambda d: d["data"].update({"ailoop.yaml": "nats: ["}),
                "ailoop.yaml",
            ),
        ],
    ),
    (
        pods.check,
        [
            (
                "a drain longer than the grace",
                GATEWAY,
                lambda d: spec(d).update(terminationGracePeriodSeconds=5),
                "ailoop-gateway",
            ),
            (
                "a container that may write its image",
                EDGE,
                lambda d: container(d)["securityContext"].pop("readOnlyRootFilesystem"),
                "ailoop-edge",
            ),
            ("a pod that may be root", NATS, lambda d: spec(d)["securityContext"].pop("runAsNonRoot"), "ailoop-nats"),
            ("a probe of another port", EDGE, probe("readinessProbe", port="metrics"), "readinessProbe"),
            ("a probe of another path", COMPOSER, probe("readinessProbe", path="/ready"), "readinessProbe"),
            ("liveness that depends on NATS", EXECUTOR, probe("livenessProbe", path="/readyz"), "livenessProbe"),
            ("a service without a probe", HOST, lambda d: container(d).pop("startupProbe"), "startupProbe"),
            ("an edge without preStop", EDGE, lambda d: container(d).pop("lifecycle"), "preStop"),
            ("a limit of 8Mi", COMPOSER, lambda d: container(d)["resources"]["limits"].update(memory="8Mi"), "8Mi"),
            (
                "an image without a tag",
                HOST,
                lambda d: container(d).update(image="registry.example.com:5000/ailoop"),
                "ailoop-tool-host",
            ),
            (
                "a cache that fills the memory",
                ORCHESTRATOR,
                set_variable("AILOOP__ORCHESTRATOR__CACHE_BYTES", "1073741824"),
                "ailoop-orchestrator",
            ),
            (
                "gRPC to the port of OTLP over HTTP",
                EDGE,
                drop("AILOOP__TELEMETRY__OTLP_PROTOCOL"),
                "AILOOP__TELEMETRY__OTLP_PROTOCOL",
            ),
            ("nats-server without GOMEMLIMIT", NATS, drop("GOMEMLIMIT"), "GOMEMLIMIT"),
            (
                "a store as large as the volume",
                NATS,
                set_variable("NATS_MAX_FILE_STORE", "53687091200"),
                "max_file_store",
            ),
        ],
    ),
    (
        references.check,
        [
            (
                "a ConfigMap that is not there",
                EDGE,
                lambda d: spec(d)["volumes"][0]["configMap"].update(name="gone"),
                "gone",
            ),
            (
                "a file that is not in its ConfigMap",
                GATEWAY,
                lambda d: spec(d)["volumes"][0]["configMap"]["items"][0].update(key="gone.yaml"),
                "gone.yaml",
            ),
            (
                "a directory of the configuration that is not mounted",
                EDGE,
                lambda d: container(d)["volumeMounts"].pop(0),
                "AILOOP_CONFIG",
            ),
            (
                "prompts that are not mounted",
                COMPOSER,
                set_variable("AILOOP__COMPOSER__PROMPTS_DIR", "/etc/prompts"),
                "/etc/prompts",
            ),
            (
                "a Secret that nobody makes",
                EDGE,
                lambda d: volume(d, "edge-token")["secret"].update(secretName="edge"),
                "Secret edge",
            ),
            (
                "a key that the Secret does not have",
                EDGE,
                lambda d: volume(d, "edge-token")["secret"].update(items=[{"key": "tokn", "path": "token"}]),
                "tokn",
            ),
            (
                "a file of users that the Secret does not have",
                NATS,
                lambda d: spec(d)["volumes"][1]["secret"]["items"][0].update(key="users.conf"),
                "users.conf",
            ),
            (
                "a service account that is not there",
                EXECUTOR,
                lambda d: spec(d).update(serviceAccountName="default"),
                "default",
            ),
            (
                "a Service for nobody",
                "Service/ailoop-edge",
                lambda d: d["spec"].update(selector={"app": "gone"}),
                "ailoop-edge",
            ),
            (
                "a Service port that nobody has",
                "Service/ailoop-edge",
                lambda d: d["spec"]["ports"][0].update(targetPort="http"),
                "http",
            ),
            (
                "a variable before the one that it uses",
                NATS,
                lambda d: container(d)["env"].reverse(),
                "NATS_ROUTES_SECRET",
            ),
            (
                "a budget for nobody",
                "PodDisruptionBudget/ailoop-edge",
                lambda d: d["spec"]["selector"]["matchLabels"].update({"app.kubernetes.io/component": "edg"}),
                "ailoop-edge",
            ),
            (
                "a monitor of a port that nobody has",
                MONITOR,
                lambda d: d["spec"]["podMetricsEndpoints"][0].update(port="metrics"),
                "metrics",
            ),
            (
                "an HTTPRoute to a port that nobody has",
                ROUTE,
                lambda d: d["spec"]["rules"][0]["backendRefs"][0].update(port=8080),
                "8080",
            ),
            (
                "a GRPCRoute to a Service that is not there",
                GRPC,
                lambda d: d["spec"]["rules"][0]["backendRefs"][0].update(name="edge"),
                "Service edge",
            ),
            (
                "an autoscaler of nobody",
                SCALED,
                lambda d: d["spec"]["scaleTargetRef"].update(name="gateway"),
                "gateway",
            ),
        ],
    ),
    (
        nats.check,
        [
            (
                "a service that runs another one's command",
                GATEWAY,
                lambda d: container(d).update(args=["bootstrap"]),
                "ailoop-gateway",
            ),
            ("a service without credentials", EDGE, drop("AILOOP__NATS__CREDENTIALS"), "ailoop-edge"),
            (
                "an unknown NATS role",
                EDGE,
                lambda d: variable(d, "AILOOP__NATS__CREDENTIALS").update(
                    name="AILOOP__TOOL_HOST__CLIENT__LOGIN__CREDENTIALS"
                ),
                "client is no NATS role",
            ),
            (
                "a kind of tools with another one's credentials",
                HOST,
                set_variable(RESULTS, "/var/run/secrets/ailoop/mail.creds"),
                RESULTS,
            ),
            (
                "a kind of tools whose credentials are not mounted",
                HOST,
                lambda d: credentials(d)["items"].pop(),
                "ailoop-tool-host",
            ),
            (
                "credentials of another role in a pod",
                EDGE,
                lambda d: credentials(d)["items"].append({"key": "admin.creds", "path": "admin.creds"}),
                "admin",
            ),
            (
                "the credentials of every role in a pod",
                EXECUTOR,
                lambda d: credentials(d).pop("items"),
                "ailoop-executor",
            ),
            (
                "credentials that are not updated",
                EDGE,
                lambda d: container(d)["volumeMounts"][1].update(subPath="edge.creds"),
                "ailoop-edge",
            ),
            (
                "a password in the environment",
                GATEWAY,
                lambda d: container(d)["env"].append({"name": "AILOOP__NATS__PASSWORD", "value": "x"}),
                "AILOOP__NATS__PASSWORD",
            ),
            (
                "an address of nobody",
                EXECUTOR,
                set_variable("AILOOP__NATS__URL", "nats://nats:4222"),
                "nats://nats:4222",
            ),
            ("one copy on three servers", JOB, set_variable("AILOOP__NATS__REPLICAS", "1"), "1 copies"),
            ("a bootstrap that only verifies", JOB, lambda d: container(d).update(args=["bootstrap"]), "only verifies"),
            (
                "a bootstrap without the configuration",
                JOB,
                lambda d: container(d)["volumeMounts"].pop(0),
                "retention_days",
            ),
            (
                "a bootstrap with another configuration",
                JOB,
                lambda d: spec(d)["volumes"][0]["configMap"].update(name="ailoop-nats-config"),
                "another ailoop.yaml",
            ),
        ],
    ),
    (
        nats.check_copies,
        [
            ("three copies on one server", NATS, lambda d: d["spec"].update(replicas=1), "3 copies"),
        ],
    ),
    (
        nats.check_configuration,
        [
            (
                "an unknown field for nats-server",
                "ConfigMap/ailoop-nats-config",
                lambda d: replace(d, "server.conf", "max_file_store", "max_files_store"),
                "max_files_store",
            ),
            (
                "a cluster that announces addresses of pods",
                "ConfigMap/ailoop-nats-config",
                lambda d: replace(d, "cluster.conf", "no_advertise: true", ""),
                "no_advertise",
            ),
            (
                "routes without a password",
                "ConfigMap/ailoop-nats-config",
                lambda d: replace(d, "cluster.conf", AUTHORIZATION, ""),
                "authorization",
            ),
            (
                "a route to nobody",
                NATS,
                set_variable("NATS_ROUTE_2", '"nats://routes:$(NATS_ROUTES_SECRET)@nats-2.nats:6222"'),
                "ailoop-nats-2",
            ),
        ],
    ),
    (
        availability.check,
        [
            (
                "a service without a budget",
                "PodDisruptionBudget/ailoop-gateway",
                lambda d: d.update(kind="Gone"),
                "ailoop-gateway",
            ),
            (
                "a budget that lets no pod go",
                "PodDisruptionBudget/ailoop-nats",
                lambda d: d["spec"].update(maxUnavailable=0),
                "ailoop-nats",
            ),
        ],
    ),
    (
        availability.check_production,
        [
            ("a single composer in production", COMPOSER, lambda d: d["spec"].update(replicas=1), "ailoop-composer"),
            (
                "a single edge in production",
                "HorizontalPodAutoscaler/ailoop-edge",
                lambda d: d["spec"].update(minReplicas=1),
                "ailoop-edge",
            ),
            (
                "servers in one zone",
                NATS,
                lambda d: spec(d)["topologySpreadConstraints"][0].update(whenUnsatisfiable="ScheduleAnyway"),
                "zone",
            ),
        ],
    ),
    (
        autoscaling.check,
        [
            (
                "a consumer that KEDA does not find",
                SCALED,
                lambda d: trigger(d).update(consumer="models"),
                "AI_LOOP_MODEL/models",
            ),
            (
                "a queue of another service",
                SCALED,
                lambda d: trigger(d).update(stream="AI_LOOP_TOOL", consumer="tool"),
                "does not work",
            ),
            (
                "KEDA at a Service that is not headless",
                SCALED,
                lambda d: trigger(d).update(natsServerMonitoringEndpoint="ailoop-edge.ailoop.svc:8222"),
                "headless",
            ),
            ("KEDA without the key of the account", SCALED, lambda d: trigger(d).pop("accountID"), "accountID"),
            (
                "KEDA at another port",
                SCALED,
                lambda d: trigger(d).update(natsServerMonitoringEndpoint="ailoop-nats.ailoop.svc:4222"),
                "4222",
            ),
            (
                "a threshold far from a pod's places",
                SCALED,
                lambda d: trigger(d).update(lagThreshold="5"),
                "lagThreshold",
            ),
            (
                "HPA and KEDA for one Deployment",
                "HorizontalPodAutoscaler/ailoop-edge",
                lambda d: d["spec"]["scaleTargetRef"].update(name="ailoop-gateway"),
                "ailoop-gateway",
            ),
            ("replicas beside an autoscaler", GATEWAY, lambda d: d["spec"].update(replicas=2), "fixed number"),
        ],
    ),
    (
        routes.check,
        [
            (
                "a turn with a time-out",
                ROUTE,
                lambda d: d["spec"]["rules"][0]["timeouts"].update(request="60s"),
                "turn",
            ),
            (
                "one name for HTTP and gRPC",
                GRPC,
                lambda d: d["spec"].update(hostnames=["agents.example.org"]),
                "agents.example.org",
            ),
        ],
    ),
    (
        check_network,
        [
            (
                "a network without default-deny",
                "NetworkPolicy/ailoop-default-deny",
                lambda d: d["spec"]["podSelector"].update(matchLabels={"app": "gone"}),
                "reaches",
            ),
            (
                "a default-deny of somebody else's pods",
                "NetworkPolicy/ailoop-default-deny",
                lambda d: d["spec"].update(podSelector={}),
                "somebody else",
            ),
            (
                "an edge without its issuers",
                "NetworkPolicy/ailoop-edge-issuers",
                lambda d: d.update(kind="Gone"),
                "ailoop-edge",
            ),
            (
                "egress to the cloud's metadata",
                "NetworkPolicy/ailoop-model-providers",
                lambda d: rule(d)["to"][0]["ipBlock"]["except"].remove("169.254.0.0/16"),
                "metadata",
            ),
            (
                "egress to private networks",
                "NetworkPolicy/ailoop-model-providers",
                lambda d: rule(d)["to"][0]["ipBlock"].pop("except"),
                "reaches",
            ),
            (
                "DNS that includes the metadata address",
                "NetworkPolicy/ailoop-dns",
                lambda d: rule(d)["to"].append({"ipBlock": {"cidr": "169.254.0.0/16"}}) or rule(d).pop("ports"),
                "metadata",
            ),
            (
                "a gateway without providers",
                "NetworkPolicy/ailoop-model-providers",
                lambda d: rule(d)["ports"][0].update(port=80),
                "ailoop-gateway",
            ),
            (
                "services without NATS",
                "NetworkPolicy/ailoop-to-nats",
                lambda d: d["spec"]["podSelector"]["matchExpressions"][0]["values"].remove("executor"),
                "ailoop-executor",
            ),
            (
                "tools of another namespace without NATS",
                "NetworkPolicy/ailoop-nats",
                lambda d: rule(d, "ingress")["from"].pop(),
                "team-tools",
            ),
            ("KEDA without the monitor", "NetworkPolicy/ailoop-nats", lambda d: d["spec"]["ingress"].pop(), "keda"),
            (
                "a monitor that everyone reaches",
                "NetworkPolicy/ailoop-nats",
                lambda d: d["spec"]["ingress"][-1].pop("from"),
                "8222",
            ),
            ("pods without DNS", "NetworkPolicy/ailoop-dns", lambda d: rule(d)["to"].pop(0), "kube-system"),
            (
                "an edge without its load balancer",
                "NetworkPolicy/ailoop-edge",
                lambda d: rule(d, "ingress")["from"].pop(1),
                "load balancer",
            ),
            (
                "a tool-host that fetches nothing",
                "NetworkPolicy/ailoop-tool-host-web",
                lambda d: d.update(kind="Gone"),
                "ailoop-tool-host-web",
            ),
        ],
    ),
    (
        references.check_secrets,
        [
            (
                "a Secret in the repository",
                "ConfigMap/ailoop-config",
                lambda d: d.update(kind="Secret"),
                "Secret/ailoop-config",
            ),
        ],
    ),
]
