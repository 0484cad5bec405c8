"""The crates that are compiled into the binary, as cargo resolves them for one target.

`cargo tree` answers this exactly: it knows which features are on and leaves build dependencies and procedural macros
out. `cargo metadata`, on which most SBOM tools are built, unites the features of the whole workspace and names more.
"""

import dataclasses
import json
import pathlib
import subprocess

from errors import Refused

PACKAGE = "ailoop"
# The separator is in no name, version or licence expression.
FORMAT = "{p}\t{l}\t{r}"


@dataclasses.dataclass(frozen=True)
class Crate:
    """A package at one version."""

    name: str
    version: str
    licence: str
    repository: str
    authors: tuple[str, ...]
    folder: pathlib.Path
    checksum: str

    @property
    def is_ours(self):
        """Whether it is of this workspace, and not from a registry."""
        return not self.checksum


def run(*command, cwd):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(f"{' '.join(command)} failed:\n{done.stderr.strip()}")
    return done.stdout


def tree(root, target):
    """(depth, name, version) of each line of the tree, in its order; a repeated subtree is not repeated."""
    lines = run(
        "cargo",
        "tree",
        "--locked",
        "--package",
        PACKAGE,
        "--edges",
        "normal,no-proc-macro",
        "--target",
        target,
        "--prefix",
        "depth",
        "--format",
        f"\t{FORMAT}",
        cwd=root,
    ).splitlines()
    for line in lines:
        depth, package, _licence, _rest = line.split("\t", 3)
        name, version, *_ = package.split()
        yield int(depth), name, version.removeprefix("v")


def checksums(root):
    """The checksum of each package of a registry in Cargo.lock, by name and version."""
    found = {}
    for block in (root / "Cargo.lock").read_text().split("[[package]]")[1:]:
        fields = dict(line.split(" = ", 1) for line in block.splitlines() if " = " in line and not line.startswith(" "))
        found[(json.loads(fields["name"]), json.loads(fields["version"]))] = json.loads(fields.get("checksum", '""'))
    return found


def read(root, target):
    """The crates in the binary by name and version, and for each the names and versions that it depends on."""
    metadata = json.loads(
        run("cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target, cwd=root)
    )
    packages = {(package["name"], package["version"]): package for package in metadata["packages"]}
    known = checksums(root)
    crates, uses, above = {}, {}, []
    for depth, name, version in tree(root, target):
        key = (name, version)
        package = packages[key]
        crates[key] = Crate(
            name,
            version,
            package["license"] or "",
            package["repository"] or "",
            tuple(package["authors"]),
            pathlib.Path(package["manifest_path"]).parent,
            known[key],
        )
        uses.setdefault(key, set())
        del above[depth:]
        if above:
            uses[above[-1]].add(key)
        above.append(key)
    if len(crates) < 100:
        raise Refused(f"cargo tree names {len(crates)} crates only: its output is not understood")
    return dict(sorted(crates.items())), uses
