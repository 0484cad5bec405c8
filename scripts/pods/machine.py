"""What a run needs of this machine, and what it leaves there when its process was killed."""

import contextlib
import os
import pathlib
import shutil
import subprocess

from .manifests import Refused
from .network import remove_namespaces, run

# Each run has a directory here with its pid as name; namespaces and cgroups have this pid in their names.
STATE = pathlib.Path("/run/ailoop-pods")


def require_root():
    """Refuses a machine on which no namespaces can be made, before anything is started."""
    if os.geteuid() != 0:
        raise Refused("only root can make namespaces: run it as root, in a virtual machine or a privileged container")
    missing = [tool for tool in ("ip", "nft", "runc", "nsenter", "unshare", "mount") if shutil.which(tool) is None]
    if missing:
        raise Refused(f"{', '.join(missing)} not found: apt-get install iproute2 nftables runc util-linux mount")
    name = f"pods-{os.getpid()}-try"
    try:
        run("ip", "netns", "add", name)
        run("ip", "netns", "exec", name, "nft", "add", "table", "ip", "pods")
        run("unshare", "--mount", "--pid", "--fork", "true")
    except RuntimeError as error:
        raise Refused(f"this machine lets nobody make namespaces and rules: {error}") from error
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)


def remove_leftovers():
    """Ends what earlier runs left whose process is gone. Nothing of a run that is alive is touched."""
    for directory in STATE.iterdir() if STATE.is_dir() else []:
        if directory.name.isdigit() and not pathlib.Path("/proc", directory.name).exists():
            remove_run(directory)


def remove_run(directory):
    """Ends every container, mount and namespace of one run, by what its directory names."""
    for container in (directory / "runc").iterdir() if (directory / "runc").is_dir() else []:
        subprocess.run(["runc", "--root", str(directory / "runc"), "delete", "--force", container.name], capture_output=True)
    for line in reversed(pathlib.Path("/proc/self/mounts").read_text().splitlines()):
        path = line.split()[1]
        if path.startswith(f"{directory}/"):
            subprocess.run(["umount", "-l", path], capture_output=True)
    remove_namespaces(f"pods-{directory.name}-")
    for controller in pathlib.Path("/sys/fs/cgroup").glob(f"**/ailoop-pods-{directory.name}"):
        for group in sorted(controller.glob("**/"), reverse=True):
            with contextlib.suppress(OSError):
                group.rmdir()
    shutil.rmtree(directory, ignore_errors=True)
