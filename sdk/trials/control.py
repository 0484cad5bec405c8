"""Lets a test in another process kill the edge: `POST /kill` ends it, and starts it again at the same port."""

import http.server
import threading


class Control(http.server.ThreadingHTTPServer):
    """Serves on a free port of this machine. One request at a time changes the fleet."""

    daemon_threads = True

    def __init__(self, fleet):
        super().__init__(("127.0.0.1", 0), Handler)
        self.fleet, self.lock = fleet, threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers when the edge listens again."""

    def log_message(self, *_):  # pylint: disable=arguments-differ
        """Requests are not logged."""

    def do_POST(self):  # pylint: disable=invalid-name
        """Kills the edge, and starts it."""
        with self.server.lock:
            if self.path == "/kill":
                self.server.fleet.kill_edge()
                self.server.fleet.start_edge()
        self.send_response(204)
        self.end_headers()
