"""Runs the fleet against Phoenix, kills replicas, and compares Phoenix's spans with the log."""

import argparse
import pathlib
import shutil
import sys
import tempfile
import time

from . import picture, verify
from .backend import Phoenix
from .errors import Failed
from .fleet import CONCURRENCY, Fleet
from .model import ModelServer
from .processes import Processes, wait_until

SESSIONS = [f"session-{number}" for number in range(1, 7)]
PROMPTS = ("What is in this directory?", "Look again, and ask the index.", "And once more, to be sure.")
# More work than one replica takes: some of it runs at each of two.
BUSY = CONCURRENCY + 1
# Spans that are not flushed by an acknowledgement come within seconds.
SPANS_SECONDS_MAX = 60
# Spans of earlier work leave a replica once a second: a kill later than this loses those of the running work alone.
EXPORT_SECONDS = 2


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/phoenix.sh", description=__doc__)
    parser.add_argument("--ailoop", type=pathlib.Path, required=True, help="the binary of ailoop")
    parser.add_argument("--nats-server", default="nats-server", help="the binary of nats-server")
    parser.add_argument("--phoenix", type=pathlib.Path, required=True, help="the command of Phoenix")
    parser.add_argument("--picture", type=pathlib.Path, help="write a picture of the trace with a killed gateway here")
    parser.add_argument("--silent", action="append", default=[], metavar="REPLICA",
                        help="this replica sends no spans, such as orchestrator-3: the run must find it")
    parser.add_argument("--keep", action="store_true", help="leave Phoenix running until Enter is pressed")
    return parser.parse_args()


def disturb(fleet, model):
    """Runs the turns, and kills replicas meanwhile."""

    def kill(name, why):
        fleet.processes.kill(name)
        print(f"  {name} killed {why}", flush=True)

    for turn in fleet.begin_turns(SESSIONS, PROMPTS[0]):
        turn.end()
    print(f"  turn 1 of {len(SESSIONS)} sessions, undisturbed", flush=True)

    turns = fleet.begin_turns(SESSIONS, PROMPTS[1])
    wait_until("calls run at both executors", lambda: fleet.tool_calls() >= BUSY, 60, 0.01)
    time.sleep(EXPORT_SECONDS)
    kill("executor-1", "in a call")
    turns[0].end()
    kill("orchestrator-1", "as a turn ended")
    for turn in turns[1:]:
        turn.end()

    turns = fleet.begin_turns(SESSIONS, PROMPTS[2])
    wait_until("replies are streamed by both gateways", lambda: model.open >= BUSY, 60, 0.01)
    time.sleep(EXPORT_SECONDS)
    kill("gateway-1", "in mid-stream")
    wait_until("a stream breaks", lambda: model.broken, 10)
    kill("orchestrator-2", "meanwhile")
    for turn in turns:
        turn.end()


def run(options, directory):
    """One run; gives whether Phoenix has what it must have."""
    with Processes(directory / "logs") as processes, ModelServer() as model:
        print("phoenix: starting Phoenix and the fleet", flush=True)
        phoenix = Phoenix(processes, options.phoenix, directory / "phoenix")
        fleet = Fleet(
            processes, options.ailoop, options.nats_server, directory, phoenix.otlp_endpoint, options.silent
        )
        fleet.start(model.base_url)
        disturb(fleet, model)
        turns = [turn for session in SESSIONS for turn in verify.turns(session, fleet.export(session))]
        expected = len(SESSIONS) * len(PROMPTS)
        if len(turns) != expected:
            raise Failed(f"the logs hold {len(turns)} turns that ended, and not {expected}")

        def report():
            return verify.check(turns, phoenix.spans(), phoenix.project())

        try:
            wait_until("Phoenix has every span", lambda: not report().findings, SPANS_SECONDS_MAX, 1)
        except Failed:
            pass  # the findings say what is missing
        result = report()
        print(result.text(), flush=True)
        if options.picture and not result.findings:
            picture.take(phoenix.url, result.project, result.taken_over, options.picture, directory)
        if options.keep:
            input(f"Phoenix is at {phoenix.url}; press Enter to end it. ")
        return not result.findings


def main():
    """Exits with 0 if Phoenix has what it must have. The directory of a run that fails stays, with its logs."""
    options = arguments()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="ailoop-phoenix-"))
    (directory / "logs").mkdir()
    try:
        is_complete = run(options, directory)
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        is_complete = False
    if is_complete:
        shutil.rmtree(directory)
    else:
        print(f"  logs: {directory / 'logs'}", file=sys.stderr)
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
