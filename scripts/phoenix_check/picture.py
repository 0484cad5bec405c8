"""A picture of a trace in Phoenix, by headless Chromium."""

import shutil
import subprocess
import tempfile

from .errors import Failed

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Pixels. The page draws for this long, in milliseconds of its own time.
WIDTH, HEIGHT, DRAWING_MS = 1500, 900, 60_000
SECONDS_MAX = 120


def take(url, project, trace_id, path, directory):
    """Writes a PNG of the page of a trace to `path`."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise Failed(f"no browser for the picture: install one of {', '.join(BROWSERS)}")
    page = f"{url}/projects/{project}/traces/{trace_id}"
    with tempfile.TemporaryDirectory(dir=directory) as profile:
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
            "--force-prefers-reduced-motion",
            f"--user-data-dir={profile}", f"--window-size={WIDTH},{HEIGHT}", f"--virtual-time-budget={DRAWING_MS}",
            f"--screenshot={path.absolute()}", page,
        ]
        result = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    if result.returncode or not path.exists():
        raise Failed(f"{browser} ended with {result.returncode}: {result.stderr.strip()[-300:]}")
    print(f"  picture of {page}: {path}")
