"""`helm upgrade` to other settings of the streams and `helm rollback`, under load: no turn is lost or done twice."""

import json
import sys

import yaml

from .. import disturbances, report
from ..load import first_options, with_steps
from . import expect, followed

UPGRADE = "helm upgrade ailoop deploy/helm/ailoop --namespace ailoop --values deploy/helm/ailoop/values-local.yaml --values "
DAY_NANOSECONDS = 86_400 * 10**9


def retention_days(cluster):
    """How long nats-server keeps the archive: what `nats.retention_days` sets."""
    _, body = cluster.http_get_from(cluster.find("ailoop-nats-0"), "http://127.0.0.1:8222/jsz?streams=true&config=true")
    streams = [stream for account in json.loads(body)["account_details"] for stream in account.get("stream_detail", [])]
    archive = next(stream for stream in streams if stream["name"] == "AI_LOOP_ARCHIVE")
    return archive["config"]["max_age"] // DAY_NANOSECONDS


with followed("helm/local") as (cluster, operator):

    def upgrade(days):
        """The script of the load is among the values, since an upgrade puts the files of the chart in place."""
        values = cluster.state / f"values-{days}.yaml"
        values.write_text(yaml.safe_dump({"config": {"settings": {"nats": {"retention_days": days}}, "files": {"rehearsal.yaml": script}}}))
        operator.run(UPGRADE + str(values))
        retentions.append(retention_days(cluster))

    def rollback(*revision):
        operator.run(" ".join(["helm rollback ailoop", *revision, "--namespace ailoop"]))
        retentions.append(retention_days(cluster))

    retentions = [retention_days(cluster)]
    changed, = with_steps([document for key, document in cluster.objects.items() if key[0] == "ConfigMap" and key[1] == "ailoop"])
    script = changed["data"]["rehearsal.yaml"]
    upgrade(60)
    cluster.wait_ready("ailoop")
    load = disturbances.load_of(cluster, sys.argv[1], "ailoop")

    def across(when, settings=()):
        """A turn of one session that is older than each of the changes."""
        load.turn("load-across-1", f"pods-load list {when}", settings)

    def then(action, when):
        action()
        across(when)  # pods are being replaced now

    plan = [
        ("a session begins", lambda: across("before", first_options())),
        ("helm upgrade", lambda: then(lambda: upgrade(90), "during-upgrade")),
        ("helm rollback", lambda: then(rollback, "during-rollback")),
        ("the session goes on", lambda: across("after")),
    ]
    rows, verdicts, outcomes = disturbances.under_load(cluster, load, "ailoop", plan)
    wrong = report.summary(cluster, rows, verdicts, outcomes)
    words = [verdict.word for verdict in verdicts if verdict.turn.session == "load-across-1"]
    expect(words == ["ok"] * 4, f"a session before, during and after has each of its turns once: {words}")
    expect(retentions == [30, 60, 90, 60], f"upgrades and rollbacks change the streams before the commands return: {retentions} days")
    expect(wrong == 0, "no turn is lost or done twice")
    rollback("1")
    cluster.wait_ready("ailoop")
    expect(retention_days(cluster) == 30, "a rollback to the first revision runs the Job as an ordinary object")
