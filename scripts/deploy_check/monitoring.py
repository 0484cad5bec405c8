"""Rules and dashboards of deploy/monitoring: every metric and label that they name exists, and every alert has a page.

`make lab NAME=alerts` shows that alerts fire; this needs neither Prometheus nor a fleet.
"""

import functools
import json
import re

import yaml

from . import dashboards
from .paths import DEPLOY, ROOT
from .refused import refuse_unless

RULES = DEPLOY / "monitoring/rules.yaml"
RUNBOOK = ROOT / "docs/runbook"
TRIALS = ROOT / "scripts/alerts/trials.py"
NAMES = ROOT / "crates/telemetry/src/names.rs"
INSTRUMENTS = ROOT / "crates/telemetry/src/metric.rs"

# What the scraper, OpenTelemetry and the process collector add.
FOREIGN_METRICS = {
    "up",
    "ALERTS",
    "target_info",
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
}
FOREIGN_LABELS = {
    *("namespace", "pod", "job", "instance", "le", "service_name", "service_namespace"),
    *("alertname", "alertstate", "severity"),
}
# How an instrument of metric.rs is called in Prometheus' text, by the function that makes it.
SUFFIXES = {
    **dict.fromkeys(["count", "sum"], ["_total"]),
    **dict.fromkeys(["gauge", "balance", "ratio"], [""]),
    "age": ["_seconds"],
    "seconds": ["_seconds_bucket", "_seconds_sum", "_seconds_count"],
}
INSTRUMENT = re.compile(r"^    \w+: [\w<>]+ = (\w+)\(\"([^\"]+)\"", re.M)
WORDS = {"and", "or", "unless", "by", "on", "ignoring", "without", "group_left", "group_right", "offset", "bool"}
GROUPING = re.compile(r"\b(by|on|ignoring|without|group_left|group_right)\s*\(([^)]*)\)")
MATCHERS = re.compile(r"\{([^{}]*)\}")
REMEDY = "take the name from crates/telemetry/src/metric.rs or names.rs, as `/metrics` shows it"


def underscores(name):
    return name.replace(".", "_")


def constants(text, module):
    """Names by their constants in a module of names.rs."""
    body = text.split(f"pub mod {module} {{")[1].split("\n}\n")[0]
    return dict(re.findall(r"pub const (\w+): &str =\s*\"([^\"]+)\";", body))


@functools.cache
def known_names():
    """Names of series, and names of labels, as Prometheus has them."""
    text = NAMES.read_text()
    metrics = set(FOREIGN_METRICS)
    for maker, name in INSTRUMENT.findall(INSTRUMENTS.read_text()):
        metrics.update(underscores(name) + suffix for suffix in SUFFIXES[maker])
    names = [*constants(text, "label").values(), *constants(text, "attr").values()]
    labels = {underscores(name) for name in names}
    return metrics, labels | FOREIGN_LABELS


def named(query):
    """(metrics, labels) that a query names."""
    labels = set()
    query = re.sub(r"\$__\w+|\$\w+", "1", query)
    for matchers in MATCHERS.findall(query):
        labels.update(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r"\"(?:\\.|[^\"\\])*\"", '""', matchers)))
    query = MATCHERS.sub(" ", query)
    for _, names in GROUPING.findall(query):
        labels.update(filter(None, re.split(r"[,\s]+", names)))
    query = re.sub(r"\"(?:\\.|[^\"\\])*\"|\[[^\]]*\]", " ", GROUPING.sub(" ", query))
    words = re.findall(r"(?<![\w:.])([a-zA-Z_:][\w:]*)(?!\s*\(|[\w:])", query)
    return {word for word in words if word not in WORDS}, labels


def check_query(place, query):
    """Every metric and label of a query exists."""
    metrics, labels = named(query)
    known_metrics, known_labels = known_names()
    refuse_unless(metrics, place, "names no metric", REMEDY)
    refuse_unless(metrics <= known_metrics, place, f"unknown metric {', '.join(metrics - known_metrics)}", REMEDY)
    refuse_unless(labels <= known_labels, place, f"unknown label {', '.join(labels - known_labels)}", REMEDY)


def page_of(alert):
    """The page of an alert: AiloopQueueOld has queue-old.md."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", alert.removeprefix("Ailoop")).lower() + ".md"


def alerts_of(rules):
    return [rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule]


def check_rules(rules):
    alerts = alerts_of(rules)
    names = [rule["alert"] for rule in alerts]
    refuse_unless(len(names) == len(set(names)), "rules.yaml", "two alerts have one name", "rename one of them")
    for rule in alerts:
        place, annotations = rule["alert"], rule.get("annotations", {})
        check_query(place, rule["expr"])
        severity = rule.get("labels", {}).get("severity")
        refuse_unless(severity in ("page", "ticket"), place, f"has the severity {severity}", "use page or ticket")
        for name in ("summary", "description", "runbook_url"):
            refuse_unless(annotations.get(name), place, f"has no {name}", "add it to its annotations")
        for name, text in annotations.items():
            check_labels(f"{place}, {name}", text)
        url = f"docs/runbook/{page_of(place)}"
        refuse_unless(
            annotations["runbook_url"] == url, place, f"its page is {annotations['runbook_url']}", f"name {url}"
        )
    for group in rules["groups"]:
        refuse_unless(group.get("interval"), group["name"], "has no interval", "say how often it is evaluated")


def check_labels(place, text):
    """Labels that a text of an alert shows exist."""
    unknown = set(re.findall(r"\$labels\.(\w+)", text)) - known_names()[1]
    refuse_unless(not unknown, place, f"unknown label {', '.join(unknown)}", REMEDY)


def check_pages(rules, directory=RUNBOOK):
    """Every alert has a page and a row in the list of pages, and no page is left over."""
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in alerts_of(rules)}
    pages = {path.name for path in directory.glob("*.md")} - {"README.md"}
    rows = dict(re.findall(r"^\| \[\w+\]\(([\w-]+\.md)\) \| (\w+) \|", (directory / "README.md").read_text(), re.M))
    for alert, severity in severities.items():
        page = page_of(alert)
        refuse_unless(page in pages, alert, f"has no page {page}", "write it in docs/runbook")
        title = (directory / page).read_text().splitlines()[0]
        refuse_unless(title == f"# {alert}", page, f"has the title {title}", f"write # {alert}")
        refuse_unless(
            rows.get(page) == severity, f"docs/runbook/README.md, {page}", f"says {rows.get(page)}", f"say {severity}"
        )
    for page in pages | set(rows):
        known = page in {page_of(alert) for alert in severities}
        refuse_unless(known, f"docs/runbook, {page}", "no alert has this page", "delete it, or add the alert")


def check_trials(rules, text=None):
    """`make lab NAME=alerts` has a trial for each alert."""
    text = TRIALS.read_text() if text is None else text
    trials = set(re.findall(r"^@trial\(\"(\w+)\"", text, re.M))
    for alert in {rule["alert"] for rule in alerts_of(rules)} ^ trials:
        refuse_unless(False, alert, "is not both an alert and a trial", "add what is missing to scripts/alerts/trials.py")


def queries_of(dashboard):
    """(panel, query) of a dashboard."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def check_dashboard(name, text):
    dashboard = json.loads(text)
    titles = [panel["title"] for panel in dashboard["panels"]]
    refuse_unless(len(titles) == len(set(titles)), name, "two panels have one title", "rename one of them")
    for title, query in queries_of(dashboard):
        check_query(f"{name}, {title}", query)
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$(?!__|labels)\{?(\w+)", text))
    remedy = "use one of VARIABLES in scripts/deploy_check/dashboards.py"
    refuse_unless(used <= variables, name, f"uses {', '.join(used - variables)}", remedy)
    host = re.search(r"https?://[^\"]+", text)
    remedy = "leave addresses to the one who installs it"
    refuse_unless(host is None, name, f"names the address {host and host[0]}", remedy)


def read_rules():
    return yaml.safe_load(RULES.read_text())


def check():
    """How many alerts and dashboards there are."""
    rules = read_rules()
    check_rules(rules)
    check_pages(rules)
    check_trials(rules)
    table = dashboards.read_table()
    for name, entry in table.items():
        check_dashboard(name, dashboards.text_of(entry))
    dashboards.check()
    return len(alerts_of(rules)), len(table)
