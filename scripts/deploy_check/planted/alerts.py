"""Mistakes in rules and dashboards. Of a rule: (what, how the rules change, what the message must name)."""


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


def first_panel(entry):
    return next(iter(entry["rows"].values()))[0]


# Of dashboards.yaml: (what, how its first entry changes, what the message must name).
DASHBOARD_CHANGES = [
    (
        "a panel of a metric that nobody counts",
        lambda entry: first_panel(entry).update(queries={"queues": "sum(ailoop_queues)"}),
        "ailoop_queues",
    ),
    (
        "an address in a dashboard",
        lambda entry: first_panel(entry).update(description="See https://grafana.example.org."),
        "grafana.example.org",
    ),
    (
        "a variable that is not there",
        lambda entry: first_panel(entry).update(queries={"sessions": 'ailoop_sessions{phase="$phase"}'}),
        "phase",
    ),
    (
        "two panels with one title",
        lambda entry: next(iter(entry["rows"].values())).append(first_panel(entry)),
        "one title",
    ),
]
