"""A model server that speaks the chat completions protocol: it calls two tools, then answers, and streams slowly."""

import http.server
import json
import threading
import time

# Seconds between two words.
WORD_SECONDS = 0.2
LOOKING = "I look at the files of this directory first, and ask the slow index for the rest of what I need."
ANSWER = "The directory has what was asked for, the index agrees with it, and nothing else has to be done here now."
PROMPT_TOKENS_MIN, WORD_TOKENS = 900, 1


class ModelServer(http.server.ThreadingHTTPServer):
    """Counts the replies that are being streamed, and those whose client went away."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock, self.open, self.broken, self.whole = threading.Lock(), 0, 0, 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def base_url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        """A client that goes away is counted and not reported."""


class Handler(http.server.BaseHTTPRequestHandler):
    """One request: a reply in pieces, as server-sent events."""

    def log_message(self, *_):  # pylint: disable=arguments-differ
        """Requests are counted and not logged."""

    def do_POST(self):  # pylint: disable=invalid-name
        """Streams the reply that follows from the messages."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server = self.server
        with server.lock:
            server.open += 1
        try:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self._stream(body)
            with server.lock:
                server.whole += 1
        except OSError:
            with server.lock:
                server.broken += 1
        finally:
            with server.lock:
                server.open -= 1

    def _stream(self, body):
        messages = body["messages"]
        has_results = messages[-1]["role"] == "tool"
        words = (ANSWER if has_results else LOOKING).split()
        for word in words:
            self._send({"content": f"{word} "})
            time.sleep(WORD_SECONDS)
        if has_results:
            calls = [("continuation", {"status": "TERMINATE", "reason": "The question is answered."})]
        else:
            calls = [("list_files", {}), ("look_up", {"about": f"message {len(messages)}"})]
        for index, (name, arguments) in enumerate(calls):
            function = {"name": name, "arguments": json.dumps(arguments)}
            call = {"index": index, "id": f"call_{index}", "type": "function", "function": function}
            self._send({"tool_calls": [call]})
        self._send({}, finish="tool_calls")
        used = {"prompt_tokens": PROMPT_TOKENS_MIN + 50 * len(messages), "completion_tokens": len(words) * WORD_TOKENS}
        used["total_tokens"] = sum(used.values())
        self._event({"choices": [], "usage": used})
        self.wfile.write(b"data: [DONE]\n\n")

    def _send(self, delta, finish=None):
        self._event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    def _event(self, fields):
        self.wfile.write(b"data: " + json.dumps({"model": "scripted-1", **fields}).encode() + b"\n\n")
        self.wfile.flush()
