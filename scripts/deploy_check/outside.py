"""An overlay in a repository of one's own: its agents.yaml replaces the shipped one, and the pods roll."""

import os
import pathlib
import tempfile

import yaml

from .paths import OVERLAYS
from .refused import refuse_unless
from .render import render_overlay
from .workloads import named, workloads

AGENTS = "agents: {mine: {description: My agent.}}\n"
NAMESPACE = "agents"


def kustomization(directory, overlay):
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": NAMESPACE,
        "resources": [os.path.relpath(overlay, directory)],
        "configMapGenerator": [
            {"name": "ailoop-config", "namespace": "ailoop", "behavior": "merge", "files": ["agents.yaml"]}
        ],
    }


def config_of(documents):
    """(name, data) of the ConfigMap of the configuration."""
    maps = named(documents, "ConfigMap")
    name = next(name for name in maps if name.startswith("ailoop-config"))
    return name, maps[name]["data"]


def check(overlay=OVERLAYS / "prod"):
    with tempfile.TemporaryDirectory() as scratch:
        # kustomize resolves links, and so must the relative path.
        directory = pathlib.Path(scratch).resolve()
        (directory / "agents.yaml").write_text(AGENTS)
        (directory / "kustomization.yaml").write_text(yaml.safe_dump(kustomization(directory, overlay)))
        mine = render_overlay(directory)
    (own, data), (shipped, before) = config_of(mine), config_of(render_overlay(overlay))
    place, remedy = (
        "an overlay of one's own",
        "generate the ConfigMap with kustomize, as config/kustomization.yaml does",
    )
    refuse_unless(data["agents.yaml"] == AGENTS, place, "does not replace agents.yaml", remedy)
    kept = {file: text for file, text in data.items() if file != "agents.yaml"}
    same = kept == {file: text for file, text in before.items() if file != "agents.yaml"}
    refuse_unless(same, place, "loses the other files", remedy)
    refuse_unless(own != shipped, place, "does not change the ConfigMap's name, so no pod rolls", remedy)
    for document, template in workloads(mine):
        volumes = [v["configMap"]["name"] for v in template["spec"]["volumes"] if v["name"] == "config"]
        used = document["kind"] == "StatefulSet" or volumes == [own]
        refuse_unless(used, f"{place}, {document['metadata']['name']}", f"uses {volumes}", remedy)
        moved = document["metadata"]["namespace"] == NAMESPACE
        refuse_unless(moved, f"{place}, {document['metadata']['name']}", "is in another namespace", remedy)
