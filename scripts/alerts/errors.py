"""What ends a run, and waiting with a deadline."""

import time


class Failed(Exception):
    """The test found something wrong, or cannot run."""


def wait_until(what, condition, seconds_max, every=0.1):
    """Waits for a condition, and gives its value."""
    ends = time.monotonic() + seconds_max
    while True:
        if value := condition():
            return value
        if time.monotonic() > ends:
            raise Failed(f"{what}: not within {seconds_max} s")
        time.sleep(every)
