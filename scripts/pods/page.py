"""Runs the first steps of docs/deployment.md, word for word."""

import os
import re
import subprocess
import threading

from .image import ROOT
from .manifests import Refused

PAGE = ROOT / "docs/deployment.md"
HELM, KUSTOMIZE = "### Install with Helm", "### Install with kustomize"
# (tool, values): what the page describes.
SETUPS = {f"{tool}/{values}": (tool, values) for values in ("local", "prod") for tool in ("helm", "kustomize")}
# What a reader of the page changes for the setup `prod`; it has no default model.
PROD = {
    "values-local.yaml": "values-prod.yaml", "overlays/local": "overlays/prod",
    'ailoop run "Hello"': 'ailoop run --model rehearsal "Hello"',
}
# What a script takes at most.
SECONDS_MAX = 600
# A person waits until a port-forward says that it listens.
FORWARD = re.compile(r"^.* port-forward \S+ (\d+).*&.*$", re.M)
LISTENS = r"timeout 60 bash -c 'until (exec 3<>/dev/tcp/127.0.0.1/\1) 2>/dev/null; do sleep 0.1; done'"
# Whatever ends a script, it leaves no port-forward behind.
PRELUDE = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\nset -v\n"

DOCKER = """#!/bin/sh
# The image is made from the local binary, as deploy/Dockerfile describes its last stage.
[ "$*" = "build -f deploy/Dockerfile -t ailoop:dev ." ] && exit 0
echo "docker: this stand-in only knows: docker build -f deploy/Dockerfile -t ailoop:dev ." >&2
exit 1
"""


def blocks(text, heading):
    """The shell blocks of a section, without the indentation of a list."""
    start = re.search(rf"^{re.escape(heading)}$", text, re.M)
    if not start:
        raise Refused(f"{PAGE.name} has no heading {heading!r}")
    section = re.split(r"^##+ ", text[start.end():], maxsplit=1, flags=re.M)[0]
    found = re.findall(r"^( *)```sh\n(.*?)^\1```", section, re.M | re.S)
    return [re.sub(f"^{indent}", "", block, flags=re.M) for indent, block in found]


def only(found, what):
    if len(found) != 1:
        raise Refused(f"{PAGE.name} has {len(found)} of these, and not one: {what}")
    return found[0]


def script(text, tool, values):
    """The steps of the page for a setup: kustomize has a step of its own in the place of the installation."""
    steps = blocks(text, HELM)
    install = only([step for step in steps if "helm install" in step], "steps with `helm install`")
    if tool == "kustomize":
        instead = only(blocks(text, KUSTOMIZE), "shell blocks of the section on kustomize")
        steps = [instead if step == install else step for step in steps if step == install or "helm " not in step]
    steps = "".join(steps)
    for old, new in PROD.items() if values == "prod" else ():
        steps = steps.replace(old, new)
    return steps


class Operator:
    """A person at a shell: the working directory is the repository, and the network has only a loopback."""

    def __init__(self, cluster, server, ailoop):
        self.namespace, self.cluster = cluster.network.add_host(), cluster
        for name, text in (("docker", DOCKER), ("ailoop", f'#!/bin/sh\nexec "{ailoop}" "$@"\n')):
            (server.directory / name).write_text(text)
            (server.directory / name).chmod(0o755)
        self.env = {name: os.environ[name] for name in ("HOME", "TERM", "LANG") if name in os.environ}
        self.env["PATH"] = f"{server.directory}:{os.environ['PATH']}"

    def run(self, text, on_line=print):
        """Runs a script by bash; each line is shown, and the first that fails ends it. Gives its output."""
        script = PRELUDE + FORWARD.sub(rf"\g<0>\n{LISTENS}", text)
        command = ["ip", "netns", "exec", self.namespace, "bash", "-e", "-o", "pipefail", "-c", script]
        process = subprocess.Popen(command, cwd=ROOT, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, start_new_session=True)
        timer = threading.Timer(SECONDS_MAX, lambda: os.killpg(process.pid, 9))
        timer.start()
        lines = []
        try:
            for line in process.stdout:
                lines.append(line)
                on_line(f"    {line.rstrip()}")
            code = process.wait()
        finally:
            timer.cancel()
            try:
                os.killpg(process.pid, 15)
            except ProcessLookupError:
                pass
            process.wait()
        if code:
            raise Refused(f"a command of an operator failed with exit code {code}: {''.join(lines[-3:]).strip()}")
        return "".join(lines)


def first_steps(operator, setup):
    """Follows the page for a setup."""
    return operator.run(script(PAGE.read_text(), *SETUPS[setup]))
