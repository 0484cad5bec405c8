"""Files beside the manifests: those of the image, of ConfigMaps, and the base that is rendered from the chart."""

import re

import yaml

from .paths import CHART, DEPLOY, ROOT
from .refused import refuse_unless


def check_config_maps():
    """Every prompt and every file of the configuration goes into a ConfigMap of the overlays."""
    for directory, pattern in (("prompts", "**/*.md"), ("config", "**/*.yaml")):
        text = (ROOT / directory / "kustomization.yaml").read_text()
        for path in (ROOT / directory).glob(pattern):
            inside = path.relative_to(ROOT / directory).as_posix()
            known = inside == "kustomization.yaml" or inside in text
            refuse_unless(known, f"{directory}/kustomization.yaml", f"lacks {inside}", "add it to its configMapGenerator")


def check_dockerfile(text):
    for line in text.splitlines():
        if line.startswith("COPY ") and "--from=" not in line:
            for source in line.split()[1:-1]:
                there = (ROOT / source).exists()
                refuse_unless(there, "deploy/Dockerfile", f"copies {source}, which is not there", "correct the path")


def check_dockerfiles():
    check_dockerfile((DEPLOY / "Dockerfile").read_text())


def leaves(values, before=()):
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*before, key))
        yield (*before, key)


def check_values(text=None):
    """Each key of values.yaml is documented by a comment: its own, or that of the list above it."""
    text = text or (CHART / "values.yaml").read_text()
    lines = text.splitlines()
    for section in yaml.safe_load(text):
        at = next(i for i, line in enumerate(lines) if re.match(rf"{section}:", line))
        block = lines[at : next((i for i in range(at + 1, len(lines)) if re.match(r"\w", lines[i])), len(lines))]
        before = next((line for line in reversed(lines[:at]) if line), "")
        has = before.startswith("#") or any("#" in line for line in block) or section in ("fullnameOverride",)
        refuse_unless(has or len(block) == 2, f"values.yaml, {section}", "has no comment", "say what it is for")
