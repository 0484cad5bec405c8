"""A model server and the endpoints of tools, both by HTTP and both by script: what they do is set by the trial."""

import http.server
import json
import re
import socket
import threading

# Names of models. Each trial has its own, so that the failures of one are not those of the next.
MODELS = ["steady", "flaky", "failing", "locked", "broken", "hang-a", "hang-b", "hang-c", "hang-d"]
HANG_SECONDS_MAX = 600


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses = {}  # by model: an HTTP status in place of an answer
        self.hanging = threading.Event()
        self.released = threading.Event()
        self.flaky_requests = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def hang(self):
        """From now on, the models `hang-*` and the tool `hang` answer nothing."""
        self.released.clear()
        self.hanging.set()

    def release(self):
        self.hanging.clear()
        self.released.set()

    def wait_released(self):
        if self.hanging.is_set():
            self.released.wait(HANG_SECONDS_MAX)

    def handle_error(self, request, client_address):
        """A peer that was killed is no error here."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Nothing: the trials print what matters."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if self.path.startswith("/tool/"):
            self._tool(self.path.removeprefix("/tool/"))
        else:
            self._model(body)

    def _tool(self, name):
        if name == "drop":
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        if name == "hang":
            self.server.wait_released()
        self._answer(200, "text/plain", b"The tool is done.")

    def _model(self, body):
        model = body["model"]
        status = self.server.statuses.get(model)
        if model == "flaky":
            # So seldom that the gateway's next try succeeds.
            self.server.flaky_requests += 1
            status = 503 if self.server.flaky_requests % 5 == 0 else None
        if status:
            error = {"error": {"message": "by the script of the test", "type": "test"}}
            self._answer(status, "application/json", json.dumps(error).encode())
            return
        if model.startswith("hang-"):
            self.server.wait_released()
        last = body["messages"][-1]
        wanted = re.search(r"call (\w+)", str(last["content"])) if last["role"] == "user" else None
        delta = {"role": "assistant", "content": "It is done."}
        if wanted:
            function = {"name": wanted[1], "arguments": "{}"}
            delta = {"role": "assistant", "tool_calls": [{"index": 0, "id": "t1", "type": "function", "function": function}]}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        finish = "tool_calls" if wanted else "stop"
        chunks = [{"index": 0, "delta": delta, "finish_reason": None}], [{"index": 0, "delta": {}, "finish_reason": finish}]
        events = [{"id": "c1", "object": "chat.completion.chunk", "model": model, "choices": chunk} for chunk in chunks]
        events.append({"id": "c1", "object": "chat.completion.chunk", "model": model, "choices": [], "usage": usage})
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        self._answer(200, "text/event-stream", text.encode())

    def _answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Exporter(http.server.ThreadingHTTPServer):
    """Serves the text of metrics that no process of this build can have."""

    daemon_threads = True

    def __init__(self, text):
        class Metrics(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                """Nothing."""

            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(text.encode())

        super().__init__(("127.0.0.1", 0), Metrics)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"127.0.0.1:{self.server_address[1]}"


def write_configuration(directory, url):
    """Models, tools and one agent, as files of a configuration directory."""
    directory.mkdir()
    models = {
        name: {"provider": "fake", "context_window": 100_000, "max_output": 1_000, "prices": {"input": 1.0, "output": 2.0}}
        for name in MODELS
    }
    provider = {"kind": "openai_chat", "base_url": f"{url}/v1"}
    write(directory / "models.yaml", {"providers": {"fake": provider}, "models": models})
    tools = {
        "quick": {"effect": "pure"},
        "hang": {"effect": "pure", "timeout": 600},
        "drop": {"effect": "at_most_once"},
        "ask": {"effect": "pure", "approval": "always"},
    }
    webhooks = {
        f"alerts_{name}": {"url": f"{url}/tool/{name}", "description": f"The tool {name} of the test."} | settings
        for name, settings in tools.items()
    }
    write(directory / "ailoop.yaml", {"tool_host": {"webhooks": webhooks}})
    write(directory / "agents.yaml", agents())


def agents():
    continuation = {"enabled": False, "timeout": 600, "retries": 0}
    agent = {"name": "Wanda the Worker", "tools": {"allow": sorted(f"alerts_{name}" for name in ("quick", "hang", "drop", "ask"))}}
    return {"default_agent": "w", "agents": {"w": agent | {"continuation_config": continuation}}}


def write(path, value):
    """JSON is YAML."""
    path.write_text(json.dumps(value, indent=2))
