"""Schemas of the custom resources that the chart renders: every field that their definitions know, and no other.

Written from the definitions of these releases: KEDA 2.20.2, Gateway API 1.6.1 (standard channel), External Secrets
2.9.0, Prometheus Operator 0.93.0. Below a field that the chart does not set, everything is accepted.
"""

ANY = {}
STRING, INTEGER, BOOLEAN, LIST, MAP = ({"type": name} for name in ("string", "integer", "boolean", "array", "object"))
PROMETHEUS_DURATION = {"type": "string", "pattern": "^(0|([0-9]+(y|w|d|h|ms|m|s))+)$"}
GATEWAY_DURATION = {"type": "string", "pattern": "^([0-9]{1,5}(h|ms|m|s)){1,4}$"}


def fields(names="", required=(), **known):
    """An object: fields that accept everything by name, and fields with a schema."""
    known |= {name: ANY for name in names.split()}
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": known}


def items(schema):
    return {"type": "array", "minItems": 1, "items": schema}


def one_of(*values):
    return {"enum": list(values)}


SELECTOR = fields(
    matchLabels=MAP,
    matchExpressions=items(fields(required=["key", "operator"], key=STRING, operator=STRING, values=LIST)),
)
PARENTS = items(
    fields(
        required=["name"], group=STRING, kind=STRING, name=STRING, namespace=STRING, port=INTEGER, sectionName=STRING
    )
)
BACKENDS = items(fields("filters group kind namespace weight", required=["name", "port"], name=STRING, port=INTEGER))
HTTP_MATCH = fields(
    "headers queryParams",
    method=STRING,
    path=fields(type=one_of("Exact", "PathPrefix", "RegularExpression"), value=STRING),
)
GRPC_MATCH = fields("headers", method=fields(type=one_of("Exact", "RegularExpression"), service=STRING, method=STRING))
REMOTE = "conversionStrategy decodingStrategy metadataPolicy nullBytePolicy property version"

SCALED_OBJECT = fields(
    required=["scaleTargetRef", "triggers"],
    scaleTargetRef=fields("apiVersion envSourceContainerName kind", required=["name"], name=STRING),
    cooldownPeriod=INTEGER,
    idleReplicaCount=INTEGER,
    initialCooldownPeriod=INTEGER,
    pollingInterval=INTEGER,
    maxReplicaCount=INTEGER,
    minReplicaCount=INTEGER,
    fallback=fields(
        required=["failureThreshold", "replicas"],
        failureThreshold=INTEGER,
        replicas=INTEGER,
        behavior=one_of("static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"),
    ),
    advanced=fields(
        "scalingModifiers",
        restoreToOriginalReplicaCount=BOOLEAN,
        horizontalPodAutoscalerConfig=fields("behavior", name=STRING),
    ),
    triggers=items(
        fields(
            "authenticationRef name useCachedMetrics",
            required=["type", "metadata"],
            type=STRING,
            metricType=one_of("AverageValue", "Value", "Utilization"),
            metadata={"type": "object", "additionalProperties": STRING},
        )
    ),
)
HTTP_ROUTE = fields(
    hostnames=items(STRING),
    parentRefs=PARENTS,
    rules=items(
        fields(
            "filters name",
            matches=items(HTTP_MATCH),
            backendRefs=BACKENDS,
            timeouts=fields(request=GATEWAY_DURATION, backendRequest=GATEWAY_DURATION),
        )
    ),
)
GRPC_ROUTE = fields(
    hostnames=items(STRING),
    parentRefs=PARENTS,
    rules=items(fields("filters name", matches=items(GRPC_MATCH), backendRefs=BACKENDS)),
)
BACKEND_TLS_POLICY = fields(
    "options",
    required=["targetRefs", "validation"],
    targetRefs=items(
        fields("sectionName", required=["group", "kind", "name"], group=STRING, kind=STRING, name=STRING)
    ),
    # One of both names the authorities.
    validation=fields(
        "subjectAltNames",
        required=["hostname"],
        hostname={"type": "string", "maxLength": 253, "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9-]+)*$"},
        wellKnownCACertificates=one_of("System"),
        caCertificateRefs=items(fields(required=["group", "kind", "name"], group=STRING, kind=STRING, name=STRING)),
    )
    | {"oneOf": [{"required": ["wellKnownCACertificates"]}, {"required": ["caCertificateRefs"]}]},
)
EXTERNAL_SECRET = fields(
    "data refreshPolicy syncWindows",
    refreshInterval=STRING,
    secretStoreRef=fields(required=["name"], name=STRING, kind=one_of("SecretStore", "ClusterSecretStore")),
    target=fields(
        "immutable manifest template",
        name=STRING,
        deletionPolicy=one_of("Delete", "Merge", "Retain"),
        creationPolicy=one_of("Owner", "Orphan", "Merge", "None", "CreateOrMerge"),
    ),
    dataFrom=items(fields("find rewrite sourceRef", extract=fields(REMOTE, required=["key"], key=STRING))),
)
POD_MONITOR = fields(
    "attachMetadata bodySizeLimit convertClassicHistogramsToNHCB fallbackScrapeProtocol jobLabel keepDroppedTargets "
    "labelLimit labelNameLengthLimit labelValueLengthLimit namespaceSelector nativeHistogramBucketLimit "
    "nativeHistogramMinBucketFactor sampleLimit scrapeClass scrapeClassicHistograms scrapeNativeHistograms "
    "scrapeProtocols selectorMechanism targetLimit",
    required=["selector"],
    selector=SELECTOR,
    podTargetLabels=items(STRING),
    podMetricsEndpoints=items(
        fields(
            "authorization basicAuth bearerTokenSecret enableHttp2 filterRunning followRedirects honorLabels "
            "honorTimestamps metricRelabelings noProxy oauth2 params portNumber proxyConnectHeader "
            "proxyFromEnvironment proxyUrl relabelings scheme targetPort tlsConfig trackTimestampsStaleness",
            port=STRING,
            path=STRING,
            interval=PROMETHEUS_DURATION,
            scrapeTimeout=PROMETHEUS_DURATION,
        )
    ),
)
PROMETHEUS_RULE = fields(
    required=["groups"],
    groups=items(
        fields(
            "limit partial_response_strategy query_offset labels",
            required=["name", "rules"],
            name=STRING,
            interval=PROMETHEUS_DURATION,
            rules=items(
                fields(
                    "labels annotations",
                    required=["expr"],
                    expr={"type": ["string", "integer"]},
                    alert=STRING,
                    record=STRING,
                    **{"for": PROMETHEUS_DURATION},
                    keep_firing_for=PROMETHEUS_DURATION,
                )
            ),
        )
    ),
)

SPECS = {
    ("keda.sh/v1alpha1", "ScaledObject"): SCALED_OBJECT,
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): HTTP_ROUTE,
    ("gateway.networking.k8s.io/v1", "GRPCRoute"): GRPC_ROUTE,
    ("gateway.networking.k8s.io/v1", "BackendTLSPolicy"): BACKEND_TLS_POLICY,
    ("external-secrets.io/v1", "ExternalSecret"): EXTERNAL_SECRET,
    ("monitoring.coreos.com/v1", "PodMonitor"): POD_MONITOR,
    ("monitoring.coreos.com/v1", "PrometheusRule"): PROMETHEUS_RULE,
}


def schema_of(document):
    """The whole schema of a custom resource, or None for a kind of Kubernetes itself."""
    spec = SPECS.get((document.get("apiVersion"), document.get("kind")))
    return spec and fields(
        required=["apiVersion", "kind", "metadata", "spec"], apiVersion=STRING, kind=STRING, metadata=MAP, spec=spec
    )
