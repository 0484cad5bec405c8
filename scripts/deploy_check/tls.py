"""Either the edge and everything that connects to it speak TLS, or none of them does."""

from .refused import name_of, refuse_unless
from .workloads import component, containers, environment, named, of_kind, value_of, workloads

CERTIFICATE, KEY = "AILOOP__EDGE__TLS__CERTIFICATE", "AILOOP__EDGE__TLS__KEY"
# What a Service says about its ports.
CLEAR = {7070: "kubernetes.io/ws", 7071: "kubernetes.io/h2c"}
ENCRYPTED = {7070: "kubernetes.io/wss", 7071: "https"}


def check(documents):
    edges = [
        (document, container)
        for document, template in workloads(documents)
        if component(template) == "edge"
        for container in template["spec"]["containers"]
    ]
    for document, container in edges:
        pair = [bool(value_of(container, name)) for name in (CERTIFICATE, KEY)]
        problem = f"has one of {CERTIFICATE} and {KEY}"
        refuse_unless(pair[0] == pair[1], name_of(document), problem, "set both, or none")
        check_service(documents, document["metadata"]["name"], is_tls=pair[0])
        check_clients(documents, document["metadata"]["name"], is_tls=pair[0])
        check_policy(documents, document["metadata"]["name"], is_tls=pair[0])


def check_service(documents, name, is_tls):
    service = named(documents, "Service")[name]
    said = {port["port"]: port.get("appProtocol") for port in service["spec"]["ports"]}
    wanted = ENCRYPTED if is_tls else CLEAR
    problem = f"says {said}, and the edge {'speaks' if is_tls else 'does not speak'} TLS"
    refuse_unless(said == wanted, name_of(service), problem, f"set appProtocol to {wanted}")


def check_clients(documents, name, is_tls):
    """Commands of ailoop that connect to the edge."""
    for document, _, container in containers(documents):
        url = value_of(container, "AILOOP_GRPC_URL")
        if url is None:
            continue
        scheme, _, address = url.partition("://")
        problem = f"connects to {url}, and the edge {'speaks' if is_tls else 'does not speak'} TLS"
        refuse_unless((scheme == "https") == is_tls, name_of(document), problem, "change AILOOP_GRPC_URL")
        host = address.rpartition(":")[0]
        problem = f"connects to {host}, which is not the Service {name}"
        refuse_unless(host.partition(".")[0] == name, name_of(document), problem, "change AILOOP_GRPC_URL")
        # Over TLS a client compares the name with that of the certificate.
        problem = f"connects to {host}, and the certificate is for {name}.<namespace>.svc"
        refuse_unless(not is_tls or host.endswith(".svc"), name_of(document), problem, "use the whole name")
        problem = "sends its token in clear although the edge speaks TLS"
        is_plain = "AILOOP_PLAINTEXT" in environment(container)
        refuse_unless(not (is_tls and is_plain), name_of(document), problem, "remove AILOOP_PLAINTEXT")


def check_policy(documents, name, is_tls):
    """A Gateway speaks TLS to a backend only if a policy says so."""
    policies = [
        policy
        for policy in of_kind(documents, "BackendTLSPolicy")
        if any(target["name"] == name for target in policy["spec"]["targetRefs"])
    ]
    for route in of_kind(documents, "HTTPRoute", "GRPCRoute"):
        problem = f"leads to {name}, which {'speaks' if is_tls else 'does not speak'} TLS, with {len(policies)} policies"
        remedy = "add a BackendTLSPolicy for the Service" if is_tls else "remove the BackendTLSPolicy"
        refuse_unless(len(policies) == int(is_tls), name_of(route), problem, remedy)
    for policy in policies:
        host = policy["spec"]["validation"]["hostname"]
        problem = f"verifies the name {host}, which is not that of the Service {name}"
        refuse_unless(host.partition(".")[0] == name, name_of(policy), problem, "correct validation.hostname")
