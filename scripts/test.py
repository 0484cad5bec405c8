#!/usr/bin/env python3
"""Runs every test of the workspace, also after one has failed. The last lines are the seeds and the failed tests.

    scripts/test.py [ARGUMENT OF cargo test]...

The exit status is that of `cargo test`.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SUITE = re.compile(r"^\s+(?:Running (?:unittests )?(\S+) \(|Doc-tests (\S+))")
RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed;")
FAILED = re.compile(r"^test (.+?)(?: - should panic)? \.\.\. FAILED$")
PROPERTIES = re.compile(r'^(PROPTEST_RNG_SEED) = "(\d+)"$', re.MULTILINE)


class Report:
    """What the lines of `cargo test` say: how many tests passed and failed, and the names of the failed ones."""

    def __init__(self):
        self.suite, self.passed, self.failed, self.names = "", 0, 0, []

    def read(self, line):
        if found := SUITE.match(line):
            self.suite = found.group(1) or f"documentation of {found.group(2)}"
        elif found := FAILED.match(line):
            self.names.append(f"{self.suite}: {found.group(1)}")
        elif found := RESULT.match(line):
            self.passed += int(found.group(1))
            self.failed += int(found.group(2))


def seeds(listed):
    """The seeds of a run, as variables that repeat it: of the properties, and those that tests have listed."""
    name, fixed = PROPERTIES.search(Path(".cargo/config.toml").read_text()).groups()
    return [f"{name}={os.environ.get(name, fixed)}", *sorted(set(listed.splitlines()))]


def main():
    os.chdir(Path(__file__).resolve().parent.parent)
    command = [os.environ.get("CARGO", "cargo"), "test", "--workspace", "--locked", "--no-fail-fast", *sys.argv[1:]]
    report = Report()
    with tempfile.NamedTemporaryFile("r") as listed:
        environment = {**os.environ, "AILOOP_SEED_LIST": listed.name}
        tests = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        for line in tests.stdout:
            print(line, end="", flush=True)
            report.read(line.rstrip("\n"))
        status = tests.wait()
        print(f"\nseeds: {', '.join(seeds(listed.read()))}")
    if report.names:
        print("failed tests:", *report.names, sep="\n  ")
    print(f"{report.passed} passed, {report.failed} failed")
    return status


if __name__ == "__main__":
    sys.exit(main())
