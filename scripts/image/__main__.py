"""Builds the container image of ailoop without Docker, checks it, and joins images of several platforms.

Run by scripts/image.sh, which builds the binary first.
"""

import argparse
import datetime
import hashlib
import os
import pathlib
import shutil
import sys
import tempfile

import labels
import oci
import root
import run
from errors import Refused

# Of all files together, uncompressed. The image has 38 MB today, of which 25 MB are the code of the binary.
SIZE_MAX = 40_000_000


def assemble(binary, folder, debug):
    """Writes the root of the image, and the debugging data beside it. Returns what the binary says of itself."""
    debug.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        stripped = pathlib.Path(scratch) / "ailoop"
        root.strip(binary, stripped, debug)
        root.write(root.files(stripped), folder)
    return root.built(folder / root.BINARY)


def size_of(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def image_of(build, tag):
    created = build["commit_date"] or "1970-01-01"
    time = datetime.datetime.fromisoformat(created.removesuffix("Z")).replace(tzinfo=datetime.timezone.utc)
    return {
        "architecture": root.architecture(build["target"]),
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "seconds": int(time.timestamp()),
        "user": root.USER,
        "entrypoint": root.ENTRYPOINT,
        "labels": labels.labels(build, os.environ.get("AILOOP_SOURCE", "")),
        "tag": tag,
    }


def checksums(out):
    """SHA256SUMS of the files that people download."""
    files = sorted(path for path in out.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (out / "SHA256SUMS").write_text("".join(lines))


def build_image(arguments):
    out = arguments.out
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / "root"
        debug = pathlib.Path(scratch) / "debug"
        build = assemble(arguments.binary, folder, debug)
        size = size_of(folder)
        if size > arguments.size_max:
            raise Refused(f"the image has {size} bytes, {arguments.size_max} are allowed")
        image = image_of(build, arguments.tag)
        name = f"ailoop-{build['version']}-{image['architecture']}"
        layout = oci.Layout(out / "oci")
        descriptor = oci.write(folder, layout, image)
        tags = sorted({arguments.tag, f"ailoop:{build['version']}"})
        oci.archive(layout, descriptor, tags, out / f"{name}.tar")
        shutil.move(debug, out / f"{name}.debug")
        for document in ("sbom.cdx.json", "THIRD_PARTY.txt"):
            shutil.copy(folder / root.DOCUMENTS / document, out / f"{name}.{document}")
    checksums(out)
    packed = layout.layers_size(descriptor)
    print(f"{arguments.tag} {descriptor['digest']}: {size / 1e6:.1f} MB, {packed / 1e6:.1f} MB compressed, in {out}")


def check_image(arguments):
    with tempfile.TemporaryDirectory() as scratch:
        # User 65532 must be able to enter it.
        os.chmod(scratch, 0o755)
        folder = pathlib.Path(scratch) / "root"
        config = oci.unpack(oci.Layout(arguments.layout), folder)
        for line in run.check(folder, config):
            print(f"ok  {line}")


def join_images(arguments):
    if arguments.out.exists():
        shutil.rmtree(arguments.out)
    joined = oci.Layout(arguments.out)
    descriptor = oci.join([oci.Layout(layout) for layout in arguments.layouts], joined)
    print(f"{descriptor['digest']}: {len(arguments.layouts)} platforms in {arguments.out}")


def write_root(arguments):
    assemble(arguments.binary, arguments.out, arguments.debug)


def strip_binary(arguments):
    root.strip(arguments.binary, arguments.out, arguments.debug)


def write_documents(arguments):
    # The command that runs this program has the libraries that every program here has.
    paths = root.libraries.needed(shutil.which("true"))
    build = {"target": arguments.target}
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, text in root.documents(arguments.target, build, paths).items():
        (arguments.out / name).write_text(text, encoding="utf-8")
        print(f"{arguments.out / name}: {len(text.encode())} bytes")


def parse():
    parser = argparse.ArgumentParser(prog="image", description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(required=True)

    build = commands.add_parser(
        "build", help="write an OCI layout, an archive for docker load, debugging data and documents"
    )
    build.add_argument("--binary", type=pathlib.Path, required=True)
    build.add_argument("--out", type=pathlib.Path, required=True, help="folder that is replaced")
    build.add_argument("--tag", default="ailoop:dev")
    build.add_argument("--size-max", type=int, default=SIZE_MAX, help="bytes of all files, uncompressed")
    build.set_defaults(run=build_image)

    folder = commands.add_parser("root", help="write the files of the image into a folder, for deploy/Dockerfile")
    folder.add_argument("--binary", type=pathlib.Path, required=True)
    folder.add_argument("--out", type=pathlib.Path, required=True)
    folder.add_argument("--debug", type=pathlib.Path, required=True)
    folder.set_defaults(run=write_root)

    stripped = commands.add_parser("strip", help="write the binary without debugging data, and the data beside it")
    stripped.add_argument("--binary", type=pathlib.Path, required=True)
    stripped.add_argument("--out", type=pathlib.Path, required=True)
    stripped.add_argument("--debug", type=pathlib.Path, required=True)
    stripped.set_defaults(run=strip_binary)

    check = commands.add_parser("check", help="run the image of a layout, as root, beside a nats-server")
    check.add_argument("layout", type=pathlib.Path)
    check.set_defaults(run=check_image)

    join = commands.add_parser("join", help="join layouts of several platforms into one")
    join.add_argument("layouts", type=pathlib.Path, nargs="+")
    join.add_argument("--out", type=pathlib.Path, required=True)
    join.set_defaults(run=join_images)

    documents = commands.add_parser("documents", help="write SBOM and notices without a binary, to check them")
    documents.add_argument("--target", required=True)
    documents.add_argument("--out", type=pathlib.Path, required=True)
    documents.set_defaults(run=write_documents)
    return parser.parse_args()


if __name__ == "__main__":
    parsed = parse()
    try:
        parsed.run(parsed)
    except Refused as refused:
        sys.exit(f"error: {refused}")
