"""Runs every query of the shipped dashboards."""

import json
import time

from .errors import Failed
from .fleet import ROOT

DASHBOARDS = ROOT / "deploy/monitoring/dashboards"
# What Grafana puts in place of its variables.
VARIABLES = {"$__rate_interval": "15s", "$namespace": ".*"}
# Panels without data on a healthy fleet, with the reason, and what makes data in the trials.
ONLY_AFTER = {
    "firing alerts": "no alert fires on a healthy fleet; every trial",
    "turns that failed": "the series begins with the first failed turn; the trial of AiloopTurnErrors",
    "refused and closed connections": "the series begins with the first refusal; the trial of AiloopEdgeConnectionsRefused",
    "open circuit breakers": "the series begins with the first open circuit; the trial of AiloopModelBreakerOpen",
    "unknown outcomes": "the series begins with the first unknown outcome; the trial of AiloopToolOutcomeUnknown",
    "broken configuration": "the series begins with the first broken file; the trial of AiloopConfigBroken",
}


def queries():
    """(panel, query) of each panel."""
    for path in sorted(DASHBOARDS.glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                query = target["expr"]
                for variable, value in VARIABLES.items():
                    query = query.replace(variable, value)
                yield panel["title"], query


def has_data(series):
    """Whether a series has a number; a quotient of two zeros is none."""
    values = [value for found in series for _, value in found.get("values", [found.get("value")])]
    return any(value != "NaN" for value in values)


def empty(prometheus, began):
    """Panels and queries without data between two times."""
    ended = time.time()
    return [
        (title, query)
        for title, query in queries()
        if not has_data(prometheus.query_range(query, began, ended, max(1, (ended - began) / 500)))
    ]


def check_healthy(prometheus, began):
    """On a healthy fleet under load, each query has data, except those of failures. Gives how many have."""
    without = empty(prometheus, began)
    unexpected = [f"{title}: {query}" for title, query in without if title not in ONLY_AFTER]
    if unexpected:
        raise Failed("queries of dashboards without data under load:\n  " + "\n  ".join(unexpected))
    return len(list(queries())) - len(without), sorted({title for title, _ in without})


def check_after_trials(prometheus, began):
    without = empty(prometheus, began)
    if without:
        raise Failed("queries of dashboards without data after all trials:\n  " + "\n  ".join(map(": ".join, without)))
