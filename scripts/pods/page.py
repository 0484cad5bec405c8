"""Runs the first steps of docs/operations.md, word for word."""

import os
import re
import subprocess
import threading

from .image import ROOT
from .manifests import Refused

PAGE = ROOT / "docs/operations.md"
HEADINGS = ("### First steps", "## Kubernetes")
# What a step takes at most.
SECONDS_MAX = 240

DOCKER = """#!/bin/sh
# The image is made from the local binary, as deploy/Dockerfile describes its last stage.
[ "$*" = "build -f deploy/Dockerfile -t ailoop:dev ." ] && exit 0
echo "docker: this stand-in only knows: docker build -f deploy/Dockerfile -t ailoop:dev ." >&2
exit 1
"""


def blocks(text):
    """The shell blocks of the first steps, without the indentation of a list."""
    for heading in HEADINGS:
        start = re.search(rf"^{re.escape(heading)}$", text, re.M)
        if start:
            section = re.split(r"^##+ ", text[start.end():], maxsplit=1, flags=re.M)[0]
            found = re.findall(r"^( *)```sh\n(.*?)^\1```", section, re.M | re.S)
            return [re.sub(f"^{indent}", "", block, flags=re.M) for indent, block in found]
    raise Refused(f"{PAGE.name} has none of the headings {', '.join(HEADINGS)}")


class Operator:
    """A person at a shell: the working directory is the repository, and the network has only a loopback."""

    def __init__(self, cluster, server, ailoop):
        self.namespace, self.cluster = cluster.network.add_host(), cluster
        for name, text in (("docker", DOCKER), ("ailoop", f'#!/bin/sh\nexec "{ailoop}" "$@"\n')):
            (server.directory / name).write_text(text)
            (server.directory / name).chmod(0o755)
        self.env = {name: os.environ[name] for name in ("HOME", "TERM", "LANG") if name in os.environ}
        self.env["PATH"] = f"{server.directory}:{os.environ['PATH']}"

    def run(self, script, on_line=print):
        """Runs a script by bash; each command is shown, and the first that fails ends it. Gives its output."""
        command = ["ip", "netns", "exec", self.namespace, "bash", "-e", "-o", "pipefail", "-c", f"set -v\n{script}"]
        process = subprocess.Popen(command, cwd=ROOT, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, start_new_session=True)
        timer = threading.Timer(SECONDS_MAX, lambda: os.killpg(process.pid, 9))
        timer.start()
        lines = []
        try:
            for line in process.stdout:
                lines.append(line)
                on_line(f"    {line.rstrip()}")
                if line == END:
                    break
            # A port-forward in the background would keep the pipe open.
            code = process.wait() if lines[-1:] != [END] else 0
        finally:
            timer.cancel()
            try:
                os.killpg(process.pid, 15)
            except ProcessLookupError:
                pass
            process.wait()
        if code:
            raise Refused(f"the first steps of {PAGE.name} failed with exit code {code}")
        return "".join(lines)


END = "first steps done\n"


def first_steps(operator, overlay, on_line=print):
    """Follows the page for an overlay."""
    script = "".join(blocks(PAGE.read_text()))
    if "overlays/" in script:
        script = script.replace("overlays/local", f"overlays/{overlay}")
    return operator.run(f"{script}\nprintf '{END.strip()}\\n'\n", on_line)
