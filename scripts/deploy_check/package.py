"""The packaged chart: it has the files that the repository links into it, and takes rules and dashboards."""

import json
import pathlib
import shutil
import tempfile

import yaml

from . import schemas
from .paths import CHART
from .refused import refuse_unless
from .render import documents_of, helm, render_text
from .workloads import of_kind

PAGE = "docs/runbook/dead-letters.md"
RULE = {
    "alert": "AiloopDeadLetters",
    "expr": "increase(ailoop_dead_letters_total[5m]) > 0",
    "for": "1m",
    "annotations": {"runbook_url": PAGE},
}
BASE_URL = "https://git.example.org/ailoop/blob/main/"
# Files as deploy/monitoring may have them. The last one has no rules, and is not for Prometheus.
SAMPLES = {
    "alerts.yaml": yaml.safe_dump({"groups": [{"name": "ailoop", "rules": [RULE]}]}),
    "slo/objectives.yaml": yaml.safe_dump({"spec": {"groups": [{"name": "slo", "rules": [RULE]}]}}),
    "fleet.json": json.dumps({"title": "Fleet", "panels": [{"legendFormat": "{{component}}"}]}),
    "collector.yaml": yaml.safe_dump({"receivers": {"otlp": {}}}),
}


def check():
    with tempfile.TemporaryDirectory() as scratch:
        code, out, error = helm("package", "--destination", scratch)
        refuse_unless(code == 0, "helm package", error, "correct the file that it names")
        archive = next(pathlib.Path(scratch).glob("*.tgz"))
        same = by_name(render_text(chart=archive)) == by_name(render_text())
        remedy = "see .helmignore and the links below files/"
        refuse_unless(same, "the packaged chart", "renders something else than the directory", remedy)
        check_monitoring(pathlib.Path(shutil.copytree(CHART, pathlib.Path(scratch) / "chart")))


def by_name(text):
    return {(d["kind"], d["metadata"]["name"]): d for d in documents_of(text)}


def check_monitoring(chart):
    """Rules and dashboards become objects, whatever they are called; other files do not."""
    place = "the chart's monitoring.yaml"
    directory = chart / "files/monitoring"
    shutil.rmtree(directory)
    for name, text in SAMPLES.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    values = {"monitoring": {"rules": {"enabled": True, "runbookBase": BASE_URL}, "dashboards": {"enabled": True}}}
    documents = documents_of(render_text(values, chart=chart))
    schemas.check(documents)
    rules = sorted(d["metadata"]["name"] for d in of_kind(documents, "PrometheusRule"))
    remedy = "read every file of files/monitoring that has groups of rules"
    refuse_unless(rules == ["ailoop-alerts", "ailoop-objectives"], place, f"renders the rules {rules}", remedy)
    pages = {
        rule["annotations"]["runbook_url"]
        for document in of_kind(documents, "PrometheusRule")
        for group in document["spec"]["groups"]
        for rule in group["rules"]
    }
    refuse_unless(pages == {BASE_URL + PAGE}, place, f"names the pages {pages}", "put runbookBase before their paths")
    boards = [d for d in of_kind(documents, "ConfigMap") if "grafana_dashboard" in d["metadata"]["labels"]]
    texts = [text.strip() for board in boards for text in board["data"].values()]
    refuse_unless(
        texts == [SAMPLES["fleet.json"]], place, f"renders the dashboards {texts}", "keep their text as it is"
    )
