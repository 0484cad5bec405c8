"""A fleet with two edges: one of `ailoop up` without credentials, and one with API keys that can be killed."""

import json
import os
import re
import signal
import subprocess
import time
import urllib.request

CONTINUATION = {"require_explicit_signal": True, "max_iterations": 10, "timeout": 120}


def agent(name, tools, approvals=()):
    """An agent with these tools of the fleet; a person allows the calls of some."""
    rules = [{"tool": tool, "ask": "always"} for tool in approvals]
    return {
        "name": name,
        "prompt_file": "eamonn_executioner.md",
        "tools": {"allow": tools, "approvals": rules},
        "continuation_config": CONTINUATION,
    }


AGENTS = {
    "default_agent": "e",
    "agents": {
        "e": agent("Eamonn the Executioner", []),
        "helper": agent("Hilda the Helper", ["list_files", "ask_user"]),
        "guarded": agent("Gwen the Guarded", ["list_files"], ["list_files"]),
    },
}
START_SECONDS_MAX = 60


class Failed(Exception):
    """A check that did not hold."""


class Fleet:
    """A running fleet below a directory. Only what was started here is ended here."""

    def __init__(self, ailoop, directory, model, agents=None):
        self.ailoop, self.directory, self.model, self.processes = ailoop, directory, model, []
        (directory / "config").mkdir()
        models = {
            "default": "scripted-model",
            "providers": {"scripted": {"kind": "openai_chat", "base_url": model.base_url}},
            "models": {"scripted-model": {"provider": "scripted", "multi_tool": True}},
        }
        (directory / "config/agents.yaml").write_text(json.dumps(agents or AGENTS))
        (directory / "config/models.yaml").write_text(json.dumps(models))
        self.env = os.environ | {"AILOOP_CONFIG": str(directory / "config")}
        self.open_url = self.nats_url = self.edge = None
        self.key = self.observer_key = self.approver_key = None
        self.edge_port = self.edge_grpc_port = "0"

    def start(self):
        """Starts everything."""
        log = self._start("up", ["up", "--no-credentials", "--ws-port", "0", "--grpc-port", "0"], {}, "Ctrl-C ends it")
        self.open_url = "http://" + re.search(r"ws://(\S+)/ws", log).group(1)
        self.nats_url = re.search(r"nats://\S+", log).group(0)
        self.key = self._make_key("everything", ["run", "observe"])
        self.observer_key = self._make_key("observer", ["observe"])
        self.approver_key = self._make_key("approver", ["run", "observe", "approve"])
        self.start_edge()

    def _make_key(self, name, scopes):
        flags = [flag for scope in scopes for flag in ("--scope", scope)]
        command = [self.ailoop, "api-key", "new", name, *flags, "--file", self.directory / "keys.yaml"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def start_edge(self):
        """Starts the edge with keys, at the ports that it had before."""
        env = {
            "AILOOP__NATS__URL": self.nats_url,
            "AILOOP__EDGE__WS__LISTEN": f"127.0.0.1:{self.edge_port}",
            "AILOOP__EDGE__GRPC__LISTEN": f"127.0.0.1:{self.edge_grpc_port}",
            "AILOOP__EDGE__KEYS_FILE": str(self.directory / "keys.yaml"),
        }
        log = self._start("edge", ["edge"], env, "edge listens")
        self.edge = self.processes[-1]
        self.edge_port = re.search(r'ws\W+127\.0\.0\.1:(\d+)', log).group(1)
        self.edge_grpc_port = re.search(r'grpc\W+127\.0\.0\.1:(\d+)', log).group(1)

    @property
    def url(self):
        """Address of the edge with keys."""
        return f"http://127.0.0.1:{self.edge_port}"

    def kill_edge(self):
        """Kills the edge with keys."""
        self.edge.send_signal(signal.SIGKILL)
        self.edge.wait()

    def count_sessions(self):
        """How many sessions there are."""
        with urllib.request.urlopen(f"{self.open_url}/v1/sessions?limit=1000") as response:
            return len(json.load(response)["sessions"])

    def _start(self, name, arguments, env, word):
        log = self.directory / f"{name}.log"
        with log.open("a") as file:
            begin = file.tell()
            process = subprocess.Popen(
                [self.ailoop, *arguments], cwd=self.directory, env=self.env | env, stdout=file, stderr=file
            )
        self.processes.append(process)
        deadline = time.monotonic() + START_SECONDS_MAX
        while word not in (text := log.read_text()[begin:]):
            if time.monotonic() > deadline or process.poll() is not None:
                raise Failed(f"ailoop {name} did not start:\n{text[-2000:]}")
            time.sleep(0.1)
        return text

    def end(self):
        """Ends what was started, and waits for it."""
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            process.wait(30)
