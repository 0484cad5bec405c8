"""What the checks share."""

import atexit
import pathlib
import shutil
import subprocess
import tempfile

from openai import OpenAI

from .fleet import Failed, Fleet, agent
from .model import ModelServer

HERE = pathlib.Path(__file__).parent
# Packages of npm, by the name of their directory here.
PACKAGES = pathlib.Path(".tools/clients-js").resolve()
SCRIPT_SECONDS_MAX = 240
# An agent whose tools need a person: one that changes something, and one that asks.
ASKING = agent("Eamonn the Executioner", ["list_files", "write_file", "ask_user"], ["write_file"])
FLEETS = {}


def expect(holds, seen):
    """Fails with what was seen."""
    if not holds:
        raise Failed(f"unexpected: {seen!r}")
    return seen


def client(fleet, key=None, retries=2):
    """The SDK as its users make it."""
    return OpenAI(base_url=f"{fleet.url}/openai/v1", api_key=key or fleet.key, max_retries=retries)


def asking_fleet(other):
    """A fleet beside another one, with one agent, `ASKING`. Its key may answer. The first check that needs it starts it."""
    if other.directory not in FLEETS:
        directory = pathlib.Path(tempfile.mkdtemp(prefix="asking-", dir=other.directory))
        agents = {"default_agent": "e", "agents": {"e": ASKING}}
        fleet = FLEETS[other.directory] = Fleet(other.ailoop, directory, ModelServer(), agents)
        atexit.register(fleet.end)
        fleet.start()
        fleet.key = fleet.approver_key
    return FLEETS[other.directory]


class Skipped(Exception):
    """A check that cannot run here."""


def run_javascript(name, script, *arguments, env=None):
    """Runs a script of a directory here with the packages that it names; returns what it printed."""
    if not shutil.which("npm") or not shutil.which("node"):
        raise Skipped("npm or node is not here")
    home = PACKAGES / name
    shutil.copytree(HERE / name, home, dirs_exist_ok=True)
    install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-package-lock"]
    if subprocess.run(install, cwd=home, check=False).returncode != 0:
        raise Skipped("npm cannot bring the packages; check the network and the settings of npm")
    command = ["node", script, *arguments]
    ran = subprocess.run(
        command, cwd=home, env=env, capture_output=True, text=True, timeout=SCRIPT_SECONDS_MAX, check=False
    )
    expect(ran.returncode == 0, ran.stdout[-1500:] + ran.stderr[-2500:])
    return ran.stdout
