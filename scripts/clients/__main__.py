"""Runs each client against a fleet, and says what it saw."""

import argparse
import pathlib
import sys
import tempfile
import traceback

from . import a2a, acp, ag_ui, agents_api, chat_programs, checks, history
from .common import Skipped
from .fleet import Fleet
from .model import ModelServer


ALL = checks.ALL + chat_programs.CHECKS + acp.CHECKS + a2a.CHECKS + ag_ui.CHECKS + agents_api.CHECKS + history.CHECKS


def main():
    parser = argparse.ArgumentParser(prog="make clients", description=__doc__)
    parser.add_argument("--ailoop", type=pathlib.Path, required=True, help="the binary to test")
    parser.add_argument("--only", default="", help="a part of the names of the checks to run")
    arguments = parser.parse_args()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="ailoop-clients-"))
    print(f"    logs in {directory}", flush=True)
    fleet = Fleet(arguments.ailoop.resolve(), directory, ModelServer())
    failed = 0
    try:
        fleet.start()
        for name, check in ALL:
            if arguments.only not in name:
                continue
            try:
                print(f"ok  {name}: {str(check(fleet)).strip()[:140]}", flush=True)
            except Skipped as why:
                print(f"--  {name}: skipped: {why}", flush=True)
            except Exception:  # pylint: disable=broad-exception-caught
                failed += 1
                print(f"BAD {name}\n{traceback.format_exc()}", flush=True)
    finally:
        fleet.end()
    print(f"{failed} of {len(ALL)} failed" if failed else "every client ran its agent", flush=True)
    sys.exit(1 if failed else 0)


main()
