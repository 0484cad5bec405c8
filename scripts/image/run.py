"""Runs what is in an image: its files in a folder as the root, read-only, as user 65532 without any capability."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import root
from errors import Refused

# Seconds until a service must answer, and until it must have ended.
PATIENCE = 30
# A name that only /etc/hosts of the image's root knows: so the C library and its name services are there.
HOST = "nats.image.test"
# The shell makes the root read-only and hides nothing; then each command replaces the one before it, so that a signal
# reaches the program itself. The last lines end the trial unless the root refuses a write.
ENTER = """
set -e
mount --bind "$0" "$0"
mount -o remount,bind,ro "$0"
mount -t proc proc "$0/proc"
mount -t tmpfs tmpfs "$0/tmp"
if touch "$0/written" 2>/dev/null; then echo "the root can be written" >&2; exit 99; fi
exec setpriv --no-new-privs chroot --userspec=65532:65532 --groups= "$0" "$@"
"""


def as_root():
    """What must stand before a command that makes mounts."""
    if os.geteuid() == 0:
        return []
    if subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0:
        return ["sudo", "-n", "--preserve-env"]
    raise Refused("the image can be tried by root only: sudo make lab NAME=image-check")


class Container:
    """The unpacked image, in which commands run one after another or beside each other."""

    def __init__(self, folder, config):
        self.folder, self.config = folder, config
        (folder / "etc/hosts").write_text(f"127.0.0.1 localhost {HOST}\n")

    def start(self, *arguments, **environment):
        """Starts the entry point, with the arguments that a container would get."""
        if self.config["config"]["User"] != root.USER:
            raise Refused(f"the image runs as {self.config['config']['User']}, not as {root.USER}")
        command = [*as_root(), "unshare", "--mount", "sh", "-c", ENTER, str(self.folder)]
        command += [*self.config["config"]["Entrypoint"], *arguments]
        clean = {"PATH": os.environ["PATH"], "RUST_BACKTRACE": "0", **environment}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean)

    def output(self, *arguments, **environment):
        process = self.start(*arguments, **environment)
        try:
            stdout, stderr = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired as expired:
            process.kill()
            raise Refused(f"ailoop {' '.join(arguments)} in the image did not end within {PATIENCE} s") from expired
        if process.returncode != 0:
            raise Refused(f"ailoop {' '.join(arguments)} in the image ended with {process.returncode}:\n{stderr}")
        return stdout


def nats_binary():
    for found in (
        os.environ.get("AILOOP_NATS_SERVER"),
        root.REPOSITORY / ".tools/nats-server",
        shutil.which("nats-server"),
    ):
        if found and pathlib.Path(found).is_file():
            return str(found)
    raise Refused("there is no nats-server for the image's service: make setup")


@contextlib.contextmanager
def nats_server(store):
    """The port of a nats-server with JetStream, which ends with the context."""
    command = [
        nats_binary(),
        "--jetstream",
        "--store_dir",
        str(store),
        "--addr",
        "127.0.0.1",
        "--port",
        "-1",
        "--ports_file_dir",
        str(store),
    ]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE
        while not (written := list(store.glob("*.ports"))) or not written[0].read_text().strip():
            if server.poll() is not None or time.monotonic() > deadline:
                raise Refused(f"{command[0]} did not start")
            time.sleep(0.05)
        yield json.loads(written[0].read_text())["nats"][0].rpartition(":")[2]
    finally:
        server.terminate()
        server.wait()


def answer(url):
    """Status and text of a request; status 0 if nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def wait_for(url, process):
    deadline = time.monotonic() + PATIENCE
    while True:
        status, text = answer(url)
        if status == 200:
            return
        if process.poll() is not None:
            raise Refused(f"the service ended with {process.returncode}:\n{process.stderr.read()}")
        if time.monotonic() > deadline:
            process.send_signal(signal.SIGKILL)
            raise Refused(f"{url} answers {status} {text!r} after {PATIENCE} s:\n{process.stderr.read()}")
        time.sleep(0.1)


def check_service(container, store):
    """A service in the image reaches NATS by a name, becomes ready, and ends by itself when it is told to."""
    with nats_server(store) as port:
        environment = {"AILOOP__NATS__URL": f"nats://{HOST}:{port}"}
        container.output("bootstrap", **environment)
        health = f"127.0.0.1:{free_port()}"
        service = container.start("composer", AILOOP__HEALTH__LISTEN=health, **environment)
        try:
            for path in ("healthz", "readyz"):
                wait_for(f"http://{health}/{path}", service)
            service.send_signal(signal.SIGTERM)
            _, log = service.communicate(timeout=PATIENCE)
        finally:
            if service.poll() is None:
                service.kill()
        if service.returncode != 0:
            raise Refused(f"the service ended with {service.returncode} after SIGTERM:\n{log}")
        return log


def check(folder, config):
    """Tries an unpacked image. Returns what was seen, a line each."""
    container = Container(folder, config)
    version = container.output("--version").strip()
    labels = config["config"]["Labels"]
    if labels["org.opencontainers.image.version"] != version.split()[1]:
        raise Refused(
            f"the image is labelled {labels['org.opencontainers.image.version']}, and its binary says {version}"
        )
    checked = container.output("config", "check").strip()
    certificates = (folder / root.CERTIFICATES).read_text().count("BEGIN CERTIFICATE")
    if certificates < 100:
        raise Refused(f"{root.CERTIFICATES} has {certificates} certificates")
    with tempfile.TemporaryDirectory() as store:
        log = check_service(container, pathlib.Path(store))
    commit = json.loads(container.output("version", "--json"))["commit"]
    if commit and not re.search(rf"commit\W+{commit}", re.sub(r"\x1b\[[0-9;]*m", "", log)):
        raise Refused(f"the service does not log its commit {commit}:\n{log}")
    return [
        f"--version: {version}",
        f"config check: {checked}",
        "composer: /healthz and /readyz answer 200 with NATS under a name of /etc/hosts; it ends after SIGTERM",
        f"{certificates} certification authorities",
    ]
