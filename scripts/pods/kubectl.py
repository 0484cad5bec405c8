"""A `kubectl` for a cluster of this runner: exactly the commands that the pages use, and an error for all others.

Commands are carried out by the runner, which this program asks over a socket. A command that is not known must fail:
a page that names it has not been tried.
"""

import argparse
import base64
import json
import os
import pathlib
import re
import shutil
import socket
import socketserver
import struct
import subprocess
import sys
import threading

from . import manifests, probes
from .image import ROOT
from .manifests import Refused
from .network import connect, new_socket

KINDS = {
    "deploy": "Deployment", "deployment": "Deployment", "deployments": "Deployment", "sts": "StatefulSet", "statefulset": "StatefulSet",
    "job": "Job", "jobs": "Job", "pod": "Pod", "pods": "Pod", "po": "Pod", "svc": "Service", "service": "Service",
    "secret": "Secret", "configmap": "ConfigMap", "cm": "ConfigMap", "namespace": "Namespace", "node": "Node",
}


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Refused(f"this kubectl does not know this command: {message}")


def parser():
    top = Parser(prog="kubectl", add_help=False)
    top.add_argument("-n", "--namespace", default="default")
    verbs = top.add_subparsers(dest="verb", required=True, parser_class=Parser)

    def verb(name, parent=verbs):
        made = parent.add_parser(name, add_help=False)
        made.add_argument("-n", "--namespace", default=argparse.SUPPRESS)
        return made

    create = verb("create").add_subparsers(dest="what", required=True, parser_class=Parser)
    verb("namespace", create).add_argument("name")
    secret = verb("secret", create)
    secret.add_argument("type", choices=["generic"])
    secret.add_argument("name")
    secret.add_argument("--from-literal", action="append", default=[])
    secret.add_argument("--from-file", action="append", default=[])
    apply = verb("apply").add_mutually_exclusive_group(required=True)
    apply.add_argument("-k", dest="kustomization")
    apply.add_argument("-f", dest="file")
    delete = verb("delete")
    delete.add_argument("kind", choices=sorted(KINDS))
    delete.add_argument("name")
    get = verb("get")
    get.add_argument("kind", choices=["pods", "pod", "secret"])
    get.add_argument("name", nargs="?")
    get.add_argument("-o", "--output", default="")
    get.add_argument("-l", "--selector", default="")
    logs = verb("logs")
    logs.add_argument("target")
    logs.add_argument("-c", "--container")
    logs.add_argument("-p", "--previous", action="store_true")
    forward = verb("port-forward")
    forward.add_argument("target")
    forward.add_argument("ports", nargs="+")
    rollout = verb("rollout")
    rollout.add_argument("action", choices=["restart", "status"])
    rollout.add_argument("target", nargs="+")
    wait = verb("wait")
    wait.add_argument("target", nargs="+")
    wait.add_argument("--for", dest="condition", choices=["condition=complete", "condition=available", "condition=ready"], required=True)
    wait.add_argument("--timeout", default="30s")
    execute = verb("exec")
    execute.add_argument("target")
    execute.add_argument("-c", "--container")
    execute.add_argument("command", nargs=argparse.REMAINDER)
    for name in ("drain", "cordon", "uncordon"):
        node = verb(name)
        node.add_argument("name")
        if name == "drain":
            node.add_argument("--ignore-daemonsets", action="store_true")
            node.add_argument("--delete-emptydir-data", action="store_true")
    return top


def render(directory):
    """Renders a kustomization by the real kubectl, which needs no cluster for it."""
    shim = os.environ.get("PODS_SHIM")
    paths = os.pathsep.join(path for path in os.environ["PATH"].split(os.pathsep) if path != shim)
    real = shutil.which("kubectl", path=paths)
    if real is None:
        raise Refused("a kustomization is rendered by `kubectl kustomize`, and there is no kubectl")
    done = subprocess.run([real, "kustomize", str(directory)], capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(done.stderr.strip())
    return manifests.read(done.stdout)


class Commands:
    """Carries out the commands of one call."""

    def __init__(self, cluster, request, client):
        self.cluster, self.request, self.client = cluster, request, client

    def print(self, text):
        self.client.sendall(json.dumps({"out": f"{text}\n"}).encode() + b"\n")

    def run(self):
        arguments = parser().parse_args(self.request["arguments"])
        getattr(self, "_" + arguments.verb.replace("-", "_"))(arguments)

    def _path(self, name):
        return pathlib.Path(self.request["directory"]) / name

    def _target(self, text, default="Pod"):
        kind, _, name = text.rpartition("/")
        if kind and kind not in KINDS:
            raise Refused(f'the server doesn\'t have a resource type "{kind}"')
        return (KINDS[kind] if kind else default), name

    def _pod(self, arguments, text):
        """The pod of a target: itself, or a ready one behind a Service or workload."""
        kind, name = self._target(text)
        if kind == "Pod":
            return self.cluster.find(name, arguments.namespace)
        document = self._object(kind, arguments.namespace, name)
        selector = document["spec"].get("selector") or {}
        labels = selector if kind == "Service" else selector.get("matchLabels") or manifests.pod_template(document)["metadata"]["labels"]
        pods = self.cluster.select(arguments.namespace, labels)
        pods = sorted(pods, key=lambda pod: (not pod.is_ready, pod.created))
        if not pods:
            raise Refused(f"no pods for {text}")
        return pods[0]

    def _object(self, kind, namespace, name):
        document = self.cluster.lookup(kind, name, "" if kind == "Namespace" else namespace)
        if document is None:
            raise Refused(f'Error from server (NotFound): {kind.lower()}s "{name}" not found')
        return document

    def _create(self, arguments):
        if arguments.what == "namespace":
            document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": arguments.name}}
        else:
            data = {}
            for literal in arguments.from_literal:
                key, _, value = literal.partition("=")
                data[key] = value.encode()
            for named in arguments.from_file:
                key, _, path = named.rpartition("=")
                data[key or pathlib.PurePath(path).name] = self._path(path).read_bytes()
            encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
            document = {"kind": "Secret", "metadata": {"name": arguments.name}, "data": encoded}
        kind, namespace, name = manifests.key_of(document, arguments.namespace)
        if self.cluster.lookup(kind, name, namespace):
            raise Refused(f'Error from server (AlreadyExists): {kind.lower()}s "{name}" already exists')
        self.print("\n".join(self.cluster.apply(document, arguments.namespace)))

    def _apply(self, arguments):
        if arguments.kustomization:
            documents = render(self._path(arguments.kustomization))
        else:
            documents = manifests.read(self.request["input"] if arguments.file == "-" else self._path(arguments.file))
        self.print("\n".join(self.cluster.apply(documents, arguments.namespace)))

    def _delete(self, arguments):
        kind = KINDS[arguments.kind]
        if kind == "Pod":
            self.cluster.move(self.cluster.find(arguments.name, arguments.namespace))
        else:
            self.cluster.delete(kind, arguments.namespace, arguments.name)
        self.print(f'{kind.lower()} "{arguments.name}" deleted')

    def _get(self, arguments):
        if arguments.kind == "secret":
            found = re.fullmatch(r"jsonpath=['\"]?\{\.data\.([\w.-]+)\}['\"]?", arguments.output)
            if not (found and arguments.name):
                raise Refused("this kubectl gives one key of a Secret, by -o jsonpath='{.data.KEY}'")
            values = manifests.contents(self._object("Secret", arguments.namespace, arguments.name))
            self.client.sendall(json.dumps({"out": base64.b64encode(values.get(found.group(1), b"")).decode()}).encode() + b"\n")
            return
        labels = dict(pair.split("=") for pair in arguments.selector.split(",") if pair)
        self.print(f"{'NAME':45} {'READY':6} {'STATUS':28} {'RESTARTS':9} {'IP':14} NODE")
        for pod in self.cluster.select(arguments.namespace, labels):
            if arguments.name in (None, pod.name):
                ready = f"{sum(state.ready for state in pod.containers)}/{len(pod.containers)}"
                self.print(f"{pod.name:45} {ready:6} {pod.status():28} {pod.restarts:<9} {pod.ip or '-':14} {pod.node or '-'}")

    def _logs(self, arguments):
        self.print(self.cluster.logs(self._pod(arguments, arguments.target), arguments.container, arguments.previous).rstrip("\n"))

    def _rollout(self, arguments):
        target = arguments.target[0] if len(arguments.target) == 1 else "/".join(arguments.target)
        kind, name = self._target(target)
        document = self._object(kind, arguments.namespace, name)
        if arguments.action == "restart":
            self.cluster.rollout_restart(kind, arguments.namespace, name)
            self.print(f"{kind.lower()}.apps/{name} restarted")
        else:
            self.cluster.wait_for(kind, manifests.key_of(document))
            self.print(f'{kind.lower()} "{name}" successfully rolled out')

    def _wait(self, arguments):
        timeout = int(re.fullmatch(r"(\d+)s", arguments.timeout).group(1))
        target = arguments.target[0] if len(arguments.target) == 1 else "/".join(arguments.target)
        kind, name = self._target(target)
        self.cluster.wait_for(kind, (kind, arguments.namespace, name), timeout)
        self.print(f"{kind.lower()}/{name} condition met")

    def _exec(self, arguments):
        command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
        code, output = self.cluster.exec_in_pod(self._pod(arguments, arguments.target), command)
        self.print(output.rstrip("\n"))
        if code:
            raise Refused(f"command terminated with exit code {code}")

    def _drain(self, arguments):
        self.cluster.drain(arguments.name)
        self.print(f"node/{arguments.name} drained")

    def _cordon(self, arguments):
        self.cluster.nodes[arguments.name] = False
        self.print(f"node/{arguments.name} cordoned")

    def _uncordon(self, arguments):
        self.cluster.uncordon(arguments.name)
        self.print(f"node/{arguments.name} uncordoned")

    def _port_forward(self, arguments):
        """Listens where the caller runs, and connects to the loopback of one pod, for as long as both are there."""
        pod = self._pod(arguments, arguments.target)
        kind, name = self._target(arguments.target)
        caller = f"/proc/{self.request['pid']}/ns/net"
        listeners = []
        for ports in arguments.ports:
            local, _, remote = ports.partition(":")
            number = self._remote_port(pod, kind, arguments.namespace, name, remote or local)
            listener = new_socket(caller)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", int(local or remote)))
            listener.listen(64)
            listeners.append(listener)
            threading.Thread(target=self._accept, args=(listener, pod, number), daemon=True).start()
            self.print(f"Forwarding from 127.0.0.1:{local or remote} -> {number}")
        try:
            self.client.settimeout(0.2)
            while not pod.gone.is_set():
                try:
                    if not self.client.recv(1):
                        return  # the caller was ended
                except TimeoutError:
                    continue
            raise Refused("error: lost connection to pod")
        finally:
            for listener in listeners:
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
                listener.close()

    def _remote_port(self, pod, kind, namespace, name, port):
        """The container's port; a port of a Service is looked up there."""
        if kind == "Service":
            for entry in self._object(kind, namespace, name)["spec"]["ports"]:
                if str(entry["port"]) == port or entry.get("name") == port:
                    port = str(entry.get("targetPort", entry["port"]))
                    break
            else:
                raise Refused(f"error: Service {name} does not have a service port {port}")
        return probes.port_number(pod.state().manifest, port)

    @staticmethod
    def _accept(listener, pod, number):
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = connect(pod.netns_path, ("127.0.0.1", number), 5)
                far.settimeout(None)
            except OSError:
                near.close()
                continue
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=_copy, args=(source, target), daemon=True).start()


def _copy(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue


class Server(socketserver.ThreadingUnixStreamServer):
    """Takes the calls of the shim, one a connection."""

    daemon_threads = True

    def __init__(self, cluster):
        self.cluster, self.calls = cluster, []
        self.directory = cluster.state / "bin"
        self.directory.mkdir()
        path = cluster.state / "kubectl.sock"
        super().__init__(str(path), Handler)
        script = self.directory / "kubectl"
        script.write_text(
            f'#!/bin/sh\nPYTHONPATH="{ROOT}/scripts" PODS_SOCKET="{path}" PODS_SHIM="{self.directory}" exec "{sys.executable}" -m pods.kubectl "$@"\n')
        script.chmod(0o755)
        threading.Thread(target=self.serve_forever, name="kubectl", daemon=True).start()


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        credentials = self.request.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        line = json.loads(self.rfile.readline())
        line["pid"] = struct.unpack("3i", credentials)[0]
        self.server.calls.append(line["arguments"])
        code, error = 0, ""
        try:
            Commands(self.server.cluster, line, self.request).run()
        except (Refused, TimeoutError, OSError) as failed:
            code, error = 1, f"{failed}\n"
        except BrokenPipeError:
            return
        try:
            self.request.sendall(json.dumps({"error": error, "exit": code}).encode() + b"\n")
        except OSError:
            return


def main():
    arguments = sys.argv[1:]
    text = sys.stdin.read() if "-" in arguments else ""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["PODS_SOCKET"])
        connection.sendall(json.dumps({"arguments": arguments, "directory": os.getcwd(), "input": text}).encode() + b"\n")
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
