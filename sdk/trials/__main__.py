"""Starts the fleet, and runs the tests of each language in processes of their own."""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

from .control import Control
from .fleet import Fleet
from .model import ModelServer

SDK = pathlib.Path(__file__).parent.parent
SECONDS_MAX = 600


def commands(only):
    """(name, directory, command) of each run."""
    pattern = [f"-k={only}"] if only else []
    yield "python", SDK / "python", [sys.executable, "-m", "unittest", "discover", "-v", "-s", "tests", *pattern]
    yield "examples", SDK / "trials", [sys.executable, "-m", "unittest", "-v", "test_examples", *pattern]
    if (SDK / "typescript/node_modules").exists():
        pattern = [f"--test-name-pattern={only}"] if only else []
        tests = sorted(str(path) for path in (SDK / "typescript/test").glob("*.test.js"))
        yield "typescript", SDK / "typescript", ["node", "--test", "--test-reporter=spec", *pattern, *tests]


def main():
    parser = argparse.ArgumentParser(prog="make sdk", description=__doc__)
    parser.add_argument("--ailoop", type=pathlib.Path, required=True, help="the binary to test")
    parser.add_argument("--only", default="", help="a part of the names of the tests to run")
    parser.add_argument("--language", default="", help="python, examples or typescript")
    arguments = parser.parse_args()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="ailoop-sdk-"))
    print(f"    logs in {directory}", flush=True)
    fleet = Fleet(arguments.ailoop.resolve(), directory, ModelServer())
    failed = []
    try:
        fleet.start()
        env = os.environ | fleet.variables() | {"AILOOP_TEST_CONTROL": Control(fleet).url}
        for name, place, command in commands(arguments.only):
            if arguments.language in ("", name):
                result = subprocess.run(command, cwd=place, env=env, timeout=SECONDS_MAX, check=False)
                failed += [name] if result.returncode else []
    finally:
        fleet.end()
    print(f"failed: {', '.join(failed)}" if failed else "the SDKs and every example work with the fleet", flush=True)
    sys.exit(1 if failed else 0)


main()
