"""deploy/monitoring/dashboards: for Grafana, from dashboards.yaml. `make lab NAME=manifests` writes them."""

import json
import string

import yaml

from .paths import DEPLOY
from .refused import refuse_unless

TABLE = DEPLOY / "monitoring/dashboards.yaml"
DIRECTORY = DEPLOY / "monitoring/dashboards"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Of Grafana's grid, which has 24 columns.
WIDTH, HEIGHT = 24, 8
NAMESPACES = "label_values(ailoop_build_info, namespace)"
VARIABLES = [
    {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
    {
        "name": "namespace",
        "label": "Namespace",
        "type": "query",
        "datasource": SOURCE,
        "definition": NAMESPACES,
        "query": {"query": NAMESPACES, "refId": "namespace"},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    },
]


def place(width, height, left, top):
    return {"h": height, "w": width, "x": left, "y": top}


def graph(panel, position):
    targets = [
        {"refId": letter, "datasource": SOURCE, "expr": query, "legendFormat": legend}
        for letter, (legend, query) in zip(string.ascii_uppercase, panel["queries"].items(), strict=False)
    ]
    return {
        "type": "timeseries",
        "title": panel["title"],
        "description": panel.get("description", ""),
        "datasource": SOURCE,
        "gridPos": position,
        "fieldConfig": {"defaults": {"unit": panel["unit"], "min": 0}, "overrides": []},
        "targets": targets,
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
    }


def panels_of(rows):
    """Each row is a heading of one line and its panels below, in as many columns as leave no gap."""
    top = 0
    for title, panels in rows.items():
        heading = place(WIDTH, 1, 0, top)
        yield {"type": "row", "title": title, "collapsed": False, "gridPos": heading, "panels": []}
        top += 1
        columns = 2 if len(panels) % 3 else 3
        width = WIDTH // columns
        for number, panel in enumerate(panels):
            line, column = divmod(number, columns)
            yield graph(panel, place(width, HEIGHT, column * width, top + line * HEIGHT))
        top += -(-len(panels) // columns) * HEIGHT


def dashboard(entry):
    return {
        "uid": entry["uid"],
        "title": entry["title"],
        "description": entry["description"],
        "tags": ["ailoop"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "",
        "templating": {"list": VARIABLES},
        "annotations": {"list": []},
        "links": [],
        "panels": [{"id": number, **panel} for number, panel in enumerate(panels_of(entry["rows"]), start=1)],
    }


def text_of(entry):
    return json.dumps(dashboard(entry), indent=2, ensure_ascii=False) + "\n"


def read_table():
    return yaml.safe_load(TABLE.read_text())


def rendered():
    """The text of each file, by name."""
    return {f"{name}.json": text_of(entry) for name, entry in read_table().items()}


def write():
    files = rendered()
    for path in DIRECTORY.glob("*.json"):
        if path.name not in files:
            path.unlink()
    for name, text in files.items():
        (DIRECTORY / name).write_text(text)
    return len(files)


def check(directory=DIRECTORY):
    files = rendered()
    there = {path.name: path.read_text() for path in directory.glob("*.json")}
    for name in sorted(set(there) | set(files)):
        same = there.get(name) == files.get(name)
        remedy = "run `make lab NAME=manifests` and commit what it writes"
        refuse_unless(same, f"{directory.name}/{name}", f"is not what {TABLE.name} gives", remedy)
