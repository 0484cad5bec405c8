"""A model server that wants a key: `python3 -m pods.keyed_model PORT KEYS`. It reads the file KEYS for each request."""

import collections
import http.server
import json
import pathlib
import sys

SIGNAL = '\n```json\n{"continuation": {"status": "TERMINATE", "reason": "The load is done."}}\n```'


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    keys: pathlib.Path
    used = collections.Counter()

    def log_message(self, *_):
        """Nothing: who asks prints what matters."""

    def do_GET(self):
        if self.path == "/used":
            return self._answer(200, "application/json", json.dumps(self.used))
        return self._answer(200 if self._key() else 401, "application/json", "{}")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self._key()
        if key is None:
            return self._answer(401, "application/json", json.dumps({"error": {"message": "wrong key", "type": "invalid_request_error"}}))
        self.used[f"{key} {body['model']}"] += 1
        prompt = next(message["content"] for message in reversed(body["messages"]) if message["role"] == "user")
        if isinstance(prompt, list):
            prompt = prompt[0]["text"]
        deltas = [({"role": "assistant", "content": f"Answer to {prompt.strip()}.{SIGNAL}"}, None), ({}, "stop")]
        chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]} for delta, finish in deltas]
        lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks] + ["data: [DONE]\n\n"]
        return self._answer(200, "text/event-stream", "".join(lines))

    def _key(self):
        key = self.headers.get("Authorization", "").removeprefix("Bearer ")
        return key if key in self.keys.read_text().split() else None

    def _answer(self, status, kind, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A peer that was killed is no error here."""


if __name__ == "__main__":
    Handler.keys = pathlib.Path(sys.argv[2])
    server = Server(("0.0.0.0", int(sys.argv[1])), Handler)
    print("listening", flush=True)
    server.serve_forever()
