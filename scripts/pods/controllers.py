"""Deployments, StatefulSets, Jobs and disruption budgets: what they would do next, computed from what is there."""

import copy
import dataclasses
import hashlib
import json
import time

from .kubelet import Pod
from .manifests import Refused, key_of, matches, scaled

RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
# What may change in a StatefulSet; a Job's template and a Deployment's selector may not.
STATEFUL_SET_CHANGES = {"replicas", "ordinals", "template", "updateStrategy", "persistentVolumeClaimRetentionPolicy", "minReadySeconds"}


def template_hash(template):
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]


def check_change(old, new):
    """Refuses what the API server refuses to change."""
    kind, name, before, after = new["kind"], new["metadata"]["name"], old["spec"], new["spec"]
    if kind == "StatefulSet":
        changed = {field for field in before.keys() | after.keys() if before.get(field) != after.get(field)} - STATEFUL_SET_CHANGES
        if changed:
            raise Refused(f'The StatefulSet "{name}" is invalid: spec: Forbidden: updates to {", ".join(sorted(changed))} are forbidden')
    elif kind == "Job" and before["template"] != after["template"]:
        raise Refused(f'The Job "{name}" is invalid: spec.template: field is immutable')
    elif kind == "Deployment" and before["selector"] != after["selector"]:
        raise Refused(f'The Deployment "{name}" is invalid: spec.selector: field is immutable')


@dataclasses.dataclass
class RollingUpdate:
    """What one step of a rolling update does."""

    create: int
    delete_new: int
    delete_old_not_available: int
    delete_old_available: int


def rolling_update(desired, new, new_available, old, old_available, max_surge, max_unavailable):
    """The next step of a Deployment, from the counts of its pods, those that terminate left out."""
    create = min(desired + max_surge - new - old, desired - new)
    if create > 0:
        return RollingUpdate(create, 0, 0, 0)
    if new > desired:
        return RollingUpdate(0, new - desired, 0, 0)
    min_available = desired - max_unavailable
    # New pods that are not available yet count as lost, or more would be ended than may be.
    removable = max(new + old - min_available - (new - new_available), 0)
    broken = min(old - old_available, removable)
    available = max(min(new_available + old_available - min_available, old_available, removable - broken), 0)
    return RollingUpdate(0, 0, broken, available)


def surge_and_unavailable(spec):
    rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
    replicas = spec.get("replicas", 1)
    surge = scaled(rolling.get("maxSurge", "25%"), replicas, round_up=True)
    unavailable = scaled(rolling.get("maxUnavailable", "25%"), replicas, round_up=False)
    return surge, unavailable if surge or unavailable else 1


def disruptions_allowed(budget, expected, healthy):
    """How many healthy pods may be evicted now."""
    spec = budget["spec"]
    if "maxUnavailable" in spec:
        needed = expected - scaled(spec["maxUnavailable"], expected, round_up=True)
    else:
        needed = scaled(spec.get("minAvailable", 1), expected, round_up=True)
    return healthy - needed


def may_evict(pod, budgets, pods, expected_of):
    """Whether every budget of a pod lets it be evicted now."""
    for budget in budgets:
        if budget["metadata"].get("namespace") != pod.namespace or not matches(budget["spec"].get("selector"), pod.labels):
            continue
        covered = [other for other in pods if other.namespace == pod.namespace and matches(budget["spec"]["selector"], other.labels)]
        healthy = sum(other.is_ready for other in covered)
        allowed = disruptions_allowed(budget, expected_of(covered), healthy)
        if not pod.is_ready:
            if budget["spec"].get("unhealthyPodEvictionPolicy", "IfHealthyBudget") == "AlwaysAllow" or allowed >= 0:
                continue
            return False
        if allowed < 1:
            return False
    return True


def _active(pods):
    return [pod for pod in pods if not pod.terminating.is_set() and pod.phase not in ("Succeeded", "Failed")]


def deployment(cluster, document):
    spec, owner = document["spec"], key_of(document)
    revision = template_hash(spec["template"])
    pods = _active(cluster.owned(owner))
    for pod in cluster.owned(owner):
        if pod.phase == "Failed" and not pod.terminating.is_set():
            pod.end()
    min_ready = spec.get("minReadySeconds", 0)
    new = [pod for pod in pods if pod.revision == revision]
    old = [pod for pod in pods if pod.revision != revision]
    desired = spec.get("replicas", 1)
    if (spec.get("strategy") or {}).get("type") == "Recreate":
        for pod in old:
            pod.end()
        create, doomed = (0 if any(pod.revision != revision for pod in cluster.owned(owner)) else desired - len(new)), []
    else:
        available = [pod for pod in pods if pod.is_available(min_ready)]
        old_available = [pod for pod in old if pod in available]
        step = rolling_update(desired, len(new), len([pod for pod in new if pod in available]), len(old), len(old_available),
                              *surge_and_unavailable(spec))
        create = step.create
        doomed = sorted(new, key=lambda pod: pod.is_ready)[:step.delete_new]
        doomed += [pod for pod in old if pod not in available][:step.delete_old_not_available]
        doomed += old_available[:step.delete_old_available]
    for pod in doomed:
        pod.end()
    for _ in range(max(create, 0)):
        template = copy.deepcopy(spec["template"])
        template["metadata"].setdefault("labels", {})["pod-template-hash"] = revision
        cluster.add_pod(Pod(cluster, f"{owner[2]}-{revision}-{cluster.suffix()}", owner[1], template, owner, revision))


def is_rolled_out(cluster, document):
    """Whether all pods of a Deployment or StatefulSet are of its template, and available."""
    spec, pods = document["spec"], [pod for pod in cluster.owned(key_of(document)) if not pod.terminating.is_set()]
    revision, desired = template_hash(spec["template"]), spec.get("replicas", 1)
    new = [pod for pod in pods if pod.revision == revision and pod.is_available(spec.get("minReadySeconds", 0))]
    return len(new) == len(pods) == desired


def stateful_set(cluster, document):
    spec, owner = document["spec"], key_of(document)
    revision, min_ready = template_hash(spec["template"]), spec.get("minReadySeconds", 0)
    by_ordinal = {pod.ordinal: pod for pod in cluster.owned(owner)}
    start = (spec.get("ordinals") or {}).get("start", 0)
    wanted = range(start, start + spec.get("replicas", 1))
    is_ordered = spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady"
    for ordinal in wanted:
        pod = by_ordinal.get(ordinal)
        if pod is None:
            cluster.add_pod(_stateful_pod(cluster, spec, owner, revision, ordinal))
        elif pod.phase in ("Failed", "Succeeded"):
            pod.end()
        # A pod that terminates keeps its name until it is gone.
        if is_ordered and not (pod and pod.is_available(min_ready)):
            return
    for ordinal in sorted(set(by_ordinal) - set(wanted), reverse=True):
        if not by_ordinal[ordinal].terminating.is_set():
            by_ordinal[ordinal].end()
        if is_ordered:
            return
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") == "RollingUpdate":
        partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
        for ordinal in sorted((ordinal for ordinal in wanted if ordinal >= partition), reverse=True):
            pod = by_ordinal.get(ordinal)
            if pod is not None and pod.revision != revision and not pod.terminating.is_set():
                pod.end()
                return
            if pod is None or not pod.is_available(min_ready):
                return


def _stateful_pod(cluster, spec, owner, revision, ordinal):
    name, template = f"{owner[2]}-{ordinal}", copy.deepcopy(spec["template"])
    labels = template["metadata"].setdefault("labels", {})
    labels |= {"statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": str(ordinal), "controller-revision-hash": revision}
    template["spec"]["subdomain"] = spec.get("serviceName", "")
    for claim in spec.get("volumeClaimTemplates", []):
        claim_name = f"{claim['metadata']['name']}-{name}"
        cluster.objects.setdefault(
            ("PersistentVolumeClaim", owner[1], claim_name),
            {"kind": "PersistentVolumeClaim", "metadata": {"name": claim_name, "namespace": owner[1]}, "spec": claim.get("spec", {})})
        volume = {"name": claim["metadata"]["name"], "persistentVolumeClaim": {"claimName": claim_name}}
        template["spec"].setdefault("volumes", []).append(volume)
    return Pod(cluster, name, owner[1], template, owner, revision, ordinal)


def job(cluster, document):
    """Runs pods until one succeeds, or until there were more failures than `backoffLimit` lets pass."""
    spec, owner, status = document["spec"], key_of(document), document.setdefault("status", {})
    if spec.get("parallelism", 1) != 1 or spec.get("completions", 1) != 1:
        raise Refused(f"Job {owner[2]}: more than one pod is not emulated")
    pods = cluster.owned(owner)
    if "ended" in status:
        ttl = spec.get("ttlSecondsAfterFinished")
        if ttl is not None and time.monotonic() - status["ended"] > ttl:
            del cluster.objects[owner]  # not `delete`, which waits for this loop
        return
    began = status.setdefault("began", time.monotonic())
    failed = [pod for pod in pods if pod.phase == "Failed"]
    # With OnFailure the kubelet restarts the container, and each restart counts.
    failures = len(failed) + sum(pod.restarts for pod in pods if pod not in failed)
    if any(pod.phase == "Succeeded" for pod in pods):
        status |= {"ended": time.monotonic(), "succeeded": True}
    elif failures > spec.get("backoffLimit", 6) or time.monotonic() - began > spec.get("activeDeadlineSeconds", float("inf")):
        status |= {"ended": time.monotonic(), "succeeded": False}
        cluster.report(f"Job {owner[2]} failed")
        for pod in pods:
            pod.end()
    elif not _active(pods) and not spec.get("suspend"):
        pause = min(10 * 2 ** (len(failed) - 1), 360) if failed else 0
        if time.monotonic() - status.get("created", 0) >= pause:
            status["created"] = time.monotonic()
            cluster.add_pod(Pod(cluster, f"{owner[2]}-{cluster.suffix()}", owner[1], copy.deepcopy(spec["template"]), owner))


RECONCILERS = {"Deployment": deployment, "StatefulSet": stateful_set, "Job": job}
