"""Renders the chart and the overlays."""

import json
import re

import yaml

from .paths import CHART, run, tool
from .refused import Refused

NAMESPACE = RELEASE = "ailoop"
# Not of the chart: helm says that files of the repository are linked into it.
NOISE = re.compile(r"^level=INFO msg=\"found symbolic link.*\n?", re.M)


def documents_of(text):
    """Documents by the loader of libyaml, which is ten times as fast."""
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


def helm(verb, *arguments, values=None, files=(), chart=CHART):
    """(exit code, stdout, what went wrong). `values` is a mapping as in values.yaml."""
    command = [tool("helm"), verb, *arguments, chart]
    for file in files:
        command += ["--values", file]
    if values is not None:
        command += ["--values", "-"]
    code, out, error = run(*command, text=None if values is None else json.dumps(values))
    return code, out, NOISE.sub("", error).strip()


def render_text(values=None, files=(), is_upgrade=False, chart=CHART):
    options = ["--namespace", NAMESPACE] + (["--is-upgrade"] if is_upgrade else [])
    code, out, error = helm("template", RELEASE, *options, values=values, files=files, chart=chart)
    if code != 0:
        problem = error.removesuffix("Use --debug flag to render out invalid YAML").strip()
        raise Refused("the chart's values", problem, "correct the value that it names; values.yaml describes each")
    return out


def render_chart(values=None, files=(), is_upgrade=False):
    return documents_of(render_text(values, files, is_upgrade))


def render_overlay(directory):
    code, out, error = run(tool("kubectl"), "kustomize", directory)
    if code != 0:
        raise Refused(directory.name, f"is not rendered: {error.strip()}", "correct the file that it names")
    return documents_of(out)


def lint(values=None, files=()):
    code, out, error = helm("lint", "--strict", values=values, files=files)
    if code != 0:
        raise Refused("helm lint", f"{out.strip()}\n{error}", "correct the template or value that it names")
