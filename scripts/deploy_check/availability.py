"""Drains of nodes, lost zones and single pods."""

from .refused import name_of, refuse_unless
from .workloads import named, of_kind, selects


def check(documents):
    budgets = of_kind(documents, "PodDisruptionBudget")
    for document in of_kind(documents, "Deployment", "StatefulSet"):
        labels = document["spec"]["template"]["metadata"]["labels"]
        if labels.get("app.kubernetes.io/component") == "tool":
            continue
        own = [budget for budget in budgets if selects(budget["spec"]["selector"], labels)]
        remedy = "add one, with maxUnavailable: 1"
        refuse_unless(own, name_of(document), "has no PodDisruptionBudget: a drain may end all its pods", remedy)
        strict = own[0]["spec"]
        problem = "allows no pod to go, so a drain of its node never ends"
        refuse_unless(strict.get("maxUnavailable") == 1, name_of(own[0]), problem, "set maxUnavailable: 1")
        blocks = strict.get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
        problem = "protects pods that are broken anyway"
        refuse_unless(blocks, name_of(own[0]), problem, "set unhealthyPodEvictionPolicy: AlwaysAllow")


def check_production(documents):
    """What production promises: no pod whose loss stops the fleet."""
    scaled = {
        d["spec"]["scaleTargetRef"]["name"]: d["spec"]
        for d in of_kind(documents, "HorizontalPodAutoscaler", "ScaledObject")
    }
    for name, document in named(documents, "Deployment").items():
        least = document["spec"].get("replicas", 1)
        if name in scaled:
            least = scaled[name].get("minReplicas", scaled[name].get("minReplicaCount", 1))
        problem = f"has {least} pod, whose loss stops the fleet"
        refuse_unless(least >= 2, name_of(document), problem, "give it two or more")
    for document in of_kind(documents, "StatefulSet"):
        place, spec = name_of(document), document["spec"]["template"]["spec"]
        replicas = document["spec"]["replicas"]
        refuse_unless(replicas == 3, place, f"has {replicas} servers", "give it three")
        constraints = {(c["topologyKey"], c["whenUnsatisfiable"]) for c in spec.get("topologySpreadConstraints", [])}
        for key in ("topology.kubernetes.io/zone", "kubernetes.io/hostname"):
            problem = f"may have two servers in one {key.rpartition('/')[2]}"
            refuse_unless((key, "DoNotSchedule") in constraints, place, problem, "set whenUnsatisfiable: DoNotSchedule")
