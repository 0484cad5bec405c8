"""Checks the workflows below .github/workflows without running them, then checks itself by planted mistakes.

A step either uses an action, pinned by its full commit, or runs one make target that exists. So nothing happens in CI
that a developer cannot run, and nobody can change what runs by moving a tag. The workflows are written in the small
part of YAML that this program reads: a step's `uses` and `run` stand on one line each.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORKFLOWS = ROOT / ".github/workflows"
KEY = re.compile(r"^\s*(?:- )?(uses|run|pull_request_target|workflow_run)\s*:\s*(.*?)\s*$")
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*")
# The variables of a target are literal, or shell variables that the step's environment sets.
MAKE = re.compile(r"make (?:lab NAME=)?([a-z][a-z-]*)((?: [A-Z_]+=[\w.:/$-]+)*)")


def targets(makefile):
    """The targets of a Makefile that a person can call."""
    return set(re.findall(r"^([a-z][a-z-]*):(?!=)", makefile, re.M))


def mistakes(text, known):
    """What is wrong in the text of a workflow, each with its line; `known` has the targets of make, and of `make lab`."""
    found = []
    if not re.search(r"^permissions:\n  contents: read$", text, re.M):
        found.append("1: `permissions: contents: read` is missing at the top: the token could write to the repository")
    for number, line in enumerate(text.splitlines(), 1):
        if "${{" in line and re.match(r"\s*(- )?run\s*:", line):
            found.append(f"{number}: an expression in `run` is pasted into the shell: pass it by `env`")
        if not (key := KEY.match(line)):
            continue
        name, value = key.groups()
        if name in ("pull_request_target", "workflow_run"):
            found.append(
                f"{number}: {name} runs the code of strangers with the rights of this repository: use pull_request"
            )
        elif name == "uses" and not PINNED.fullmatch(value):
            found.append(f"{number}: {value} is not pinned: write owner/name@<40 hexadecimal digits> # v<version>")
        elif name == "run":
            call = MAKE.fullmatch(value)
            if not call:
                found.append(f"{number}: `run: {value}` is not one make target: put the commands into a target")
            elif call[1] not in known[" lab " in value]:
                found.append(f"{number}: there is no target {call[1]}: see `make help` and `make lab`")
    return found


def planted(text):
    """Copies of a workflow, each with one mistake that must be found."""
    checkout = re.search(r"actions/checkout@[0-9a-f]{40}", text)[0]
    return {
        "an action by its tag": text.replace(checkout, "actions/checkout@v7"),
        "an action by a short commit": text.replace(checkout, checkout[:-1]),
        "an action without its version": re.sub(r"(checkout@\w+) # v\S+", r"\1", text),
        "a target that is not there": text.replace("run: make check", "run: make chekc"),
        "a target of the lab that is not there": text.replace("lab NAME=advisories", "lab NAME=advisory"),
        "a target of the lab as one of its own": text.replace("lab NAME=advisories", "advisories"),
        "a command beside make": text.replace("run: make check", "run: cargo test"),
        "two commands": text.replace("run: make check", "run: make check && curl example.com"),
        "commands of several lines": text.replace("run: make check", "run: |\n          make check"),
        "an expression in a command": text.replace("run: make check", "run: make check X=${{ github.head_ref }}"),
        "no permissions": text.replace("permissions:", "permission:"),
        "the rights of the repository for strangers": text.replace("pull_request:", "pull_request_target:"),
    }


def main():
    known = [targets((ROOT / makefile).read_text()) for makefile in ("Makefile", "scripts/lab.mk")]
    files = sorted(WORKFLOWS.glob("*.y*ml"))
    found = [f"{file.relative_to(ROOT)}:{mistake}" for file in files for mistake in mistakes(file.read_text(), known)]
    if found:
        sys.exit("error: " + "\nerror: ".join(found))
    copies = planted((WORKFLOWS / "ci.yml").read_text())
    for what, text in copies.items():
        if not mistakes(text, known):
            sys.exit(f"error: scripts/workflows.py lets through {what}")
    print(f"workflows: {len(files)} files are fine, {len(copies)} planted mistakes are found")


if __name__ == "__main__":
    main()
