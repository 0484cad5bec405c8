"""Checks SBOMs against the schema of CycloneDX 1.6, strictly. Run by scripts/image.sh, which brings the library."""

import json
import pathlib
import sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

# Fewer components mean that something was left out.
COMPONENTS_MIN = 100


def mistakes(text):
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        return [str(error)]
    bom = json.loads(text)
    known = {component["bom-ref"] for component in [bom["metadata"]["component"], *bom["components"]]}
    found = [
        f"{reference} depends on {other}, which is no component"
        for dependency in bom["dependencies"]
        for reference in [dependency["ref"]]
        for other in [reference, *dependency["dependsOn"]]
        if other not in known
    ]
    if len(known) < COMPONENTS_MIN:
        found.append(f"{len(known)} components, expected {COMPONENTS_MIN} or more")
    return found


def main(paths):
    for path in paths:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        if found := mistakes(text):
            sys.exit(f"error: {path} is no valid SBOM:\n" + "\n".join(found[:10]))
        print(
            f"ok  {pathlib.Path(path).name}: valid CycloneDX 1.6 with {len(json.loads(text)['components'])} components"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
