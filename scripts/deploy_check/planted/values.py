"""Mistakes in values, which the schema or templates/validate.yaml must refuse."""

# (what, values, what the message must name)
VALUES = [
    ("an unknown key", {"edge": {"tokn": "x"}}, "tokn"),
    ("an unknown section", {"nat": {}}, "nat"),
    ("two nats-servers", {"nats": {"replicas": 2}}, "/nats/replicas"),
    ("a malformed digest", {"image": {"digest": "sha256:abc"}}, "/image/digest"),
    ("a size without its unit", {"gateway": {"resources": {"limits": {"memory": "512"}}}}, "/gateway/resources"),
    (
        "a plain text token",
        {"edge": {"env": [{"name": "AILOOP__EDGE__TOKEN", "value": "secret"}]}},
        "AILOOP__EDGE__TOKEN",
    ),
    ("a token in ailoop.yaml", {"config": {"settings": {"edge": {"token": "secret"}}}}, "edge.token"),
    ("a password in an address", {"nats": {"enabled": False, "copies": 3, "url": "nats://a:b@nats:4222"}}, "nats.url"),
    ("an existing NATS beside its own", {"nats": {"url": "nats://nats:4222"}}, "nats.enabled"),
    ("no NATS at all", {"nats": {"enabled": False}}, "nats.url"),
    ("an existing NATS of unknown size", {"nats": {"enabled": False, "url": "nats://nats:4222"}}, "nats.copies"),
    ("three copies on one server of its own", {"nats": {"copies": 3}}, "nats.copies"),
    (
        "KEDA without a monitor",
        {"autoscaling": {"mode": "keda"}, "nats": {"enabled": False, "copies": 3, "url": "nats://n:4222"}},
        "autoscaling.keda.endpoint",
    ),
    ("KEDA without the key of the account", {"autoscaling": {"mode": "keda"}}, "autoscaling.keda.accountID"),
    ("two autoscalers", {"autoscaling": {"mode": "keda,hpa"}}, "/autoscaling/mode"),
    ("a minimum above the maximum", {"executor": {"autoscaling": {"min": 20}}}, "executor.autoscaling"),
    ("an unknown kind of tools", {"toolHost": {"kinds": ["mails"]}}, "/toolHost/kinds"),
    ("commands beside mail", {"extraToolHosts": {"x": {"kinds": ["mail", "command"]}}}, "mail"),
    (
        "one name for both routes",
        {
            "gatewayApi": {
                "enabled": True,
                "parentRefs": [{"name": "g"}],
                "hostnames": ["a.b"],
                "grpcHostnames": ["a.b"],
            }
        },
        "a.b",
    ),
    ("a route without a gateway", {"gatewayApi": {"enabled": True}}, "gatewayApi.parentRefs"),
    ("a store without a name", {"externalSecrets": {"enabled": True}}, "externalSecrets.store.name"),
    (
        "an entry of a store for a Secret without a name",
        {"externalSecrets": {"enabled": True, "store": {"name": "vault"}, "remote": {"edgeKeys": "ailoop/keys"}}},
        "secrets.edgeKeys",
    ),
    (
        "issuers that the edge does not reach",
        {"config": {"settings": {"edge": {"issuers": [{"issuer": "https://login.example.org", "audience": "a"}]}}}},
        "networkPolicy.edge.issuers",
    ),
    ("an authority without a certificate", {"edge": {"tls": {"caConfigMap": "ca"}}}, "secrets.edgeTls"),
    (
        "a certificate that no volume brings",
        {"config": {"settings": {"edge": {"tls": {"certificate": "/tls.crt", "key": "/tls.key"}}}}},
        "secrets.edgeTls",
    ),
    ("an edge that nobody reaches", {"networkPolicy": {"edge": {"from": []}}}, "networkPolicy.edge"),
]
