"""A fleet of processes on this machine: nats-server and each service apart, on free ports of the loopback address."""

import json
import os
import pathlib
import re
import signal
import subprocess

from .errors import Failed, wait_until

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Few places, so that a trial fills them with few calls.
PLACES = 5
SERVICES = [
    ("composer", "composer"),
    ("gateway-1", "gateway"),
    ("gateway-2", "gateway"),
    ("executor-1", "executor"),
    ("executor-2", "executor"),
    ("tool-host", "tool-host"),
    ("orchestrator-1", "orchestrator"),
    ("orchestrator-2", "orchestrator"),
    ("edge-1", "edge"),
    ("edge-2", "edge"),
]
ADDRESSES = {"health": r"health server listens address=(\S+)", "ws": r"edge listens ws=(\S+)", "grpc": r"grpc=(\S+)"}
START_SECONDS_MAX = 60


class Service:
    """A process of a service. It keeps its ports when it starts again, as a pod keeps its address."""

    def __init__(self, fleet, name, command):
        self.fleet, self.name, self.command = fleet, name, command
        self.log = fleet.directory / f"{name}.log"
        self.addresses, self.process, self.log_begins = {}, None, 0

    def start(self, **settings):
        listens = {"AILOOP__HEALTH__LISTEN": self.addresses.get("health", "127.0.0.1:0")}
        if self.command == "edge":
            listens["AILOOP__EDGE__WS__LISTEN"] = self.addresses.get("ws", "127.0.0.1:0")
            listens["AILOOP__EDGE__GRPC__LISTEN"] = self.addresses.get("grpc", "127.0.0.1:0")
        environment = self.fleet.environment | listens | settings
        self.log_begins = self.log.stat().st_size if self.log.exists() else 0
        self.process = self.fleet.spawn(self.log, [self.fleet.ailoop, self.command], environment)

    def wait_started(self):
        def address():
            if self.process.poll() is not None:
                raise Failed(f"{self.name} ended: {self.log.read_text()[-500:]}")
            text = self.log.read_bytes()[self.log_begins :].decode()
            found = {key: re.search(pattern, text) for key, pattern in ADDRESSES.items()}
            self.addresses |= {key: match[1] for key, match in found.items() if match}
            return "started service" in text and self.addresses.get("health")

        return wait_until(f"{self.name} starts", address, START_SECONDS_MAX)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Fleet:
    """Starts with `with`, and ends every process at the end."""

    def __init__(self, directory, ailoop, nats_server, configuration):
        self.directory, self.ailoop, self.nats_server = directory, ailoop, nats_server
        self.services = {name: Service(self, name, command) for name, command in SERVICES}
        self._processes = []
        self.nats = self.nats_address = None
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self.environment = kept | {
            "AILOOP_CONFIG": str(configuration),
            "AILOOP__GATEWAY__CONCURRENCY": str(PLACES),
            "AILOOP__EXECUTOR__CONCURRENCY": str(PLACES),
        }

    def spawn(self, log, command, environment):
        with log.open("ab") as out:
            process = subprocess.Popen(command, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        self._processes.append(process)
        return process

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self):
        store = self.directory / "nats"
        command = [self.nats_server, "-js", "-sd", store, "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", self.directory]
        self.nats = self.spawn(self.directory / "nats-server.log", list(map(str, command)), self.environment)

        def ports():
            files = list(self.directory.glob("nats-server*.ports"))
            return files and json.loads(files[0].read_text() or "{}").get("nats")

        url = wait_until("nats-server starts", ports, 10)[0]
        self.nats_address = url.removeprefix("nats://")
        self.environment["AILOOP__NATS__URL"] = url
        subprocess.run([self.ailoop, "bootstrap"], env=self.environment, check=True, capture_output=True)
        for service in self.services.values():
            service.start()
        for service in self.services.values():
            service.wait_started()

    def __exit__(self, *_):
        # nats-server last, so that services end in order. A frozen one takes no signal but these.
        for process in reversed(self._processes):
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
                if process is not self.nats:
                    continue
            self._end(process)
        for process in self._processes:
            self._end(process)

    @staticmethod
    def _end(process):
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def restart(self, *names, **settings):
        """Kills services, and starts them with other settings."""
        for name in names:
            self.services[name].kill()
        self.start(*names, **settings)

    def kill(self, *names):
        for name in names:
            self.services[name].kill()

    def start(self, *names, **settings):
        for name in names:
            self.services[name].start(**settings)
        for name in names:
            self.services[name].wait_started()

    def freeze_nats(self):
        self.nats.send_signal(signal.SIGSTOP)

    def thaw_nats(self):
        self.nats.send_signal(signal.SIGCONT)

    def targets(self):
        """Addresses to scrape."""
        return [service.addresses["health"] for service in self.services.values()]

    def edge(self):
        return self.services["edge-1"].addresses["ws"]
