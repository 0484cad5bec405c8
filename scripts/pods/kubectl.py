"""A `kubectl` for a cluster of this runner: exactly the commands that the pages use, and an error for all others."""

import argparse
import base64
import json
import pathlib
import re
import socket
import subprocess
import threading

from . import commands, manifests, probes
from .commands import Parser
from .manifests import Refused
from .network import connect, new_socket

KINDS = {
    "deploy": "Deployment", "deployment": "Deployment", "deployments": "Deployment", "sts": "StatefulSet", "statefulset": "StatefulSet",
    "job": "Job", "jobs": "Job", "pod": "Pod", "pods": "Pod", "po": "Pod", "svc": "Service", "service": "Service",
    "secret": "Secret", "configmap": "ConfigMap", "cm": "ConfigMap", "namespace": "Namespace", "node": "Node",
}


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
    delete.add_argument("--ignore-not-found", action="store_true")
    get = verb("get")
    get.add_argument("kind", choices=["pods", "pod", "secret"])
    get.add_argument("names", nargs="*")
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
    done = subprocess.run(["kubectl", "kustomize", str(directory)], capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(done.stderr.strip())
    return manifests.read(done.stdout)


def encoded(contents):
    return {key: base64.b64encode(value).decode() for key, value in contents.items()}


def secret_as_stored(document):
    """A Secret as the API server gives it: `stringData` is for writing only."""
    kept = {name: value for name, value in document.items() if name != "stringData"}
    return {"apiVersion": "v1"} | kept | {"data": encoded(manifests.contents(document))}


class Commands(commands.Commands):
    """Carries out the commands of one call."""

    parser = staticmethod(parser)

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
                data[key or pathlib.PurePath(path).name] = (self.directory / path).read_bytes()
            document = {"kind": "Secret", "metadata": {"name": arguments.name}, "data": encoded(data)}
        kind, namespace, name = manifests.key_of(document, arguments.namespace)
        if self.cluster.lookup(kind, name, namespace):
            raise Refused(f'Error from server (AlreadyExists): {kind.lower()}s "{name}" already exists')
        self.print("\n".join(self.cluster.apply(document, arguments.namespace)))

    def _apply(self, arguments):
        if arguments.kustomization:
            documents = render(self.directory / arguments.kustomization)
        else:
            documents = manifests.read(self.request["input"] if arguments.file == "-" else self.directory / arguments.file)
        self.print("\n".join(self.cluster.apply(documents, arguments.namespace)))

    def _delete(self, arguments):
        kind = KINDS[arguments.kind]
        if kind == "Pod":
            self.cluster.move(self.cluster.find(arguments.name, arguments.namespace))
        else:
            if arguments.ignore_not_found and self.cluster.lookup(kind, arguments.name, arguments.namespace) is None:
                return
            self.cluster.delete(kind, arguments.namespace, arguments.name)
        self.print(f'{kind.lower()} "{arguments.name}" deleted')

    def _get(self, arguments):
        if arguments.kind == "secret":
            self._get_secrets(arguments)
            return
        labels = dict(pair.split("=") for pair in arguments.selector.split(",") if pair)
        self.print(f"{'NAME':45} {'READY':6} {'STATUS':28} {'RESTARTS':9} {'IP':14} NODE")
        for pod in self.cluster.select(arguments.namespace, labels):
            if pod.name in arguments.names or not arguments.names:
                ready = f"{sum(state.ready for state in pod.containers)}/{len(pod.containers)}"
                self.print(f"{pod.name:45} {ready:6} {pod.status():28} {pod.restarts:<9} {pod.ip or '-':14} {pod.node or '-'}")

    def _get_secrets(self, arguments):
        """Secrets as JSON, or one key of a Secret, decoded."""
        secrets = [self._object("Secret", arguments.namespace, name) for name in arguments.names]
        found = re.fullmatch(r"go-template=\{\{\.data\.([\w-]+) \| base64decode\}\}", arguments.output)
        if found and len(secrets) == 1:
            self.write(manifests.contents(secrets[0])[found.group(1)].decode())
        elif secrets and arguments.output == "json":
            items = [secret_as_stored(secret) for secret in secrets]
            self.print(json.dumps(items[0] if len(items) == 1 else {"apiVersion": "v1", "kind": "List", "items": items}))
        else:
            raise Refused("this kubectl gives Secrets by -o json, and a key of one by -o go-template='{{.data.KEY | base64decode}}'")

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
