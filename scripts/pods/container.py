"""One run of a container, by runc: namespaces, pivot_root, capabilities and limits as the manifest says.

runc is what containerd uses on a node, so that none of this is written again here.
"""

import json
import os
import pathlib
import signal
import subprocess
import time

from . import manifests
from .image import PATH
from .manifests import Refused

DEFAULT_CAPABILITIES = [
    "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID", "CAP_SETUID",
    "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE",
]
MASKED = ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug", "/sys/firmware"]
READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]


def memory_controller():
    """Whether this machine can limit memory: by cgroup v2, or by the older hierarchy."""
    unified = pathlib.Path("/sys/fs/cgroup/cgroup.controllers")
    if unified.exists():
        return "memory" in unified.read_text().split() and os.access("/sys/fs/cgroup", os.W_OK)
    return os.access("/sys/fs/cgroup/memory", os.W_OK)


def identity(spec, container, image):
    """(uid, gid, groups) of a container; a root that the manifest forbids is refused as the kubelet does."""
    pod, own = spec.get("securityContext", {}), container.get("securityContext", {})
    image_uid, _, image_gid = image.user.partition(":")
    uid = own.get("runAsUser", pod.get("runAsUser", image_uid))
    gid = own.get("runAsGroup", pod.get("runAsGroup", image_gid or 0))
    if not str(uid).isdigit() or not str(gid).isdigit():
        raise Refused(f"container {container['name']}: the user {uid}:{gid} of its image must be numbers")
    if own.get("runAsNonRoot", pod.get("runAsNonRoot")) and int(uid) == 0:
        raise manifests.Missing(f"container {container['name']} has runAsNonRoot and image will run as root")
    groups = pod.get("supplementalGroups", []) + ([pod["fsGroup"]] if "fsGroup" in pod else [])
    return int(uid), int(gid), groups


def capabilities(security):
    """What a container may have at most: the runtime's default, without what it drops, with what it adds."""
    change = security.get("capabilities", {})
    if security.get("privileged"):
        raise Refused("privileged containers are not emulated")
    drop = {f"CAP_{name}" for name in change.get("drop", [])}
    kept = [] if "CAP_ALL" in drop else [name for name in DEFAULT_CAPABILITIES if name not in drop]
    return kept + [f"CAP_{name}" for name in change.get("add", [])]


def limits(container):
    found, named = {}, container.get("resources", {}).get("limits", {})
    if "memory" in named and memory_controller():
        bytes_max = int(manifests.quantity(named["memory"]))
        found["memory"] = {"limit": bytes_max, "swap": bytes_max}
    if "cpu" in named and memory_controller():
        found["cpu"] = {"period": 100_000, "quota": int(manifests.quantity(named["cpu"]) * 100_000)}
    return found


def configuration(pod, container, image, variables, mounts, files, cgroup):
    """The configuration of runc. `files` are those that the kubelet writes: hosts, hostname and resolv.conf."""
    security = container.get("securityContext", {})
    read_only = security.get("readOnlyRootFilesystem", False)
    uid, gid, groups = identity(pod.spec, container, image)
    command = [manifests.expand(part, variables) for part in container.get("command") or image.entrypoint]
    default = [] if container.get("command") else image.command
    arguments = [manifests.expand(part, variables) for part in container["args"]] if "args" in container else default
    env = {"PATH": PATH, "HOSTNAME": pod.hostname, "HOME": image.home(uid)} | image.env | variables
    bounding = capabilities(security)
    effective = bounding if uid == 0 else []

    def bind(source, destination, is_read_only):
        options = ["rbind", "rprivate", "ro" if is_read_only else "rw"]
        return {"destination": str(destination), "type": "bind", "source": str(source), "options": options}

    return {
        "ociVersion": "1.0.2",
        "hostname": pod.hostname,
        "process": {
            "terminal": False,
            "user": {"uid": uid, "gid": gid, "additionalGids": groups},
            "args": command + arguments,
            "env": [f"{name}={value}" for name, value in env.items()],
            "cwd": container.get("workingDir", image.workdir),
            "capabilities": {"bounding": bounding, "effective": effective, "permitted": effective, "inheritable": [], "ambient": []},
            "noNewPrivileges": security.get("allowPrivilegeEscalation", True) is False,
            "oomScoreAdj": 0,
        },
        "root": {"path": "root", "readonly": read_only},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
            {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666"]},
            {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
            *(bind(source, destination, read_only) for source, destination in files.items()),
            *(bind(*mount) for mount in mounts),
        ],
        "linux": {
            "namespaces": [{"type": "network", "path": pod.netns_path}, *({"type": kind} for kind in ("pid", "ipc", "uts", "mount"))],
            "maskedPaths": MASKED,
            "readonlyPaths": READ_ONLY,
            "cgroupsPath": cgroup,
            "resources": limits(container),
        },
    }


class Run:
    """One process of a container, with a writable layer of its own above its image."""

    def __init__(self, state, identifier, image, log):
        self.state, self.id, self.log = state, identifier, log
        self.bundle = state / "containers" / identifier
        for directory in ("root", "upper", "work"):
            (self.bundle / directory).mkdir(parents=True)
        layers = f"lowerdir={image.root},upperdir={self.bundle / 'upper'},workdir={self.bundle / 'work'}"
        subprocess.run(["mount", "-t", "overlay", "-o", layers, "overlay", str(self.bundle / "root")], check=True)
        self.process = None

    def start(self, config):
        (self.bundle / "config.json").write_text(json.dumps(config))
        with open(self.log, "ab") as log:
            command = ["run", "--bundle", str(self.bundle), "--pid-file", str(self.bundle / "pid"), self.id]
            # A session of its own: Ctrl-C is for the runner, which ends its containers itself.
            self.process = subprocess.Popen(self._runc(*command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        # runc writes the file when the container is there, so that a command can be run in it.
        while self.pid() is None and self.process.poll() is None:
            time.sleep(0.01)

    def _runc(self, *command):
        return ["runc", "--root", str(self.state / "runc"), *command]

    def wait(self):
        """Waits for the end of the process and gives its exit code, 128 and the signal if it was killed."""
        code = self.process.wait()
        self._remove()
        return code

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def pid(self):
        try:
            return int((self.bundle / "pid").read_text())
        except (OSError, ValueError):
            return None

    def signal(self, number):
        pid = self.pid()
        if self.is_running() and pid:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                return

    def kill(self):
        if self.is_running() and self.pid() is None:
            self.process.kill()  # it has not begun
        self.signal(signal.SIGKILL)

    def exec(self, command, timeout=None, env=None):
        """Runs a command in the container: (exit code, output). A command that takes too long is ended."""
        variables = [word for name, value in (env or {}).items() for word in ("--env", f"{name}={value}")]
        try:
            done = subprocess.run(self._runc("exec", *variables, self.id, *command), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, start_new_session=True)
        except subprocess.TimeoutExpired:
            return 124, f"no end within {timeout} s"
        return done.returncode, done.stdout

    def _remove(self):
        subprocess.run(self._runc("delete", "--force", self.id), capture_output=True)
        subprocess.run(["umount", "-l", str(self.bundle / "root")], capture_output=True)
        subprocess.run(["rm", "-rf", str(self.bundle)], capture_output=True)
