"""Processes of a run: each has a log, all of them end with the run, and the kernel counts their CPU time."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import time
import typing

from .errors import Failed

START_SECONDS_MAX = 60
# How long a process may take to end after its signal.
END_SECONDS_MAX = 15
PAUSE_SECONDS = 0.05
# Signals that end a run.
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def free_ports(count):
    """Ports of the loopback address that nobody uses now, all different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Stat(typing.NamedTuple):
    """What `/proc/<pid>/stat` has of a process."""

    parent: int
    session: int
    start: int
    # CPU time, with that of children that have ended.
    ticks: int


def _stats():
    """Every process of the machine, by its id."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # After the name, which may hold anything.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        found[int(entry.name)] = Stat(int(fields[1]), int(fields[3]), int(fields[19]), sum(map(int, fields[11:15])))
    return found


def _tree(stats, root):
    """A process and all that it has started, directly or not."""
    tree, added = set(), {root} & stats.keys()
    while added:
        tree |= added
        added = {process_id for process_id, stat in stats.items() if stat.parent in tree} - tree
    return tree


class Process:
    """A running process, with all that it starts."""

    def __init__(self, name, process, log, end_signal):
        self.name, self.log, self._process, self._end_signal = name, log, process, end_signal

    def cpu_seconds(self):
        """CPU time so far, of all that it has started too."""
        stats = _stats()
        ticks = sum(stats[process_id].ticks for process_id in _tree(stats, self._process.pid))
        return ticks / os.sysconf("SC_CLK_TCK")

    def text(self):
        """What it has written so far."""
        return self.log.read_text(errors="replace")

    def tail(self):
        """The last lines that it has written."""
        return "\n".join(self.text().splitlines()[-8:])

    def require_running(self):
        """Fails if it has ended."""
        if self._process.poll() is not None:
            raise Failed(f"{self.name} ended with {self._process.returncode}: {self.tail()}")

    def wait_for(self, what, find, seconds_max=START_SECONDS_MAX):
        """Returns the first true value of `find(text)`; fails if the process ends before, or takes too long."""
        deadline = time.monotonic() + seconds_max
        while not (value := find(self.text())):
            self.require_running()
            if time.monotonic() > deadline:
                raise Failed(f"{self.name}: not within {seconds_max} s: {what}; its log is {self.log}: {self.tail()}")
            time.sleep(PAUSE_SECONDS)
        return value

    def wait(self, seconds_max):
        """Waits until it ends by itself, without an error."""
        try:
            code = self._process.wait(seconds_max)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"{self.name} does not end within {seconds_max:.0f} s: {self.tail()}") from error
        if code:
            raise Failed(f"{self.name} ended with {code}: {self.tail()}")

    def write_line(self, line):
        """Writes a line to its standard input."""
        try:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
        except OSError as error:
            raise Failed(f"{self.name} does not read its input: {self.tail()}") from error

    def end(self):
        """Ends it by its signal, then by SIGKILL each process that it has started and left behind."""
        before = _stats()
        tree = {process_id: before[process_id].start for process_id in _tree(before, self._process.pid)}
        if self._process.poll() is None:
            self._process.send_signal(self._end_signal)
            try:
                self._process.wait(END_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for process_id, stat in _stats().items():
            # An id may be that of another process by now, which has another start time. The session has those that
            # were started after the first look.
            if tree.get(process_id) == stat.start or stat.session == self._process.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process_id, signal.SIGKILL)


class Processes:
    """The processes of a run, with logs below a directory."""

    def __init__(self, logs):
        self.logs, self._running = logs, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # A second signal must not leave processes behind.
        before = {number: signal.signal(number, signal.SIG_IGN) for number in INTERRUPTS}
        try:
            # The last one first: a server outlives those that use it.
            for process in reversed(self._running):
                process.end()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def start(self, name, command, env=None, directory=None, end_signal=signal.SIGTERM, identity=None):
        """Starts a process. Its environment is `env` with PATH and HOME; `identity` is that of another user."""
        base = {variable: os.environ[variable] for variable in ("PATH", "HOME") if variable in os.environ}
        log = self.logs / f"{name}-{len(self._running)}.log"
        try:
            with log.open("wb") as output:
                child = subprocess.Popen(  # pylint: disable=consider-using-with
                    [str(part) for part in command], env=base | (env or {}), cwd=directory or self.logs,
                    stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                    **(identity or {}),
                )
        except OSError as error:
            raise Failed(f"{name} does not start: {error}") from error
        process = Process(name, child, log, end_signal)
        self._running.append(process)
        return process
