"""Measures ailoop beside Restate, DBOS and LangGraph: the same sessions, on the same model server, one after the other.

`make lab NAME=peers` builds the bench and calls it. The table goes to stdout and to peers/peers.md of the target
directory.
"""

import argparse
import contextlib
import os
import pathlib
import shutil
import signal
import sys
import tempfile

from . import ailoop, dbos, langgraph, report, restate
from .errors import Failed
from .peer import Run
from .processes import INTERRUPTS, Processes
from .versions import Packages

PEERS = {
    "ailoop": ailoop.levels,
    "restate": restate.levels,
    "dbos": dbos.levels,
    "langgraph": langgraph.levels,
    "langgraph-sqlite": langgraph.sqlite_levels,
}
CORES = os.cpu_count() or 1


def note(text):
    """Prints the progress."""
    print(f"peers: {text}", file=sys.stderr, flush=True)


def _number(text):
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)


def _numbers(text):
    return [_number(part) for part in text.split(",")]


def _names(text):
    names = text.split(",")
    if unknown := [name for name in names if name not in PEERS]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not among {', '.join(PEERS)}")
    return names


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(prog="make lab NAME=peers", description=__doc__)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or "target")
    parser.add_argument("--target", type=pathlib.Path, default=target, help="where cargo builds (%(default)s)")
    parser.add_argument("--peers", type=_names, default=list(PEERS), help=f"names of {','.join(PEERS)} (all)")
    parser.add_argument("--concurrency", type=_numbers, default=[16, 128], help="sessions at the same time (16,128)")
    parser.add_argument("--seconds", type=_number, default=15, help="how long each level is measured (%(default)s)")
    parser.add_argument("--warm-seconds", type=_number, default=4,
                        help="how long each level runs before it is measured (%(default)s)")
    parser.add_argument("--restate-workers", type=_number, default=max(1, CORES // 2),
                        help="processes of Restate's service (%(default)s: one for two cores)")
    parser.add_argument("--dbos-workers", type=_number, default=CORES,
                        help="processes that run workflows of DBOS (%(default)s: one for each core)")
    # A checkpointer makes one query at a time, and waits for the disk meanwhile.
    parser.add_argument("--langgraph-workers", type=_number, default=2 * CORES,
                        help="processes that run graphs of LangGraph (%(default)s: two for each core)")
    options = parser.parse_args()
    options.target = options.target.absolute()
    options.bench = options.target / "release/bench"
    return options


def _require_machine(options):
    if not sys.platform.startswith("linux"):
        raise Failed("CPU time is read from /proc, which only Linux has; run this on Linux")
    if not os.access(options.bench, os.X_OK):
        raise Failed(f"there is no {options.bench}; run: make lab NAME=peers (or: cargo build --release --package bench)")


def run(options, directory):
    """Installs what is needed, then measures one runtime after the other."""
    packages = Packages(directory, note)
    others = set(options.peers) - {"ailoop"}
    if others:
        packages.install_python()
    if "restate" in others:
        packages.install_node()
    levels = []
    # Postgres of a run as root is another user's: it must be able to pass through.
    stores = pathlib.Path(tempfile.mkdtemp(prefix="run-", dir=directory))
    stores.chmod(0o711)
    logs = stores / "logs"
    logs.mkdir()
    try:
        with Processes(logs) as processes:
            running = Run(options, packages, processes, stores, note)
            for name in options.peers:
                with contextlib.closing(PEERS[name](running)) as measured:
                    levels.extend(measured)
    except Failed:
        saved = pathlib.Path(shutil.copytree(logs, directory / "logs", dirs_exist_ok=True))
        note(f"logs: {saved}")
        raise
    finally:
        shutil.rmtree(stores)
    return report.text(levels, options)


def _end(*_):
    # Everything that was started ends on the way out.
    raise KeyboardInterrupt


def main():
    """Exits with 0 if everything was measured."""
    options = arguments()
    for number in INTERRUPTS:
        signal.signal(number, _end)
    try:
        _require_machine(options)
        directory = options.target / "peers"
        directory.mkdir(exist_ok=True)
        text = run(options, directory)
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        note("interrupted; what was started has ended")
        return 130
    (directory / "peers.md").write_text(text)
    print(text)
    note(f"written to {directory / 'peers.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
