"""Rotation of the edge's token under load: the second one is added, clients move to it, the first one is removed."""

import sys
import time

from .. import disturbances, report
from . import expect, session, started

# The edge looks every 2 s, and takes a change at the second look.
SEEN_SECONDS_MAX = 20


def until(holds):
    deadline = time.monotonic() + SEEN_SECONDS_MAX
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.5)
    return holds()


with started("local") as cluster:
    client = cluster.client("clients")
    load = disturbances.load_of(cluster, sys.argv[1], "ailoop")
    first, second = load.env["AILOOP_TOKEN"], "the-second-token"
    restarts = {str(pod): pod.restarts for pod in cluster.pods}

    def accepted(token):
        return session(cluster, client, "sessions", token=token)[0] == 0

    def tokens(**keys):
        cluster.apply({"kind": "Secret", "metadata": {"name": "ailoop-edge", "namespace": "ailoop"}, "stringData": keys})

    def add():
        expect(accepted(first) and not accepted(second), "the first token is accepted, the second one is not")
        tokens(token=first, next=second)
        expect(until(lambda: accepted(second)), "the second token is accepted")
        expect(accepted(first), "the first one still is")

    def move():
        load.env = load.env | {"AILOOP_TOKEN": second}
        time.sleep(5)  # turns with the first token end

    def remove():
        tokens(token=second)
        expect(until(lambda: not accepted(first)), "the first token is refused")
        expect(accepted(second), "the second one is accepted")

    plan = [("add the second token", add), ("move clients to it", move), ("remove the first token", remove)]
    rows, verdicts, outcomes = disturbances.under_load(cluster, load, "ailoop", plan)
    wrong = report.summary(cluster, rows, verdicts, outcomes)
    expect({str(pod): pod.restarts for pod in cluster.pods if str(pod) in restarts} == restarts, "no container restarted")
    expect(wrong == 0 and all(verdict.word == "ok" for verdict in verdicts), f"all {len(verdicts)} turns are answered once, without an error")
