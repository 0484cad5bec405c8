"""Services and network policies as rules of nftables. Everything here is computed from plain values; nothing is run.

Rules are of the router's namespace. Traffic of the node itself, such as probes, does not pass the chain `forward`, so
that no policy stops it.
"""

import dataclasses
import re

from .manifests import Refused, matches
from .network import SERVICES


@dataclasses.dataclass(frozen=True)
class Host:
    """A pod as policies see it."""

    namespace: str
    labels: dict
    ip: str
    ports: dict  # name: (protocol, number)


@dataclasses.dataclass(frozen=True)
class ServicePort:
    """A port of a Service with a cluster address, and the endpoints behind it."""

    address: str
    protocol: str
    port: int
    endpoints: tuple  # of (ip, port)


def _set(values):
    return "{ " + ", ".join(str(value) for value in values) + " }"


def _peers(peer, direction, namespace, hosts, labels_of):
    """How a rule names the other side, or None where there is nobody; with the hosts where they are known."""
    side = "saddr" if direction == "Ingress" else "daddr"
    if "ipBlock" in peer:
        block, match = peer["ipBlock"], ""
        if ":" in block["cidr"]:
            return None, []
        if not block["cidr"].endswith("/0"):
            match = f"ip {side} {block['cidr']} "
        if block.get("except"):
            match += f"ip {side} != {_set(block['except'])} "
        return match, None
    chosen = []
    for host in hosts:
        if "namespaceSelector" in peer:
            fits = matches(peer["namespaceSelector"], labels_of.get(host.namespace, {}))
        else:
            fits = host.namespace == namespace
        if fits and ("podSelector" not in peer or matches(peer["podSelector"], host.labels)):
            chosen.append(host)
    return (f"ip {side} {_set(sorted(host.ip for host in chosen))} " if chosen else None), chosen


def _port_matches(ports, server):
    """How a rule names the ports of a server; a port that the server does not name matches nothing."""
    if not ports:
        return [""]
    found = []
    for port in ports:
        protocol, number = port.get("protocol", "TCP").lower(), port.get("port")
        if isinstance(number, str):
            named = server.ports.get(number) if server else None
            if named is None or named[0].lower() != protocol:
                continue
            number = named[1]
        if number is None:
            found.append(f"meta l4proto {protocol} ")
        else:
            found.append(f"{protocol} dport {number}" + (f"-{port['endPort']} " if "endPort" in port else " "))
    return found


def _rules_of(policy, direction, host, hosts, labels_of):
    """What a policy lets a pod send or receive."""
    other = "from" if direction == "Ingress" else "to"
    for rule in policy["spec"].get(direction.lower()) or []:
        ports = rule.get("ports") or []
        named = any(isinstance(port.get("port"), str) for port in ports)
        for peer in rule.get(other) or [{"ipBlock": {"cidr": "0.0.0.0/0"}}]:
            match, chosen = _peers(peer, direction, host.namespace, hosts, labels_of)
            if match is None:
                continue
            if direction == "Egress" and named and chosen is not None:
                # A name means another port at each of the servers.
                for server in chosen:
                    yield from (f"ip daddr {server.ip} {port}accept" for port in _port_matches(ports, server))
            else:
                yield from (f"{match}{port}accept" for port in _port_matches(ports, host if direction == "Ingress" else None))


def types_of(policy):
    return policy["spec"].get("policyTypes") or ["Ingress"] + (["Egress"] if "egress" in policy["spec"] else [])


def policy_chains(hosts, policies, labels_of):
    """For each direction and isolated pod: what it lets through. Pods that no policy selects are not isolated."""
    chains = {}
    for direction in ("Egress", "Ingress"):
        for host in hosts:
            own = [
                policy for policy in policies
                if policy["metadata"].get("namespace") == host.namespace and direction in types_of(policy)
                and matches(policy["spec"].get("podSelector", {}), host.labels)
            ]
            if own:
                rules = (rule for policy in own for rule in _rules_of(policy, direction, host, hosts, labels_of))
                chains[direction, host.ip] = list(dict.fromkeys(rules))
    return chains


def _chain(name, *lines):
    return [f"  chain {name} {{", *(f"    {line}" for line in lines), "  }"]


def _destination_nat(services):
    for service in services:
        match = f"ip daddr {service.address} {service.protocol.lower()} dport {service.port}"
        if service.endpoints:
            choice = ", ".join(f"{index} : {ip} . {port}" for index, (ip, port) in enumerate(service.endpoints))
            yield f"{match} dnat to numgen random mod {len(service.endpoints)} map {{ {choice} }}"


def ruleset(hosts, policies, labels_of, services, lost=()):
    """All rules, as input of `nft -f`: it replaces the table in one transaction. `lost` are addresses of lost nodes."""
    chains = policy_chains(hosts, policies, labels_of)
    name = {key: f"{key[0].lower()}_{re.sub('[.]', '_', key[1])}" for key in chains}
    jumps = [f"ip {'saddr' if direction == 'Egress' else 'daddr'} {ip} jump {name[direction, ip]}" for direction, ip in chains]
    nat, gone = list(_destination_nat(services)), _set(sorted(lost))
    black_hole = [f"ip saddr {gone} drop", f"ip daddr {gone} drop"] if lost else []
    hairpin = [f"ip saddr {host.ip} ip daddr {host.ip} masquerade" for host in hosts]
    lines = ["table ip pods", "delete table ip pods", "table ip pods {"]
    for key, rules in chains.items():
        # A rule that accepts ends here and lets the chain that jumped go on with the other direction.
        lines += _chain(name[key], *(re.sub("accept$", "return", rule) for rule in rules), "counter drop")
    for hook in ("prerouting", "output"):
        lines += _chain(f"lost_{hook}", f"type filter hook {hook} priority -300; policy accept;", *black_hole)
        lines += _chain(f"services_{hook}", f"type nat hook {hook} priority -100; policy accept;", *nat)
        # As kube-proxy: a Service without an endpoint refuses connections.
        refuse = [f"ip daddr {SERVICES} reject"]
        lines += _chain(f"empty_{hook}", f"type filter hook {hook} priority 0; policy accept;", *refuse)
    lines += _chain("hairpin", "type nat hook postrouting priority 100; policy accept;", *hairpin)
    established = "ct state established,related accept"
    lines += _chain("forward", "type filter hook forward priority 0; policy accept;", established, *jumps)
    return "\n".join([*lines, "}", ""])


def check(policy):
    """Refuses what the rules above would not express."""
    for direction in ("ingress", "egress"):
        for rule in policy["spec"].get(direction) or []:
            unknown = set(rule) - {"from", "to", "ports"}
            if unknown:
                raise Refused(f"NetworkPolicy {policy['metadata']['name']}: {', '.join(unknown)} is not emulated")
