"""deploy/kubernetes/base: the chart, rendered for users of kustomize. `make lab NAME=manifests` writes it."""

import re

import yaml

from .paths import BASE, KUBERNETES
from .refused import Refused, refuse_unless
from .render import render_text

VALUES = KUBERNETES / "values.yaml"
HEADER = "# Rendered from deploy/helm/ailoop by `make lab NAME=manifests`: change the chart, or patch this in an overlay.\n"
# What people write in base/: everything else there is rendered.
BY_HAND = {"kustomization.yaml", "namespace.yaml"}


def rendered():
    """The text of each file, by name: one for each template."""
    files = {}
    for part in re.split(r"^---\n", render_text(files=[VALUES]), flags=re.M):
        source = re.match(r"\n*# Source: ailoop/templates/(\S+)\n", part)
        if source:
            body = "\n".join(line.rstrip() for line in part[source.end() :].strip().splitlines())
            files.setdefault(source[1], []).append(body)
    return {name: HEADER + join(parts) for name, parts in files.items() if any(map(yaml.safe_load, parts))}


def join(parts):
    """Documents of one file. Comments without a document belong to the first one."""
    comments = [part for part in parts if not yaml.safe_load(part)]
    documents = [part for part in parts if yaml.safe_load(part)]
    documents.sort(key=order)
    return "\n".join([*comments, ""] if comments else []) + "\n---\n".join(documents) + "\n"


def order(part):
    """As a person would write them: what a pod needs, the pods, then what leads to them; else as they are."""
    kinds = ["ConfigMap", "StatefulSet", "Deployment", "Job", "Service"]
    kind = yaml.safe_load(part)["kind"]
    return kinds.index(kind) if kind in kinds else len(kinds)


def write():
    files = rendered()
    for path in BASE.glob("*.yaml"):
        if path.name not in BY_HAND | set(files):
            path.unlink()
    for name, text in files.items():
        (BASE / name).write_text(text)
    return len(files)


def check(directory=BASE):
    files = rendered()
    remedy = "run `make lab NAME=manifests` and commit what it writes"
    there = {path.name for path in directory.glob("*.yaml")} - BY_HAND
    for name in sorted(there | set(files)):
        place = f"deploy/kubernetes/base/{name}"
        refuse_unless(name in there, place, "is missing", remedy)
        refuse_unless(name in files, place, "is not rendered by the chart", remedy)
        same = (directory / name).read_text() == files[name]
        refuse_unless(same, place, "differs from what the chart renders", remedy)
    listed = set(yaml.safe_load((directory / "kustomization.yaml").read_text())["resources"])
    missing = (there | {"namespace.yaml"}) - listed
    if missing:
        raise Refused(
            "deploy/kubernetes/base/kustomization.yaml", f"lacks {', '.join(sorted(missing))}", "add it to `resources`"
        )
    return len(files)
