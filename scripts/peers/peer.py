"""The surroundings of every runtime that is measured by sessions of workers in Python."""

import contextlib
import pathlib

from .measure import Parts, measure
from .processes import Processes

WORKERS = pathlib.Path(__file__).parent / "workers"


class Run:
    """A run: its options, its packages, the model server, and a directory for logs and stores."""

    def __init__(self, options, packages, processes, directory, note):
        self.options, self.packages, self.processes = options, packages, processes
        self.directory, self.note = directory, note
        self.model = processes.start("model", [options.bench, "model"])
        self.model_url = self.model.wait_for("announces its address", _first_line)

    @contextlib.contextmanager
    def part(self, name):
        """Processes and an empty directory for a runtime; both end with it."""
        directory = self.directory / name
        directory.mkdir()
        with Processes(self.processes.logs) as processes:
            yield processes, directory

    def level(self, runtime, script, servers, concurrency, workers, url, uncounted=False):
        """Starts workers of a script, which share the sessions of a level, and measures.

        `servers` are the runtime's processes by what they are. The workers count too, unless they are only load.
        `url(index)` is the address of the runtime's server for a worker.
        """
        self.note(f"{runtime}: {concurrency} sessions at the same time")
        workers = min(workers, concurrency)
        with Processes(self.processes.logs) as processes:
            started = []
            for index in range(workers):
                sessions = concurrency // workers + (index < concurrency % workers)
                records = self.directory / f"{script}-{concurrency}-{index}.json"
                command = [self.packages.python, WORKERS / f"{script}.py", "--model", self.model_url, "--sessions",
                           sessions, "--records", records, "--worker", index]
                # One after the other: the first one makes the tables. Arguments are no place for a password.
                process = processes.start(script, command, {"PEERS_SERVER": url(index)})
                process.wait_for("is ready", lambda text: "ready" in text)
                started.append((process, records))
            running = [process for process, _ in started]
            counted = servers | ({} if uncounted else {"workers": running})
            others = {"model server": [self.model]} | ({"load": running} if uncounted else {})
            return measure(runtime, concurrency, Parts(started, counted, others), self.options)


def _first_line(text):
    return text.split("\n", 1)[0] if "\n" in text else None
