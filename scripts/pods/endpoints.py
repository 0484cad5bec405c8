"""Endpoints and names of Services, computed from the pods that are there."""

from . import dns
from .manifests import matches
from .policy import ServicePort


def target_port(pod, port):
    """The number of a Service's port at a pod; None where the pod does not name it."""
    target = port.get("targetPort", port["port"])
    return target if isinstance(target, int) else pod.named_ports().get(target, (None, None))[1]


def of_services(services, pods, address_of):
    """(cluster addresses with endpoints, addresses of names, SRV records of names). `services` are documents by key."""
    addresses, table, ports = [], {}, {}
    for (_, namespace, name), document in services.items():
        spec, domain = document["spec"], f"{name}.{namespace}.svc.{dns.DOMAIN}"
        if not spec.get("selector"):
            continue
        selected = [pod for pod in pods if pod.namespace == namespace and matches({"matchLabels": spec["selector"]}, pod.labels)]
        not_ready = spec.get("publishNotReadyAddresses", False)
        endpoints = [pod for pod in selected if pod.is_ready or (not_ready and pod.phase in ("Pending", "Running"))]
        if spec.get("clusterIP") == "None":
            table[domain] = [pod.ip for pod in endpoints]
            table |= {f"{pod.hostname}.{domain}": [pod.ip] for pod in endpoints if pod.spec.get("subdomain") == name}
        else:
            table[domain] = [address_of((namespace, name), document)]
        for port in spec.get("ports", []):
            protocol = port.get("protocol", "TCP")
            targets = [(pod, target_port(pod, port)) for pod in endpoints]
            record = f"_{port.get('name', '')}._{protocol.lower()}.{domain}"
            if spec.get("clusterIP") == "None":
                ports[record] = [(f"{pod.hostname}.{domain}", number) for pod, number in targets if number]
            else:
                ports[record] = [(domain, port["port"])]
                reached = tuple((pod.ip, number) for pod, number in targets if number)
                addresses.append(ServicePort(table[domain][0], protocol, port["port"], reached))
    return addresses, table, ports
