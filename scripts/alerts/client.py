"""Clients of the fleet: JSON-RPC over WebSocket to the edge, and the protocol of NATS for what the edge does not offer."""

import base64
import json
import os
import socket
import struct
import threading
import time
import uuid

from .errors import Failed

ANSWER_SECONDS_MAX = 60


class Client:
    """One connection to an edge. A call waits for its answer; one thread at a time."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS_MAX)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET /ws HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        self.stream = self.socket.makefile("rb")
        status = self.stream.readline()
        while self.stream.readline() not in (b"\r\n", b""):
            pass
        if b" 101 " not in status:
            raise Failed(f"the edge refuses a WebSocket: {status!r}")
        self.number = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def _send(self, opcode, data):
        mask = os.urandom(4)
        size = bytes([128 | len(data)]) if len(data) < 126 else bytes([128 | 126]) + struct.pack(">H", len(data))
        masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))
        self.socket.sendall(bytes([128 | opcode]) + size + mask + masked)

    def _receive(self):
        """(opcode, data) of the next frame."""
        head = self.stream.read(2)
        if len(head) < 2:
            raise Failed("the edge closed the connection")
        size = head[1] & 127
        if size >= 126:
            length = 2 if size == 126 else 8
            size = int.from_bytes(self.stream.read(length), "big")
        return head[0] & 15, self.stream.read(size)

    def call(self, method, **parameters):
        """The result of a request, or a dict with `error`, the code."""
        self.number += 1
        request = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": parameters}
        self._send(1, json.dumps(request).encode())
        while True:
            opcode, data = self._receive()
            if opcode == 9:
                self._send(10, data)
            elif opcode == 8:
                raise Failed("the edge closed the connection")
            elif opcode == 1:
                answer = json.loads(data)
                if answer.get("id") == self.number:
                    if "error" in answer:
                        return {"error": answer["error"].get("data", {}).get("code"), "message": answer["error"]["message"]}
                    return answer["result"]

    def start(self, prompt, model="steady", **parameters):
        """Starts a session, and gives its id without waiting for the turn."""
        parameters = {"agent": "w", "prompt": prompt, "model": model, "wait": False} | parameters
        answer = self.call("session.start", **parameters)
        if "error" in answer:
            raise Failed(f"session.start: {answer}")
        return answer["session_id"]

    def wait_turn(self, session, phases=("idle", "ended"), seconds_max=ANSWER_SECONDS_MAX):
        """Waits until no turn of the session runs."""
        ends = time.monotonic() + seconds_max
        while time.monotonic() < ends:
            found = self.call("session.get", session_id=session)
            if found.get("phase") in phases and found.get("turn", 0) > 0:
                return found
            time.sleep(0.1)
        raise Failed(f"a turn of {session} does not end: {found}")


class Traffic:
    """Calls a function again and again in threads, each with a connection of its own, until the end of the `with` block."""

    def __init__(self, address, work, threads=1, pause=0.2):
        self.address, self.work, self.pause = address, work, pause
        self.errors, self.count = [], 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(ANSWER_SECONDS_MAX)

    def _run(self):
        client = None
        while not self._stop.is_set():
            try:
                client = client or Client(self.address)
                self.work(client)
                self.count += 1
            except (Failed, OSError, ValueError) as error:
                self.errors.append(str(error))
                client = None
            self._stop.wait(self.pause)


def nats_request(address, subject, body=b"", wants_answer=True):
    """Publishes a message on a server without users, and gives the answer."""
    host, port = address.rsplit(":", 1)
    inbox = f"_INBOX.{uuid.uuid4().hex}"
    with socket.create_connection((host, int(port)), timeout=10) as connection, connection.makefile("rb") as lines:
        lines.readline()
        connection.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\n' + f"SUB {inbox} 1\r\n".encode())
        connection.sendall(f"PUB {subject} {inbox} {len(body)}\r\n".encode() + body + b"\r\nPING\r\n")
        while True:
            line = lines.readline().split()
            if line[:1] == [b"MSG"]:
                return json.loads(lines.read(int(line[-1])))
            if line[:1] == [b"PONG"] and not wants_answer:
                return None
            if line[:1] in ([b"-ERR"], []):
                raise Failed(f"NATS refuses {subject}: {line}")
