"""The programs `kubectl` and `helm` of an operator: each asks the runner over a socket, which carries the command out."""

import json
import os
import socket
import socketserver
import struct
import sys
import threading

from . import helm, kubectl
from .image import ROOT
from .manifests import Refused

PROGRAMS = {"kubectl": kubectl.Commands, "helm": helm.Commands}


class Server(socketserver.ThreadingUnixStreamServer):
    """Takes the calls of the programs, one a connection."""

    daemon_threads = True

    def __init__(self, cluster):
        self.cluster, self.releases = cluster, helm.Releases(cluster)
        self.directory = cluster.state / "bin"
        self.directory.mkdir()
        path = cluster.state / "commands.sock"
        super().__init__(str(path), Handler)
        for name in PROGRAMS:
            script = self.directory / name
            script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}/scripts" exec "{sys.executable}" -m pods.shims "{path}" {name} "$@"\n')
            script.chmod(0o755)
        threading.Thread(target=self.serve_forever, name="commands", daemon=True).start()


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        credentials = self.request.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        call = json.loads(self.rfile.readline())
        call["pid"] = struct.unpack("3i", credentials)[0]
        code, error = 0, ""
        try:
            PROGRAMS[call["program"]](self.server, call, self.request).run()
        except BrokenPipeError:
            return
        except (Refused, TimeoutError, OSError) as failed:
            code, error = 1, f"{failed}\n"
        try:
            self.request.sendall(json.dumps({"error": error, "exit": code}).encode() + b"\n")
        except OSError:
            return


def main():
    path, program, *arguments = sys.argv[1:]
    text = sys.stdin.read() if "-" in arguments else ""
    call = {"program": program, "arguments": arguments, "directory": os.getcwd(), "input": text}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(json.dumps(call).encode() + b"\n")
        for line in connection.makefile():
            reply = json.loads(line)
            if "exit" in reply:
                sys.stderr.write(reply["error"])
                return reply["exit"]
            sys.stdout.write(reply["out"])
            sys.stdout.flush()
    sys.stderr.write("error: the cluster is gone\n")
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
