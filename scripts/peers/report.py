"""The result as Markdown."""

import os
import platform

from . import ailoop
from .versions import NODE, NODE_RUNTIME, POSTGRES, PYTHON


def _short(value):
    """Three figures that count; a dash where nothing was measured."""
    if value is None:
        return "–"
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{decimals}f}"


def _table(head, rows):
    align = ["--:" if cell.endswith(" ") else "---" for cell in head]
    lines = [head, align, *rows]
    return "".join(f"| {' | '.join(cell.strip() for cell in line)} |\n" for line in lines)


def _ratio(value, base):
    return f"{value / base:.2f}" if base else "–"


def _in_brackets(uncounted):
    return f"({_short(sum(uncounted.values()))})"


def _comparison(levels):
    """One row for each runtime and level, with its ratio to ailoop at the same level."""
    base = {level.concurrency: level for level in levels if level.runtime == ailoop.NAME}
    head = ["runtime", "sessions ", "steps/s ", "to ailoop ", "CPU s of 1 000 steps ", "to ailoop ", "(others) ",
            "session p50, ms ", "p99, ms ", "mean, ms "]
    rows = []
    for level in levels:
        other = base.get(level.concurrency)
        rows.append([
            level.runtime, str(level.concurrency), _short(level.steps_per_s),
            _ratio(level.steps_per_s, other and other.steps_per_s), _short(level.cpu_s),
            _ratio(level.cpu_s, other and other.cpu_s), _in_brackets(level.uncounted),
            _short(level.session_ms_p50), _short(level.session_ms_p99), _short(level.session_ms_mean),
        ])
    return _table(head, rows)


def _processes(levels):
    """CPU by process."""
    rows = []
    for level in levels:
        parts = [f"{name} {value:.3f}" for name, value in level.counted.items()]
        parts += [f"({name} {value:.3f})" for name, value in level.uncounted.items()]
        rows.append([level.runtime, str(level.concurrency), ", ".join(parts)])
    return _table(["runtime", "sessions ", "CPU seconds of 1 000 steps by process"], rows)


def _versions():
    packages = NODE | {"Node.js": NODE_RUNTIME} | PYTHON | {"Postgres": POSTGRES}
    return _table(["package", "version"], packages.items())


def text(levels, options):
    """The whole result."""
    ordered = sorted(levels, key=lambda level: level.concurrency)
    machine = f"{os.cpu_count()} cores, Linux {platform.release()}, {platform.machine()}"
    workers = (f"processes: Restate's service {options.restate_workers}, DBOS {options.dbos_workers}, "
               f"LangGraph {options.langgraph_workers}")
    run = f"{options.seconds} s for each level after {options.warm_seconds} s of warm-up; {workers}; {machine}"
    return "\n".join([_comparison(ordered), f"{run}.\n", _processes(ordered), _versions()])
