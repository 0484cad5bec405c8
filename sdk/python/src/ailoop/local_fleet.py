"""The fleet that runs in a directory, by the file `.ailoop/run.json` that `ailoop up` keeps there."""

import json
import os
from pathlib import Path
from typing import Any


def find() -> dict[str, Any] | None:
    """The run file of the fleet in the working directory, else in the nearest one above it.

    Only a fleet of this user counts: others could lay a file into a directory that everybody writes to, and would be
    sent prompts.
    """
    if os.name != "posix":
        return None
    here = Path.cwd()
    return next((run for directory in (here, *here.parents) if (run := _read(directory / ".ailoop" / "run.json"))), None)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        if any(part.stat().st_uid != os.geteuid() for part in (path.parent, path)):
            return None
        run: dict[str, Any] = json.loads(path.read_text())
        os.kill(run["pid"], 0)  # fails if a fleet that was killed has left the file
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None if run.get("one_session") else run
