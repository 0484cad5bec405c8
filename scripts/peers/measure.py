"""The measurement of a level of load: sessions that run again and again, and the CPU time of each process."""

import dataclasses
import json
import statistics
import time

from .errors import Failed

STEPS = 5
# How long the sessions of a level may take to end after its window.
DRAIN_SECONDS_MAX = 120


@dataclasses.dataclass
class Level:
    """What was measured of a runtime with a number of sessions at the same time."""

    runtime: str
    concurrency: int
    steps_per_s: float
    # CPU seconds of 1 000 steps by process: what counts, and what is only shown.
    counted: dict
    uncounted: dict
    session_ms_p50: float | None
    session_ms_p99: float | None

    @property
    def cpu_s(self):
        """CPU seconds of 1 000 steps of the runtime."""
        return sum(self.counted.values())

    @property
    def session_ms_mean(self):
        """Mean of a session (Little's law): each client begins a session when the one before has ended."""
        return self.concurrency * STEPS / self.steps_per_s * 1000


@dataclasses.dataclass
class Parts:
    """The processes of a level."""

    # Workers that run sessions, or send requests: each has a file for its records.
    workers: list
    # Lists of processes by what they are.
    counted: dict
    uncounted: dict


def _cpu(groups):
    return {name: sum(process.cpu_seconds() for process in processes) for name, processes in groups.items()}


def _overlap(record, began, ended):
    """Which part of a session was within the window, from 0 to 1."""
    first, last = record
    return max(0.0, min(last, ended) - max(first, began)) / (last - first)


def _sleep(seconds, parts):
    """Waits, and fails as soon as a process ends."""
    deadline = time.monotonic() + seconds
    processes = [process for group in (parts.counted | parts.uncounted).values() for process in group]
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(0.5, left))
        for process in processes:
            process.require_running()


def _percentile(values, percent):
    """The value below which `percent` of the sorted values lie."""
    return values[min(len(values) * percent // 100, len(values) - 1)]


def measure(runtime, concurrency, parts, options):
    """Runs a level: the warm-up, then the window."""
    for process, _ in parts.workers:
        process.write_line("start")
    _sleep(options.warm_seconds, parts)
    began, before = time.monotonic(), (_cpu(parts.counted), _cpu(parts.uncounted))
    _sleep(options.seconds, parts)
    ended, after = time.monotonic(), (_cpu(parts.counted), _cpu(parts.uncounted))
    for process, _ in parts.workers:
        process.write_line("stop")
    records = []
    for process, path in parts.workers:
        process.wait(DRAIN_SECONDS_MAX)
        records += json.loads(path.read_text())
    # A session that is partly within the window counts by that part.
    steps = STEPS * sum(_overlap(record, began, ended) for record in records)
    took_ms = sorted((last - first) * 1000 for first, last in records if began < last <= ended)
    if not took_ms:
        raise Failed(f"{runtime}: no session of {concurrency} ended within {options.seconds} s; give more --seconds")
    counted, uncounted = (
        {name: (then[name] - now[name]) * 1000 / steps for name in now} for now, then in zip(before, after, strict=True)
    )
    return Level(runtime, concurrency, steps / (ended - began), counted, uncounted,
                 statistics.median(took_ms), _percentile(took_ms, 99))
