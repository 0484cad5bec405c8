"""What is done to a cluster under load, one after the other, and how long sessions noticed it."""

import dataclasses
import time

from . import manifests
from .load import Load, first_options, with_steps
from .manifests import Refused, key_of

BASELINE_SECONDS = 10
READY_SECONDS_MAX = 240
ANSWER_SECONDS_MAX = 60


@dataclasses.dataclass
class Row:
    """One disturbance, for the table."""

    what: str
    turns: list
    recovered_seconds: float  # until everything was available and every worker had another answer

    @property
    def slowest(self):
        return max((turn.ended - turn.began for turn in self.turns), default=0.0)


def workloads(cluster, namespace):
    """Deployments and StatefulSets, those that hold state last."""
    kinds = ("Deployment", "StatefulSet")
    return [document for kind in kinds for key, document in sorted(cluster.objects.items()) if key[0] == kind and key[1] == namespace]


def victims(cluster, document):
    """One pod of a Deployment, every pod of a StatefulSet."""
    pods = sorted((pod for pod in cluster.owned(key_of(document)) if pod.is_ready), key=lambda pod: pod.name)
    return pods if document["kind"] == "StatefulSet" else pods[:1]


def plan(cluster, namespace):
    """(what, action) of every disturbance, in order. Actions find their pods when they run."""

    def kill(document, index):
        cluster.kill(victims(cluster, document)[index])

    def move(document, index):
        cluster.move(victims(cluster, document)[index])

    def restart(document):
        kind, of, name = key_of(document)
        cluster.rollout_restart(kind, of, name)

    def drain(node):
        cluster.drain(node)
        cluster.uncordon(node)

    for verb, action in (("kill -9", kill), ("move", move)):
        for document in workloads(cluster, namespace):
            for index, pod in enumerate(victims(cluster, document)):
                name = pod.name if document["kind"] == "StatefulSet" else document["metadata"]["name"]
                yield f"{verb} {name}", lambda action=action, document=document, index=index: action(document, index)
    for document in workloads(cluster, namespace):
        if document["kind"] == "Deployment":
            yield f"rollout restart {document['metadata']['name']}", lambda document=document: restart(document)
    node = max(cluster.nodes, key=lambda node: sum(pod.node == node for pod in cluster.pods))
    yield f"drain {node}", lambda: drain(node)


def wait_for_answers(load, since):
    """Waits until every worker got an answer to a turn that began after `since`; gives whether they did."""
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while time.monotonic() < deadline:
        fresh = {turn.session.split("-")[1] for turn in load.under_way(since) if turn.began >= since and turn.is_answered}
        if fresh >= {str(worker) for worker in range(load.worker_count)}:
            return True
        time.sleep(0.1)
    return False


def run(cluster, load, namespace, disturbances):
    """Disturbs a cluster; gives a row for each disturbance."""
    rows = []
    for what, action in disturbances:
        print(f"  {what}", flush=True)
        began = time.monotonic()
        action()
        cluster.wait_ready(namespace, READY_SECONDS_MAX)
        ready = time.monotonic()
        is_answered = wait_for_answers(load, ready)
        ended = time.monotonic()
        turns = [turn for turn in load.under_way(began) if turn.began <= ended and turn.ended <= ended]
        rows.append(Row(what, turns, ended - began if is_answered else float("inf")))
    return rows


def entrance(cluster, namespace):
    """(address of gRPC, token) of the edge, or None where there is none."""
    for (kind, of, name), document in sorted(cluster.objects.items()):
        ports = document.get("spec", {}).get("ports", []) if kind == "Service" and of == namespace else []
        for port in (port for port in ports if port.get("name") == "grpc"):
            secret = cluster.lookup("Secret", "ailoop-edge", namespace)
            token = manifests.contents(secret)["token"].decode() if secret else ""
            return f"http://{name}.{namespace}:{port['port']}", token
    return None


def load_of(cluster, ailoop, namespace):
    """The load for a cluster, whose gateway plays its script; it has not begun."""
    found = entrance(cluster, namespace)
    if found is None:
        raise Refused(f"{namespace} has no Service with a port `grpc`, which the load needs")
    # Volumes are refreshed at once, not within a minute; the gateway reads the changed script by itself.
    cluster.volume_refresh_seconds = 1
    cluster.apply(with_steps([document for key, document in cluster.objects.items() if key[1] == namespace]))
    load = Load(cluster, cluster.client("clients"), str(ailoop), *found)
    wait_for_script(load)
    return load


def under_load(cluster, load, namespace, disturbances):
    """Disturbs a cluster while sessions run; gives the rows, the verdicts, and the outcomes of tool calls."""
    with load:
        time.sleep(BASELINE_SECONDS)
        baseline = Row("none", [turn for turn in load.under_way(0) if turn.ended != float("inf")], 0)
        rows = [baseline] + run(cluster, load, namespace, disturbances)
    verdicts, outcomes = load.verify()
    return rows, verdicts, outcomes


def wait_for_script(load):
    """Until the gateway plays the steps of the load."""
    deadline = time.monotonic() + 60
    while True:
        code, output = load.command("run", *first_options(), "pods-load list try")
        if code == 0 and "Answer to pods-load list try." in output:
            return
        if time.monotonic() > deadline:
            raise Refused(f"the gateway does not play the changed script: exit code {code}: {output.strip()[-500:]}")
        time.sleep(1)
