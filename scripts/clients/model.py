"""A scripted model that speaks the chat completions protocol: what it answers follows from the messages alone."""

import http.server
import json
import threading
import time

# Seconds between two words of a request that says `slowly`.
WORD_SECONDS = 0.15
# Words of a request, and the call of an agent's tool that follows.
ASKED_TOOLS = [
    ("list files", "list_files", {"path": "."}),
    ("list the files", "list_files", {"path": "."}),
    ("write a file", "write_file", {"path": "note.txt", "content": "hello"}),
    ("ask me", "ask_user", {"question": "Which colour?"}),
    ("read marker.txt", "read", {"filePath": "marker.txt"}),
]


def reply(body):
    """The text and the calls that answer a request."""
    messages = body["messages"]
    user = [message for message in messages if message["role"] == "user"]
    asked = text_of(user[-1]["content"])
    tools = {tool["function"]["name"] for tool in body.get("tools", [])}
    done = [("continuation", {"status": "TERMINATE", "reason": "The question is answered."})]
    if messages[-1]["role"] == "tool":
        return f"The tool says: {text_of(messages[-1]['content'])}.", done
    if "weather" in asked and "weather" in tools:
        return "Let me look.", [("weather", {"city": "Bonn"})]
    for words, tool, arguments in ASKED_TOOLS:
        if words in asked and tool in tools:
            return "Let me do that.", [(tool, arguments)]
    return f"Message {len(user)} was: {asked}", done


def text_of(content):
    """The text of a message, which may have parts."""
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content)


class ModelServer(http.server.ThreadingHTTPServer):
    """Serves the model on a free port of this machine."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        # Every request, oldest first.
        self.requests = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def base_url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request, client_address):
        """A gateway that goes away is not reported."""


class Handler(http.server.BaseHTTPRequestHandler):
    """One request: a reply in pieces, as server-sent events."""

    def log_message(self, *_):  # pylint: disable=arguments-differ
        """Requests are not logged."""

    def do_POST(self):  # pylint: disable=invalid-name
        """Streams the reply."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append(body)
        text, calls = reply(body)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for word in text.split(" "):
            self._send({"content": f"{word} "})
            time.sleep(WORD_SECONDS if "slowly" in text else 0)
        for index, (name, arguments) in enumerate(calls):
            function = {"name": name, "arguments": json.dumps(arguments)}
            self._send({"tool_calls": [{"index": index, "id": f"call_{index}", "type": "function", "function": function}]})
        self._send({}, finish="tool_calls")
        self._event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _send(self, delta, finish=None):
        self._event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    def _event(self, fields):
        self.wfile.write(b"data: " + json.dumps({"model": "scripted-1", **fields}).encode() + b"\n\n")
        self.wfile.flush()
