"""Mistakes in the TLS of the edge and of NATS: in rendered manifests of setups with a certificate, and of one without."""

from .. import matrix, nats, references, schemas, tls
from .changes import EDGE, drop, set_variable, volume

ENCRYPTED = next(setup for setup in matrix.SETUPS if "edge-tls" in setup.file)
NATS_ENCRYPTED = next(setup for setup in matrix.SETUPS if "nats-tls" in setup.file)
CLEAR = next(setup for setup in matrix.SETUPS if "everything" in setup.file)
SERVICE, POLICY, CLIENT = "Service/ailoop-edge", "BackendTLSPolicy/", "Pod/ailoop-smoke-test"


def set_protocol(index, name):
    return lambda d: d["spec"]["ports"][index].update(appProtocol=name)


def set_url(url):
    """The smoke test is a pod, which has no template."""

    def change(document):
        entries = document["spec"]["containers"][0]["env"]
        next(entry for entry in entries if entry["name"] == "AILOOP_GRPC_URL").update(value=url)

    return change


def add_plaintext(document):
    document["spec"]["containers"][0]["env"].append({"name": "AILOOP_PLAINTEXT", "value": "true"})


# (setup, check, rows of (what, target, change, what the message must name))
TLS_CHANGES = [
    (
        ENCRYPTED,
        tls.check,
        [
            ("a certificate without its key", EDGE, drop(tls.KEY), "Deployment/ailoop-edge"),
            ("a Service that says clear text", SERVICE, set_protocol(1, "kubernetes.io/h2c"), "Service/ailoop-edge"),
            ("a client without TLS", CLIENT, set_url("http://ailoop-edge:7071"), "http://ailoop-edge:7071"),
            ("a client with a short name", CLIENT, set_url("https://ailoop-edge:7071"), "ailoop-edge.<namespace>.svc"),
            ("a client of another Service", CLIENT, set_url("https://ailoop.ailoop.svc:7071"), "ailoop.ailoop.svc"),
            ("a token in clear", CLIENT, add_plaintext, "in clear"),
            (
                "routes without a policy",
                POLICY,
                lambda d: d["spec"]["targetRefs"][0].update(name="ailoop-gone"),
                "GRPCRoute/ailoop-edge",
            ),
            (
                "a policy for another name",
                POLICY,
                lambda d: d["spec"]["validation"].update(hostname="agents.example.org"),
                "agents.example.org",
            ),
        ],
    ),
    (
        ENCRYPTED,
        references.check,
        [
            (
                "a Secret without the key of the certificate",
                EDGE,
                lambda d: volume(d, "edge-tls")["secret"]["items"][1].update(key="tls.pem"),
                "tls.pem",
            ),
            ("a certificate that is not mounted", EDGE, set_variable(tls.CERTIFICATE, "/var/tls/tls.crt"), "/var/tls"),
            (
                "an authority that is not there",
                POLICY,
                lambda d: d["spec"]["validation"]["caCertificateRefs"][0].update(name="gone"),
                "gone",
            ),
            (
                "a policy of no Service",
                POLICY,
                lambda d: d["spec"]["targetRefs"][0].update(name="ailoop-gone"),
                "ailoop-gone",
            ),
        ],
    ),
    (
        ENCRYPTED,
        schemas.check,
        [
            (
                "a policy with two kinds of authorities",
                POLICY,
                lambda d: d["spec"]["validation"].update(wellKnownCACertificates="System"),
                "BackendTLSPolicy/ailoop-edge",
            ),
        ],
    ),
    (
        NATS_ENCRYPTED,
        nats.check,
        [
            (
                "a process that connects to NATS in clear",
                EDGE,
                set_variable("AILOOP__NATS__URL", "nats://ailoop-nats-0.ailoop-nats:4222"),
                "nats://ailoop-nats-0.ailoop-nats:4222",
            ),
            ("a process without the authority of NATS", EDGE, drop("AILOOP__NATS__TLS__CA"), "Deployment/ailoop-edge"),
            (
                "an authority of NATS that is not mounted",
                EDGE,
                set_variable("AILOOP__NATS__TLS__CA", "/var/ca.crt"),
                "/var/ca.crt",
            ),
        ],
    ),
    (
        CLEAR,
        tls.check,
        [
            ("a Service that says TLS", SERVICE, set_protocol(0, "kubernetes.io/wss"), "Service/ailoop-edge"),
            ("a client with TLS", CLIENT, set_url("https://ailoop-edge.ailoop.svc:7071"), "https://"),
        ],
    ),
]
