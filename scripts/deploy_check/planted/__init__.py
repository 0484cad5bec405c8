"""Mistakes, planted one by one: each must be refused, by a message that names its place and a remedy."""

import copy
import pathlib
import shutil
import tempfile

import yaml

from .. import dashboards, files, manifests, monitoring, parity, values_schema
from ..paths import BASE, CHART, DEPLOY
from ..refused import Refused
from ..render import render_chart
from .alerts import DASHBOARD_CHANGES, RULE_CHANGES
from .changes import CHANGES, EDGE, EVERYTHING, find, set_variable
from .tls import TLS_CHANGES
from .values import VALUES


def must_refuse(what, place, check, *arguments):
    """The text of the refusal, which must name the place."""
    try:
        check(*arguments)
    except Refused as refused:
        names = place in refused.place or place in refused.problem
        if names and refused.remedy:
            return str(refused)
        raise Refused(
            "the check itself", f"of {what} it says {refused}, which does not name {place}", "correct the check"
        ) from None
    raise Refused("the check itself", f"lets in {what}", "correct the check") from None


def plant_changes():
    rendered = {}
    for setup, check, rows in [*((EVERYTHING, check, rows) for check, rows in CHANGES), *TLS_CHANGES]:
        documents = rendered.get(setup.file) or rendered.setdefault(setup.file, setup.render())
        for what, target, change, place in rows:
            copies = copy.deepcopy(documents)
            change(find(copies, target))
            yield must_refuse(what, place, check, copies)


def plant_values():
    for what, given, place in VALUES:
        yield must_refuse(what, place, lambda of=given: render_chart(values=of))


def plant_files():
    yield must_refuse("a path that is not there", "nowhere", files.check_dockerfile, "COPY nowhere nowhere")
    chart_values = yaml.safe_load(values_schema.VALUES.read_text())
    chart_values["edge"].pop("allowedOrigins")
    yield must_refuse("a type that no value has", "allowedOrigins", values_schema.rendered, chart_values)
    chart_values["edge"].update(allowedOrigins=[], allowedMethods=[])
    yield must_refuse("a value without a type", "edge.allowedMethods", values_schema.rendered, chart_values)
    text = (DEPLOY / "helm/nats-values.yaml").read_text().replace("ping_max: 2", "ping_max: 3")
    own = render_chart()
    yield must_refuse("another setting for a NATS of one's own", "ping_max", files.check_nats_values, own, text)
    with tempfile.TemporaryDirectory() as scratch:
        directory = pathlib.Path(shutil.copytree(BASE, pathlib.Path(scratch) / "base"))
        edge = directory / "edge.yaml"
        text = edge.read_text()
        edge.write_text(text.replace("replicas: 2", "replicas: 3"))
        yield must_refuse("a base that somebody edited", "edge.yaml", manifests.check, directory)
        edge.write_text(text)
        (directory / "old.yaml").write_text(text)
        yield must_refuse("a file that the chart no longer renders", "old.yaml", manifests.check, directory)
    chart = render_chart(files=[CHART / "values-local.yaml"])
    overlay = copy.deepcopy(chart)
    set_variable("AILOOP__DRAIN_TIMEOUT", "9")(find(overlay, EDGE))
    yield must_refuse(
        "an overlay that differs from the chart", "Deployment/ailoop-edge", parity.check, "local", overlay, chart
    )
    overlay = [d for d in chart if d["kind"] != "PodDisruptionBudget"]
    yield must_refuse("an overlay that lacks an object", "PodDisruptionBudget", parity.check, "local", overlay, chart)


def plant_rules():
    rules = monitoring.read_rules()
    for what, change, place in RULE_CHANGES:
        copies = copy.deepcopy(rules)
        change({rule["alert"]: rule for rule in monitoring.alerts_of(copies)})
        yield must_refuse(what, place, monitoring.check_rules, copies)
    with tempfile.TemporaryDirectory() as scratch:
        directory = pathlib.Path(shutil.copytree(monitoring.RUNBOOK, pathlib.Path(scratch) / "runbook"))
        page = directory / "queue-old.md"
        text = page.read_text()
        page.write_text(text.replace("# AiloopQueueOld", "# AiloopQueue", 1))
        yield must_refuse("a page of another title", "queue-old.md", monitoring.check_pages, rules, directory)
        page.unlink()
        yield must_refuse("an alert without a page", "AiloopQueueOld", monitoring.check_pages, rules, directory)
        page.write_text(text)
        (directory / "queue-slow.md").write_text("# AiloopQueueSlow\n")
        yield must_refuse("a page without an alert", "queue-slow.md", monitoring.check_pages, rules, directory)
        (directory / "queue-slow.md").unlink()
        index = directory / "README.md"
        index.write_text(index.read_text().replace("(queue-old.md) | page", "(queue-old.md) | ticket"))
        yield must_refuse("a list with another severity", "queue-old.md", monitoring.check_pages, rules, directory)
    trials = monitoring.TRIALS.read_text().replace('@trial("AiloopQueueOld"', '@trial("AiloopQueueSlow"')
    yield must_refuse("an alert that nobody tries", "AiloopQueue", monitoring.check_trials, rules, trials)


def plant_dashboards():
    (name, entry), *_ = dashboards.read_table().items()
    for what, change, place in DASHBOARD_CHANGES:
        copies = copy.deepcopy(entry)
        change(copies)
        yield must_refuse(what, place, monitoring.check_dashboard, name, dashboards.text_of(copies))
    with tempfile.TemporaryDirectory() as scratch:
        directory = pathlib.Path(shutil.copytree(dashboards.DIRECTORY, pathlib.Path(scratch) / "dashboards"))
        file = directory / f"{name}.json"
        file.write_text(file.read_text().replace("30s", "5s"))
        yield must_refuse("a dashboard that somebody edited", file.name, dashboards.check, directory)


def plant(verbose=False):
    """How many mistakes were planted, which all were refused."""
    said = [*plant_changes(), *plant_values(), *plant_files(), *plant_rules(), *plant_dashboards()]
    if verbose:
        print(*said, sep="\n")
    return len(said)
