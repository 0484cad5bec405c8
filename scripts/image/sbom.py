"""The bill of materials of the image: CycloneDX 1.6 as JSON, the same bytes for the same contents."""

import json
import uuid

# For the serial number, which is derived from the contents.
NAMESPACE = uuid.UUID("6f0d3f0e-7a0b-5f63-9b0c-2f3a51f4c9d1")


def purl(crate):
    return f"pkg:cargo/{crate.name}@{crate.version}"


def component(crate):
    made = {
        "type": "library",
        "bom-ref": purl(crate),
        "name": crate.name,
        "version": crate.version,
        "scope": "required",
        "licenses": [{"expression": expression(crate.licence)}],
        "purl": purl(crate),
    }
    if crate.checksum:
        made["hashes"] = [{"alg": "SHA-256", "content": crate.checksum}]
    if crate.repository:
        made["externalReferences"] = [{"type": "vcs", "url": crate.repository}]
    return made


def expression(licence):
    """An SPDX expression; old crates write `MIT/Apache-2.0`."""
    return licence.replace("/", " OR ")


def os_component(package):
    distribution = package.distribution.split("-")[0]
    name = f"pkg:deb/{distribution}/{package.name}@{package.version.replace('+', '%2B').replace(':', '%3A')}"
    name += f"?arch={package.architecture}&distro={package.distribution}"
    return {"type": "library", "bom-ref": name, "name": package.name, "version": package.version, "purl": name}


def write(crates, uses, packages, build):
    """The text. `build` is what `ailoop version --json` prints, or what of it is known."""
    by_key = {(crate.name, crate.version): crate for crate in crates}
    root = next(crate for crate in crates if crate.name == "ailoop")
    parts = [component(crate) for crate in crates if crate is not root] + [
        os_component(package) for package in packages
    ]
    dependencies = {purl(by_key[key]): sorted(purl(by_key[other]) for other in uses[key]) for key in sorted(uses)}
    dependencies[purl(root)] += [os_component(package)["bom-ref"] for package in packages]
    dependencies = [{"ref": reference, "dependsOn": below} for reference, below in dependencies.items()]
    properties = [
        {"name": f"ailoop:{name}", "value": str(build[name])}
        for name in ("commit", "rustc", "target", "profile")
        if build.get(name)
    ]
    metadata = {"component": {**component(root), "type": "application"}, "properties": properties}
    if build.get("commit_date"):
        metadata["timestamp"] = build["commit_date"]
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": metadata,
        "components": parts,
        "dependencies": dependencies,
    }
    serial = uuid.uuid5(NAMESPACE, json.dumps(bom, sort_keys=True))
    bom = {"$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "serialNumber": f"urn:uuid:{serial}", **bom}
    return json.dumps(bom, indent=1) + "\n"
