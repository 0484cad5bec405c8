"""Processes of a run: each has a log, and all of them end with the run."""

import os
import signal
import socket
import subprocess
import time

from .errors import Failed

# A process that has not started after this time has failed.
START_SECONDS_MAX = 120
# How long a process may take to end after SIGTERM.
END_SECONDS_MAX = 15


def free_ports(count):
    """Ports of the loopback address that nobody uses now, all different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait_until(what, holds, seconds_max, pause=0.1):
    """Returns the first value of `holds()` that is true; fails when it takes longer than `seconds_max`."""
    deadline = time.monotonic() + seconds_max
    while not (value := holds()):
        if time.monotonic() > deadline:
            raise Failed(f"not within {seconds_max} s: {what}")
        time.sleep(pause)
    return value


class Processes:
    """The processes of a run by name, with logs below a directory."""

    def __init__(self, logs):
        self.logs, self._running = logs, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # The last one first: the bus and the backend outlive those that use them.
        for name in reversed(list(self._running)):
            self.end(name)

    def start(self, name, command, env, ready):
        """Starts a process; returns when `ready(log)` holds. The environment is `env` alone, with PATH and HOME."""
        base = {variable: os.environ[variable] for variable in ("PATH", "HOME") if variable in os.environ}
        log = self.logs / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(  # pylint: disable=consider-using-with
                [str(part) for part in command], env=base | env, cwd=self.logs, stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )
        self._running[name] = process

        def has_started():
            if process.poll() is not None:
                raise Failed(f"{name} ended with {process.returncode}: {self.tail(name)}")
            return ready(log.read_text(errors="replace"))

        wait_until(f"{name} starts (see {log})", has_started, START_SECONDS_MAX)
        return process

    def tail(self, name):
        """The last lines that a process has written."""
        return "\n".join((self.logs / f"{name}.log").read_text(errors="replace").splitlines()[-5:])

    def kill(self, name):
        """Ends a process by SIGKILL."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def end(self, name):
        """Ends a process by SIGTERM, and by SIGKILL if it does not end in time."""
        process = self._running.pop(name)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
