"""Autoscalers: one for a Deployment, on queues that exist, by the server that knows them."""

from . import facts
from .refused import name_of, refuse_unless
from .workloads import named, of_kind, value_of

# The service that works on each consumer, and the variable of its places.
WORKERS = {
    "drive": ("orchestrator", "AILOOP__ORCHESTRATOR__CONCURRENCY"),
    "due": ("orchestrator", "AILOOP__ORCHESTRATOR__CONCURRENCY"),
    "model": ("gateway", "AILOOP__GATEWAY__CONCURRENCY"),
    "tool": ("executor", "AILOOP__EXECUTOR__CONCURRENCY"),
}


def check(documents):
    deployments, owners = named(documents, "Deployment"), {}
    for document in of_kind(documents, "HorizontalPodAutoscaler", "ScaledObject"):
        spec = document["spec"]
        target = spec["scaleTargetRef"]["name"]
        problem = f"{target} is scaled by {name_of(owners.get(target, document))} too"
        refuse_unless(
            target not in owners, name_of(document), problem, "remove one of them: autoscaling.mode is keda or hpa"
        )
        owners[target] = document
        problem = f"{target} has a fixed number of replicas, which each apply would set again"
        fixed = "replicas" in deployments.get(target, {}).get("spec", {})
        refuse_unless(not fixed, name_of(document), problem, "remove spec.replicas from the Deployment")
        low, high = (
            spec.get("minReplicaCount", spec.get("minReplicas")),
            spec.get("maxReplicaCount", spec.get("maxReplicas")),
        )
        refuse_unless(
            low <= high, name_of(document), f"the minimum {low} is above the maximum {high}", "raise the maximum"
        )
        for trigger in spec.get("triggers", []):
            if trigger["type"] == "nats-jetstream":
                check_trigger(documents, document, trigger["metadata"], deployments.get(target))


def check_trigger(documents, document, metadata, deployment):
    place = f"{name_of(document)}, {metadata.get('consumer')}"
    consumer = (metadata.get("stream"), metadata.get("consumer"))
    known = ", ".join("/".join(pair) for pair in sorted(facts.consumers()))
    problem = f"{'/'.join(map(str, consumer))} is no consumer: KEDA would scale to the maximum"
    refuse_unless(consumer in facts.consumers(), place, problem, f"use one of {known}")
    host, _, port = metadata["natsServerMonitoringEndpoint"].partition(":")
    servers = {server["spec"]["serviceName"] for server in of_kind(documents, "StatefulSet")}
    if servers:
        service = named(documents, "Service").get(host.split(".")[0], {}).get("spec", {})
        headless = service.get("clusterIP") == "None" and host.split(".")[0] in servers
        problem = f"{host} is not the headless Service of nats-server, by which KEDA finds the consumer's leader"
        refuse_unless(headless, place, problem, f"use {sorted(servers)[0]}.<namespace>.svc:8222")
        monitor = [p["port"] for p in service["ports"] if p["name"] == "monitor"]
        refuse_unless(int(port) in monitor, place, f"port {port} is not nats-server's monitor", "use 8222")
        problem = "names no accountID, without which nats-server does not find the account"
        remedy = "set accountID to the public key of the account AILOOP"
        refuse_unless(metadata.get("accountID"), place, problem, remedy)
    component, variable = WORKERS[metadata["consumer"]]
    fits = deployment and deployment["spec"]["template"]["spec"]["containers"][0]["args"] == [component]
    problem = f"{document['spec']['scaleTargetRef']['name']} does not work on this consumer"
    refuse_unless(fits, place, problem, f"scale the {component}")
    places = int(value_of(deployment["spec"]["template"]["spec"]["containers"][0], variable))
    threshold = int(metadata.get("lagThreshold", 10))
    problem = f"lagThreshold {threshold} is far from the {places} places of a pod"
    remedy = "set it to about the concurrency of one pod: work in progress counts"
    refuse_unless(places / 4 <= threshold <= 2 * places, place, problem, remedy)
