"""The fleet that runs in a directory, by the file `.ailoop/run.json` that `ailoop up` keeps there."""

import ipaddress
import json
import os
import urllib.parse
from pathlib import Path
from typing import Any


def find() -> dict[str, Any] | None:
    """The run file of the fleet in the working directory, else in the nearest one above it.

    Only a fleet of this user on this machine counts: others could lay a file into a directory that everybody writes to,
    or into a repository, and would be sent prompts.
    """
    if os.name != "posix":
        return None
    here = Path.cwd()
    return next((run for directory in (here, *here.parents) if (run := _read(directory / ".ailoop" / "run.json"))), None)


def is_loopback(url: str) -> bool:
    """Whether an address is one of this machine."""
    host = urllib.parse.urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read(path: Path) -> dict[str, Any] | None:
    try:
        if any(part.stat().st_uid != os.geteuid() for part in (path.parent, path)):
            return None
        run: dict[str, Any] = json.loads(path.read_text())
        is_process = run["pid"] > 1  # others are groups of processes, or the first one
        os.kill(run["pid"], 0)  # fails if a fleet that was killed has left the file
        is_here = all(is_loopback(run[name]) for name in ("http", "nats") if run.get(name))
    except (AttributeError, OSError, OverflowError, ValueError, KeyError, TypeError):
        return None
    return run if is_process and is_here and not run.get("one_session") else None
