"""The fleet of a run: nats-server, each service as a process of its own, and clients on the command line."""

import json
import os
import pathlib
import subprocess
import sys
import threading

from .errors import Failed
from .processes import free_ports, wait_until

REPLICAS = {"composer": 1, "gateway": 2, "executor": 2, "tool-host": 1, "orchestrator": 3, "edge": 1}
# Calls that a gateway or an executor may run at the same time: more calls than this run at two of them.
CONCURRENCY = 3
TOOLS = ("list_files", "look_up")
TURN_SECONDS_MAX = 180

AGENTS = {
    "default_agent": "e",
    "agents": {
        "e": {
            "name": "Eamonn the Executioner",
            "prompt_file": "eamonn_executioner.md",
            "tools": {"allow": list(TOOLS)},
            "continuation_config": {"require_explicit_signal": True, "max_iterations": 10, "timeout": 300},
        }
    },
}


def models(base_url):
    """The `models.yaml` with the scripted model alone. Its prices are invented."""
    prices = {"input": 1.0, "output": 4.0}
    model = {"provider": "scripted", "multi_tool": True, "max_parallel_tools": 8, "prices": prices}
    return {
        "default": "scripted-model",
        "providers": {"scripted": {"kind": "openai_chat", "base_url": base_url}},
        "models": {"scripted-model": model},
    }


class Fleet:
    """A running fleet. `silent` names replicas that send no spans."""

    def __init__(self, processes, ailoop, nats_server, directory, otlp_endpoint, silent=()):
        self.processes, self.ailoop, self.nats_server = processes, ailoop, nats_server
        self.directory, self.otlp_endpoint, self.silent = directory, otlp_endpoint, set(silent)
        nats_port, ws_port, self.grpc_port = free_ports(3)
        self.nats_url = f"nats://127.0.0.1:{nats_port}"
        self.env = {
            "AILOOP_CONFIG": str(directory / "config"),
            "AILOOP__NATS__URL": self.nats_url,
            "AILOOP__EDGE__WS__LISTEN": f"127.0.0.1:{ws_port}",
            "AILOOP__EDGE__GRPC__LISTEN": f"127.0.0.1:{self.grpc_port}",
            "AILOOP__GATEWAY__CONCURRENCY": str(CONCURRENCY),
            "AILOOP__EXECUTOR__CONCURRENCY": str(CONCURRENCY),
            "AILOOP__TOOL_HOST__FILES__ROOT": str(directory / "files"),
            "AILOOP__TOOL_HOST__FILES__OUT": str(directory / "out"),
        }
        self.names = [
            f"{service}-{number}" for service, count in REPLICAS.items() for number in range(1, count + 1)
        ]
        if unknown := self.silent - set(self.names):
            raise Failed(f"no replica has the name {', '.join(sorted(unknown))}; these exist: {', '.join(self.names)}")

    def start(self, model_url):
        """Starts everything; returns when the tools are known."""
        for name in ("config", "files", "out", "nats"):
            (self.directory / name).mkdir()
        (self.directory / "config/agents.yaml").write_text(json.dumps(AGENTS))
        (self.directory / "config/models.yaml").write_text(json.dumps(models(model_url)))
        (self.directory / "files/notes.md").write_text("# Notes\n")
        port = self.nats_url.rpartition(":")[2]
        nats = [self.nats_server, "-a", "127.0.0.1", "-p", port, "-js", "-sd", self.directory / "nats"]
        self.processes.start("nats", nats, {}, lambda log: "Server is ready" in log)
        self.command("bootstrap")
        for name in self.names:
            self.start_replica(name)
        tool = [sys.executable, pathlib.Path(__file__).parent / "tool.py"]
        self.processes.start("tool", tool, {"NATS_URL": self.nats_url}, lambda log: "serving" in log)
        known = lambda: all(tool in self.command("tools", "--url", self.url) for tool in TOOLS)
        wait_until("the executors know the tools", known, 30)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.grpc_port}"

    def start_replica(self, name):
        """Starts a service. All its spans are sampled, and sent unless it is silent."""
        service = name.rpartition("-")[0]
        env = dict(self.env)
        if name not in self.silent:
            env |= {"AILOOP__TELEMETRY__OTLP_ENDPOINT": self.otlp_endpoint, "OTEL_METRICS_EXPORTER": "none"}
        env |= {"AILOOP__TELEMETRY__SAMPLE_RATIO": "1"}
        self.processes.start(name, [self.ailoop, service], env, lambda log: " started" in log)

    def command(self, *arguments):
        """The output of a command of `ailoop`, which must succeed."""
        result = subprocess.run(
            [str(self.ailoop), *arguments], env={"PATH": os.environ["PATH"]} | self.env, cwd=self.directory,
            capture_output=True, text=True, timeout=TURN_SECONDS_MAX, check=False,
        )
        if result.returncode:
            raise Failed(f"ailoop {arguments[0]} ended with {result.returncode}: {result.stderr.strip()[-500:]}")
        return result.stdout

    def begin_turns(self, sessions, prompt):
        """Begins a turn in each session; gives what to `join`."""
        return [Turn(self, session, prompt) for session in sessions]

    def export(self, session):
        """The whole log of a session: the lines of `ailoop export`."""
        return [json.loads(line) for line in self.command("export", session, "--nats", self.nats_url).splitlines()]

    def tool_calls(self):
        """How many calls of the slow tool run now."""
        lines = (self.processes.logs / "tool.log").read_text().splitlines()
        return lines.count("begin") - lines.count("end")


class Turn(threading.Thread):
    """A client that sends a message and waits for the answer."""

    def __init__(self, fleet, session, prompt):
        super().__init__(daemon=True)
        self.fleet, self.session, self.prompt, self.error = fleet, session, prompt, None
        self.start()

    def run(self):
        try:
            arguments = ["--session", self.session, "--timeout", f"{TURN_SECONDS_MAX - 10}s", self.prompt]
            self.fleet.command("run", "--url", self.fleet.url, *arguments)
        except (Failed, subprocess.TimeoutExpired) as error:
            self.error = error

    def end(self):
        """Waits for the answer; fails when there is none."""
        self.join()
        if self.error:
            raise Failed(f"a turn of {self.session} has no answer: {self.error}")
