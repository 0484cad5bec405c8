"""The files of the image, in one list: `make image` packs what this module writes, and deploy/Dockerfile copies it."""

import dataclasses
import json
import pathlib
import platform
import shutil
import subprocess

import crates
import libraries
import notices
import sbom
from errors import Refused

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
BINARY = "usr/bin/ailoop"
DOCUMENTS = "usr/share/doc/ailoop"
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
USER = "65532:65532"
ENTRYPOINT = [f"/{BINARY}"]
PASSWD = "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"
GROUP = "root:x:0:\nnonroot:x:65532:\n"
# Without it glibc asks DNS before /etc/hosts. Both sources are in libc.so itself.
NSSWITCH = "passwd: files\ngroup: files\nhosts: files dns\n"
# Where Kubernetes and Docker mount; a root that is read-only must have them.
FOLDERS = {"tmp": 0o1777, "proc": 0o755, "sys": 0o755, "dev": 0o755}


@dataclasses.dataclass(frozen=True)
class File:
    """A file of the image: its path there, its mode, and what is in it."""

    path: str
    contents: str | pathlib.Path
    mode: int = 0o644


def built(binary):
    """What `ailoop version --json` prints."""
    done = subprocess.run([str(binary), "version", "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(f"{binary} version --json failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def documents(target, build, paths):
    """SBOM and notices. `paths` are the files of the operating system in the image."""
    found, uses = crates.read(REPOSITORY, target)
    packages = libraries.packages(paths)
    strangers = [crate for crate in found.values() if not crate.is_ours]
    apache = (REPOSITORY / "LICENSE").read_text()
    return {
        "sbom.cdx.json": sbom.write(list(found.values()), uses, packages, build),
        "THIRD_PARTY.txt": notices.write(strangers, packages, apache),
    }


def rust_library():
    """The notices of Rust's standard library, which its toolchain brings."""
    sysroot = crates.run("rustc", "--print", "sysroot", cwd=REPOSITORY).strip()
    page = pathlib.Path(sysroot) / "share/doc/rust/COPYRIGHT-library.html"
    if not page.is_file():
        raise Refused(f"{page} is missing: rustup component add rustc")
    return page


def files(binary):
    """Every file of the image. `binary` is the one that goes in, already stripped."""
    build = built(binary)
    needed = libraries.needed(binary)
    listed = [
        File(BINARY, binary, 0o755),
        *(File(path.lstrip("/"), pathlib.Path(path).resolve(), 0o755) for path in needed),
        File("etc/group", GROUP),
        File("etc/nsswitch.conf", NSSWITCH),
        File("etc/passwd", PASSWD),
        File(CERTIFICATES, libraries.certificates()),
        File(f"{DOCUMENTS}/LICENSE", REPOSITORY / "LICENSE"),
        File(f"{DOCUMENTS}/rust-library.html", rust_library()),
    ]
    listed += [File(f"{DOCUMENTS}/{name}", text) for name, text in documents(build["target"], build, needed).items()]
    return sorted(listed, key=lambda file: file.path)


def strip(binary, stripped, debug):
    """Splits a binary: what runs, and what a debugger needs beside it, found by its build id."""
    headers = libraries.output("readelf", "--notes", "--wide", str(binary))
    if "Build ID" not in headers:
        raise Refused(f"{binary} has no build id: does crates/ailoop/build.rs still ask the linker for one?")
    libraries.output("objcopy", "--only-keep-debug", "--compress-debug-sections=zlib", str(binary), str(debug))
    libraries.output("strip", "--strip-all", "-o", str(stripped), str(binary))


def write(listed, folder):
    """Writes the files into an empty folder."""
    if folder.exists():
        shutil.rmtree(folder)
    for path, mode in FOLDERS.items():
        (folder / path).mkdir(parents=True)
        (folder / path).chmod(mode)
    for file in listed:
        target = folder / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(file.contents, pathlib.Path):
            shutil.copyfile(file.contents, target)
        else:
            target.write_text(file.contents, encoding="utf-8")
        target.chmod(file.mode)


def architecture(target):
    """The name that OCI has for the processor of a target."""
    names = {"x86_64": "amd64", "aarch64": "arm64"}
    processor = target.split("-")[0]
    if processor not in names or not target.endswith("-linux-gnu"):
        raise Refused(f"no image is built for {target}, only for {' and '.join(names)} with Linux and glibc")
    if processor != platform.machine():
        raise Refused(f"the binary is for {processor}, but the libraries of this machine are for {platform.machine()}")
    return names[processor]
