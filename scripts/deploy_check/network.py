"""Evaluates network policies: flows that the fleet needs pass, and flows that nobody needs do not."""

import dataclasses
import ipaddress

from .refused import Refused, refuse_unless
from .render import NAMESPACE
from .workloads import containers, of_kind, selects, workloads


@dataclasses.dataclass(frozen=True)
class Peer:
    """One end of a flow: a pod of a namespace, or an address."""

    name: str
    labels: tuple = ()
    namespace: str = NAMESPACE
    address: str = ""

    def is_ours(self):
        return not self.address and self.namespace == NAMESPACE


def outside(name, address):
    return Peer(name, address=address)


def pod_in(namespace):
    return Peer(f"a pod of namespace {namespace}", (), namespace)


TOOL = (("app.kubernetes.io/component", "tool"),)
INTERNET = outside("a public IPv4 address", "93.184.215.14")
INTERNET6 = outside("a public IPv6 address", "2606:2800:21f:cb07::1")
METADATA = [outside("the cloud's metadata", "169.254.169.254"), outside("the cloud's metadata (IPv6)", "fd00:ec2::254")]
PRIVATE = [
    outside("a private address", address)
    for address in ("10.0.0.1", "172.16.9.9", "192.168.1.1", "100.64.0.9", "fd12::1")
]


def allows(documents, source, target, port, protocol="TCP"):
    """Whether both the egress of the source and the ingress of the target let a flow through."""
    ends = ((source, target, "egress", "to"), (target, source, "ingress", "from"))
    return all(
        side_allows(documents, own, other, port, protocol, direction, key) for own, other, direction, key in ends
    )


def side_allows(documents, own, other, port, protocol, direction, key):
    if not own.is_ours():
        return True
    isolated = False
    for policy in of_kind(documents, "NetworkPolicy"):
        spec = policy["spec"]
        applies = direction.capitalize() in spec["policyTypes"] and selects(spec["podSelector"], dict(own.labels))
        isolated |= applies
        if applies and any(rule_allows(rule, other, port, protocol, key) for rule in spec.get(direction) or []):
            return True
    return not isolated


def rule_allows(rule, other, port, protocol, key):
    peers, listed = rule.get(key), rule.get("ports")
    fits_port = not listed or any((p.get("protocol", "TCP"), p.get("port", port)) == (protocol, port) for p in listed)
    return fits_port and (not peers or any(peer_fits(peer, other) for peer in peers))


def peer_fits(peer, other):
    if "ipBlock" in peer:
        if not other.address:
            return False
        address, block = ipaddress.ip_address(other.address), ipaddress.ip_network(peer["ipBlock"]["cidr"])
        excepted = [ipaddress.ip_network(cidr) for cidr in peer["ipBlock"].get("except", [])]
        inside = address.version == block.version and address in block
        return inside and not any(address in network for network in excepted if network.version == address.version)
    if other.address:
        return False
    if "namespaceSelector" in peer:
        labels = {"kubernetes.io/metadata.name": other.namespace}
        fits = selects(peer["namespaceSelector"], labels)
    else:
        fits = other.is_ours()
    return fits and selects(peer.get("podSelector", {}), dict(other.labels))


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """What is around the fleet; a row of the matrix may differ."""

    dns: tuple = (("kube-system", 53),)
    local_dns: tuple = ("169.254.20.10",)
    tools: tuple = ()
    load_balancers: tuple = ()
    internet: tuple = (INTERNET, INTERNET6)
    web_tool_hosts: tuple = ()
    has_issuers: bool = False


def pods_of(documents):
    """A peer for each workload, by component; several of one component have the name of the workload."""
    found = {}
    for document, template in workloads(documents):
        labels = template["metadata"].get("labels", {})
        found[document["metadata"]["name"]] = Peer(document["metadata"]["name"], tuple(sorted(labels.items())))
    return found


def component_of(peer):
    return dict(peer.labels).get("app.kubernetes.io/component")


def check(documents, surroundings=Surroundings()):
    if not of_kind(documents, "NetworkPolicy"):
        return
    pods = list(pods_of(documents).values())
    remedy = "open it in networkpolicy.yaml"
    for source, target, port, protocol in needed(documents, pods, surroundings):
        passes = allows(documents, source, target, port, protocol)
        refuse_unless(
            passes, "NetworkPolicy", f"{source.name} does not reach {target.name} at {protocol} {port}", remedy
        )
    for source, target, port in forbidden(documents, pods, surroundings):
        if allows(documents, source, target, port):
            problem, close = (
                f"{source.name} reaches {target.name} at port {port}",
                "narrow the policy that lets it through",
            )
            raise Refused("NetworkPolicy", problem, close)


def needed(documents, pods, around):
    def by(*components):
        return [pod for pod in pods if component_of(pod) in components]

    services = by("orchestrator", "gateway", "executor", "tool-host", "composer", "edge")
    monitoring, tool = pod_in("monitoring"), Peer("a pod of a tool", TOOL)
    for pod in pods:
        for namespace, port in around.dns:
            yield from ((pod, pod_in(namespace), port, protocol) for protocol in ("UDP", "TCP"))
        yield from ((pod, outside("the node's DNS cache", address), 53, "UDP") for address in around.local_dns)
    for nats in by("nats"):
        clients = services + by("bootstrap") + [tool] + [Peer(f"a tool in {name}", TOOL, name) for name in around.tools]
        yield from ((client, nats, 4222, "TCP") for client in clients)
        yield (nats, nats, 6222, "TCP")
        yield (monitoring, nats, 8222, "TCP")
        if of_kind(documents, "ScaledObject"):
            yield (pod_in("keda"), nats, 8222, "TCP")
        if any(container["name"] == "exporter" for _, _, container in containers(documents)):
            yield (monitoring, nats, 7777, "TCP")
    if not by("nats"):
        yield from ((pod, pod_in("nats"), 4222, "TCP") for pod in services + by("bootstrap"))
    for gateway in by("gateway"):
        yield from ((gateway, address, 443, "TCP") for address in around.internet)
    # Somebody else's pods of the namespace are as open as without the chart.
    stranger = Peer("a pod of somebody else", (("app.kubernetes.io/component", "gateway"),))
    yield (pod_in("clients"), stranger, 80, "TCP")
    yield (stranger, INTERNET, 443, "TCP")
    for edge in by("edge"):
        if around.has_issuers:
            yield from ((edge, address, 443, "TCP") for address in around.internet)
        for client in [
            pod_in("clients"),
            *(outside("a load balancer", a) for a in around.load_balancers),
            *by("smoke-test"),
        ]:
            yield (client, edge, 7071, "TCP")
            if component_of(client) != "smoke-test":
                yield (client, edge, 7070, "TCP")
    for pod in pods:
        if pod.name in around.web_tool_hosts:
            yield from ((pod, address, port, "TCP") for address in around.internet for port in (80, 443))
    for pod in services:
        yield (monitoring, pod, 9090, "TCP")
    for pod in [*services, tool]:
        yield from ((pod, monitoring, port, "TCP") for port in (4317, 4318))


def forbidden(documents, pods, around):
    stranger, tool = pod_in("clients"), Peer("a pod of a tool", TOOL)
    for pod in [*pods, tool]:
        yield from ((pod, target, port) for target in [*METADATA, *PRIVATE] for port in (80, 443))
        is_web = component_of(pod) == "gateway" or pod.name in around.web_tool_hosts
        if not is_web and not (component_of(pod) == "edge" and around.has_issuers):
            yield from ((pod, target, 443) for target in (INTERNET, INTERNET6))
        yield (pod, INTERNET, 22)
        if component_of(pod) != "edge":
            yield from ((stranger, pod, port) for port in (4222, 6222, 7777, 8222, 9090))
        if component_of(pod) == "nats":
            yield from ((client, pod, 6222) for client in [tool, *(p for p in pods if component_of(p) != "nats")])
            yield (tool, pod, 8222)
