"""Where things are, and the tools that render and check them."""

import os
import pathlib
import shutil
import subprocess

from .refused import Refused

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm/ailoop"
KUBERNETES = DEPLOY / "kubernetes"
BASE = KUBERNETES / "base"
OVERLAYS = KUBERNETES / "overlays"
TOOLS = ROOT / ".tools/kubernetes"


def tool(name):
    """The pinned binary, else the one on PATH."""
    pinned = TOOLS / name
    found = str(pinned) if pinned.exists() else shutil.which(name)
    if found is None:
        raise Refused(name, "is neither in .tools/kubernetes nor on PATH", f"install {name}, then run this again")
    return found


def nats_server():
    named = os.environ.get("AILOOP_NATS_SERVER")
    pinned = ROOT / ".tools/nats-server"
    found = named or (str(pinned) if pinned.exists() else shutil.which("nats-server"))
    if found is None:
        raise Refused("nats-server", "is neither in .tools nor on PATH", "run `make setup`, then this again")
    return found


def run(*command, cwd=None, env=None, text=None):
    """(exit code, stdout, stderr). Tools get no cluster, whatever this machine is configured for."""
    environment = (os.environ | {"KUBECONFIG": os.devnull}) if env is None else env
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, input=text, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr
