"""The overlays and the chart's values files of the same name deploy the same thing."""

import copy
import re

from .refused import name_of, refuse_unless

# kustomize adds a hash of the content to the names of generated ConfigMaps.
HASH = re.compile(r"-[a-z0-9]{10}$")
LABELS = ("app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart")


def check(place, overlay, chart):
    ours, theirs = normalise(overlay), normalise(chart)
    skipped = {"Namespace/ailoop"}
    remedy = "change the overlay's patch or the chart's values, so that both ways deploy the same"
    for name in sorted((set(ours) | set(theirs)) - skipped):
        refuse_unless(name in ours, f"{place}, {name}", "is in the chart and not in the overlay", remedy)
        refuse_unless(name in theirs, f"{place}, {name}", "is in the overlay and not in the chart", remedy)
        for path, one, other in differences(theirs[name], ours[name]):
            refuse_unless(False, f"{place}, {name} at {path}", f"the chart has {one!r}, the overlay {other!r}", remedy)


def normalise(documents):
    found = {}
    for document in copy.deepcopy(documents):
        # Of the release; the smoke test belongs to `helm test`.
        if "smoke-test" in str(document["metadata"]["name"]):
            continue
        generated = document["kind"] == "ConfigMap"
        clean(document)
        if generated:
            document["metadata"].pop("labels", None)
        found[name_of(document)] = document
    return found


def clean(node):
    """Removes what kustomize and Helm do each in their way: hashes, labels, namespaces, the order of lists of names."""
    if isinstance(node, dict):
        node.pop("namespace", None)
        for key in ("labels", "annotations"):
            if isinstance(node.get(key), dict):
                for label in [*LABELS, "checksum/config"]:
                    node[key].pop(label, None)
        for key, value in list(node.items()):
            if key == "name" and isinstance(value, str):
                node[key] = HASH.sub("", value)
            if key == "except" and not value:
                node.pop(key)
            clean(value)
    elif isinstance(node, list):
        for item in node:
            clean(item)
        # Patches add to the end of such lists.
        if node and all(isinstance(item, dict) and "name" in item for item in node):
            node.sort(key=lambda item: item["name"])
        elif node and all(isinstance(item, dict) and "topologyKey" in item for item in node):
            node.sort(key=lambda item: item["topologyKey"])


def differences(one, other, path=""):
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(set(one) | set(other)):
            yield from differences(one.get(key), other.get(key), f"{path}.{key}".strip("."))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{path}[{index}]")
    elif one != other:
        yield path, one, other
