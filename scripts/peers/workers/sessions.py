"""Keeps a number of sessions running in this process, from `start` to `stop` on its standard input."""

import argparse
import asyncio
import concurrent.futures
import json
import os
import pathlib
import sys
import time

from agent import STEPS


def arguments():
    """The command line of every worker."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="base URL of the model server")
    parser.add_argument("--sessions", type=int, required=True, help="sessions at the same time")
    parser.add_argument("--records", type=pathlib.Path, required=True, help="file for the times of the sessions")
    parser.add_argument("--worker", type=int, required=True, help="index of this process among its kind")
    options = parser.parse_args()
    # Where the runtime's server or its file is. It may hold a password, so that it is no argument.
    options.server = os.environ["PEERS_SERVER"]
    return options


class _Records:
    """When each session began and ended, on the clock that all processes of a machine share."""

    def __init__(self):
        self.is_stopped, self._times = False, []

    def add(self, began, steps):
        """Adds a session that ends now."""
        self._times.append((began, time.monotonic()))
        if steps != STEPS:
            raise RuntimeError(f"a session had {steps} steps instead of {STEPS}")

    def write(self, path):
        """Writes them for the driver."""
        path.write_text(json.dumps(self._times))


def _line():
    return sys.stdin.readline().strip()


def _is_started():
    """Waits for the driver. It closes the input if it ends before."""
    print("ready", flush=True)
    return _line() == "start"


def keep_running_in_threads(options, session):
    """Runs `session()` again and again in each thread, to its end. A session returns the number of its steps."""
    records = _Records()

    def client():
        while not records.is_stopped:
            began = time.monotonic()
            records.add(began, session())

    if not _is_started():
        return
    with concurrent.futures.ThreadPoolExecutor(options.sessions) as threads:
        clients = [threads.submit(client) for _ in range(options.sessions)]
        _line()
        records.is_stopped = True
    for one in clients:
        one.result()
    records.write(options.records)


async def keep_running(options, session):
    """Does the same with tasks."""
    records = _Records()

    async def client():
        while not records.is_stopped:
            began = time.monotonic()
            records.add(began, await session())

    if not _is_started():
        return
    clients = asyncio.gather(*(client() for _ in range(options.sessions)))
    await asyncio.get_running_loop().run_in_executor(None, _line)
    records.is_stopped = True
    await clients
    records.write(options.records)
