"""Mistakes in rules and dashboards. Of a rule: (what, how the rules change, what the message must name)."""

import json


def replace(alert, old, new):
    return lambda rules: rules[alert].update(expr=rules[alert]["expr"].replace(old, new))


RULE_CHANGES = [
    ("a metric that nobody counts", replace("AiloopDeadLetters", "dead_letters", "deadletters"), "ailoop_deadletters"),
    ("a counter without its suffix", replace("AiloopDeadLetters", "letters_total", "letters"), "ailoop_dead_letters"),
    ("a gauge without its unit", replace("AiloopQueueOld", "oldest_seconds", "oldest"), "ailoop_queue_oldest"),
    ("a matcher of an unknown label", replace("AiloopTurnErrors", "reason=~", "cause=~"), "cause"),
    ("a group by an unknown label", replace("AiloopQueueOld", "(namespace, queue)", "(namespace, lane)"), "lane"),
    (
        "a text with an unknown label",
        lambda rules: rules["AiloopQueueOld"]["annotations"].update(summary="{{ $labels.lane }}"),
        "lane",
    ),
    ("an unknown severity", lambda rules: rules["AiloopQueueOld"]["labels"].update(severity="warn"), "warn"),
    (
        "an alert without a description",
        lambda rules: rules["AiloopQueueOld"]["annotations"].pop("description"),
        "description",
    ),
    (
        "an alert with the page of another one",
        lambda rules: rules["AiloopQueueOld"]["annotations"].update(runbook_url="docs/runbook/dead-letters.md"),
        "dead-letters.md",
    ),
    ("an alert of another one's name", lambda rules: rules["AiloopQueueOld"].update(alert="AiloopDeadLetters"), "name"),
]


def edit(change):
    """The text of a dashboard after a change of its JSON."""

    def changed(text):
        dashboard = json.loads(text)
        change(dashboard)
        return json.dumps(dashboard, indent=2, ensure_ascii=False) + "\n"

    return changed


def panel(dashboard):
    return next(panel for panel in dashboard["panels"] if panel.get("targets"))


DASHBOARD_CHANGES = [
    (
        "a panel of a metric that nobody counts",
        edit(lambda dashboard: panel(dashboard)["targets"][0].update(expr="sum(ailoop_queues)")),
        "ailoop_queues",
    ),
    (
        "a panel of one Prometheus",
        edit(lambda dashboard: panel(dashboard).update(datasource={"type": "prometheus", "uid": "P1"})),
        "datasource",
    ),
    (
        "an address in a dashboard",
        edit(lambda dashboard: dashboard.update(links=[{"url": "https://grafana.example.org"}])),
        "grafana.example.org",
    ),
    (
        "a variable that is not there",
        edit(lambda dashboard: panel(dashboard)["targets"][0].update(expr='ailoop_sessions{phase="$phase"}')),
        "phase",
    ),
    ("a dashboard on one line", lambda text: json.dumps(json.loads(text)), "formatted"),
]
