"""Files beside the manifests: those of images and of ConfigMaps."""

import re

import yaml

from .paths import CHART, DEPLOY, ROOT
from .refused import refuse_unless
from .workloads import of_kind


def check_config_maps():
    """Every prompt and every file of the configuration goes into a ConfigMap of the overlays."""
    for directory, pattern in (("prompts", "**/*.md"), ("config", "**/*.yaml")):
        text = (ROOT / directory / "kustomization.yaml").read_text()
        for path in (ROOT / directory).glob(pattern):
            inside = path.relative_to(ROOT / directory).as_posix()
            known = inside == "kustomization.yaml" or inside in text
            refuse_unless(
                known, f"{directory}/kustomization.yaml", f"lacks {inside}", "add it to its configMapGenerator"
            )


def check_dockerfile(text, context=ROOT):
    for line in text.splitlines():
        if line.startswith("COPY ") and "--from=" not in line:
            for source in line.split()[1:-1]:
                there = (context / source).exists()
                refuse_unless(
                    there, f"a Dockerfile of {context.name}", f"copies {source}, which is not there", "correct the path"
                )


def check_dockerfiles():
    check_dockerfile((DEPLOY / "Dockerfile").read_text())
    tool = ROOT / "examples/tools/python"
    check_dockerfile((tool / "Dockerfile").read_text(), tool)


def check_nats_values(documents, text=None):
    """The values for the chart of NATS have the settings of our own nats-servers."""
    values = yaml.safe_load(text or (DEPLOY / "helm/nats-values.yaml").read_text())["config"]
    theirs = {key: str(value).strip("<> ") for key, value in values["merge"].items() if not key.startswith("$")}
    theirs |= values["jetstream"]["merge"]
    configuration = next(d["data"] for d in of_kind(documents, "ConfigMap") if "server.conf" in d["data"])[
        "server.conf"
    ]
    remedy = "use the same in deploy/helm/nats-values.yaml and in the chart's nats.yaml"
    for key, value in theirs.items():
        ours = re.search(rf"^\s*{key}: \"?([^\"\n]+)\"?$", configuration, re.M)
        problem = f"{key} is {value}, and {ours and ours[1]} in server.conf"
        refuse_unless(ours and ours[1] == value, "deploy/helm/nats-values.yaml", problem, remedy)
