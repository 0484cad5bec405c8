"""ailoop, as `make bench` measures it: from the figures in bench.json."""

import json
import os
import pathlib

from .errors import Failed
from .measure import Level
from .processes import Processes

NAME = "ailoop"
# Shapes of the fleet by prefix of their figures: `Row` in tests/bench/src/level.rs.
SHAPES = {"loop": ("together", NAME), "loop.sync_always": ("always", f"{NAME}, each message synced")}
# The bench also measures raw messages, the gateway, the edge, tools and the pure core.
SECONDS_MAX = 1_800
NATS_SERVER = pathlib.Path(".tools/nats-server")


def _figures(path):
    try:
        return {figure["name"]: figure["value"] for figure in json.loads(path.read_text())}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failed(f"{path} is not what the bench writes: {error}; build it again (make lab NAME=peers)") from error


def _level(figures, prefix, concurrency):
    """A level from the figures. Model server, tool and load generator are the yardstick of the bench."""

    def value(name):
        key = f"{prefix}.c{concurrency}.{name}"
        if key not in figures:
            raise Failed(f"bench.json has no {key}; this script and the bench are of different versions")
        return figures[key]

    nats = value("nats_cpu_s_per_1000_steps")
    services = value("cpu_s_per_1000_steps") - nats
    yardstick = services / value("services_cpu_of_yardstick")
    return Level(
        SHAPES[prefix][1], concurrency, value("steps_per_s"), {"services": services, "nats-server": nats},
        {"model server, tool and load": yardstick},
        # The bench measures steps; these figures do not exist yet.
        figures.get(f"{prefix}.c{concurrency}.ms_per_session_p50"),
        figures.get(f"{prefix}.c{concurrency}.ms_per_session_p99"),
    )


def levels(run):
    """Each level of each shape."""
    options = run.options
    levels_wanted = ",".join(map(str, options.concurrency))
    shapes = ",".join(shape for shape, _ in SHAPES.values())
    temporary = run.directory / "ailoop"
    temporary.mkdir()
    # The stores of all runtimes are on the same disk.
    env = {"TMPDIR": str(temporary)}
    if server := os.environ.get("AILOOP_NATS_SERVER") or (NATS_SERVER.is_file() and str(NATS_SERVER.absolute())):
        env["AILOOP_NATS_SERVER"] = server
    command = [options.bench, "--rows", shapes, "--concurrency", levels_wanted, "--seconds", options.seconds,
               "--warm-seconds", options.warm_seconds]
    run.note(f"ailoop: {levels_wanted} sessions at the same time; some minutes: the bench measures other parts too")
    with Processes(run.processes.logs) as processes:
        processes.start("bench", command, env).wait(SECONDS_MAX)
    figures = _figures(options.target / "bench.json")
    for concurrency in options.concurrency:
        for prefix in SHAPES:
            yield _level(figures, prefix, concurrency)
