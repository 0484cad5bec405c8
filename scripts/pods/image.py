"""Root filesystems of the images that manifests name, made from what is on this machine."""

import dataclasses
import json
import pathlib
import re
import shutil
import subprocess
import sys
import threading

from .manifests import Refused

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclasses.dataclass
class Image:
    """A directory with the files of an image, and what its configuration says."""

    root: pathlib.Path
    entrypoint: list
    command: list = dataclasses.field(default_factory=list)
    env: dict = dataclasses.field(default_factory=dict)
    user: str = "0"
    workdir: str = "/"

    def home(self, uid):
        """The home directory of a user, by the image's /etc/passwd as a container runtime finds it."""
        passwd = self.root / "etc/passwd"
        users = [line.split(":") for line in passwd.read_text().splitlines()] if passwd.exists() else []
        return next((user[5] for user in users if user[2] == str(uid)), "/")


def _empty_root(root):
    for directory in ("usr/bin", "usr/local/bin", "etc", "lib", "home/nonroot", "root", "var/run", "proc", "sys", "dev"):
        (root / directory).mkdir(parents=True, exist_ok=True)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n")
    (root / "etc/group").write_text("root:x:0:\nnonroot:x:65532:\n")
    (root / "etc/nsswitch.conf").write_text("hosts: files dns\n")


def _copy(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def _copy_libraries(root, program):
    for library in re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", program], capture_output=True, text=True).stdout):
        _copy(library, root / library.lstrip("/"))


def shell(root, programs=("sh", "cat", "id", "ls", "sleep", "touch", "grep", "hostname")):
    """An image with a shell and some programs of this machine, for trials."""
    _empty_root(root)
    for program in programs:
        path = shutil.which(program)
        _copy(path, root / "usr/bin" / program)
        _copy_libraries(root, path)
    (root / "bin").symlink_to("usr/bin")
    return Image(root, ["sh", "-c"])


def final_stage(dockerfile):
    """ENTRYPOINT, CMD, USER, ENV and WORKDIR of the last stage."""
    lines = re.sub(r"\\\n", " ", dockerfile).splitlines()
    stage = lines[max(index for index, line in enumerate(lines) if line.startswith("FROM ")):]
    found = {"entrypoint": [], "command": [], "env": {}, "user": "0", "workdir": "/"}
    for line in stage:
        instruction, _, rest = line.strip().partition(" ")
        if instruction in ("ENTRYPOINT", "CMD"):
            found["entrypoint" if instruction == "ENTRYPOINT" else "command"] = json.loads(rest)
        elif instruction == "ENV":
            found["env"] |= dict(re.findall(r'(\w+)="?([^"\s]*)"?', rest))
        elif instruction in ("USER", "WORKDIR"):
            found[instruction.lower()] = rest.strip()
    return found


def ailoop(root, binary):
    """The files that `make image` and deploy/Dockerfile put into the image, with the binary of this run."""
    debug = root.with_suffix(".debug")
    command = [sys.executable, str(ROOT / "scripts/image"), "root", "--binary", str(binary), "--out", str(root), "--debug", str(debug)]
    done = subprocess.run(command, capture_output=True, text=True)
    debug.unlink(missing_ok=True)
    if done.returncode:
        raise Refused(f"the image of ailoop cannot be made: {done.stderr.strip()}")
    return Image(root, **final_stage((ROOT / "deploy/Dockerfile").read_text()))


def nats(root, binary):
    """nats-server alone: the image on Docker Hub also has a shell, which no manifest of ours uses."""
    _empty_root(root)
    _copy(binary, root / "usr/local/bin/nats-server")
    return Image(root, ["/usr/local/bin/nats-server"])


def directory(path):
    """A root filesystem of your own; its file `image.json` may have entrypoint, command, env, user and workdir."""
    described = path / "image.json"
    configuration = json.loads(described.read_text()) if described.exists() else {"entrypoint": []}
    return Image(path, **configuration)


class Images:
    """The image of each name in the manifests, by the last part of its repository."""

    def __init__(self, scratch, ailoop_binary, nats_binary, directories=None):
        self._scratch, self._made, self._lock = scratch, {}, threading.Lock()
        self._make = {"ailoop": lambda root: ailoop(root, ailoop_binary), "nats": lambda root: nats(root, nats_binary)}
        self._make["shell"] = shell
        self._make |= {name: lambda _, path=path: directory(pathlib.Path(path)) for name, path in (directories or {}).items()}

    @staticmethod
    def repository(name):
        return re.sub(r"(@.*|:[^/]*)$", "", name).rsplit("/", 1)[-1]

    def check(self, name):
        if self.repository(name) not in self._make:
            raise Refused(f"there is no root filesystem for the image {name}: give one by --image {self.repository(name)}=DIRECTORY")

    def get(self, name):
        self.check(name)
        repository = self.repository(name)
        with self._lock:
            if repository not in self._made:
                root = self._scratch / repository
                root.mkdir(parents=True, exist_ok=True)  # an attempt may have failed
                self._made[repository] = self._make[repository](root)
            return self._made[repository]
