"""Probes, made as the kubelet makes them: from the node, with their periods, timeouts and thresholds."""

import http.client
import ssl

from .manifests import Refused
from .network import connect

KINDS = ("httpGet", "tcpSocket", "exec")


def check(container):
    """Refuses probes and hooks that would silently not be made."""
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        if name in container and not any(kind in container[name] for kind in KINDS):
            raise Refused(f"container {container['name']}: a {name} by {', '.join(set(container[name]))} is not emulated")
    if "postStart" in container.get("lifecycle", {}):
        raise Refused(f"container {container['name']}: postStart is not emulated")


def port_number(container, port):
    """The number of a port that is given by name or number."""
    if isinstance(port, int) or port.isdigit():
        return int(port)
    for named in container.get("ports", []):
        if named.get("name") == port:
            return named["containerPort"]
    raise Refused(f"container {container['name']} has no port {port}")


def http_get(namespace_path, address, path, headers, timeout, use_tls=False):
    """(status, body) of a request from a network namespace."""
    connection = connect(namespace_path, address, timeout)
    if use_tls:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = context.wrap_socket(connection)
    client = http.client.HTTPConnection(*address, timeout=timeout)
    client.sock = connection
    try:
        client.request("GET", path, headers=headers)
        response = client.getresponse()
        return response.status, response.read().decode("utf-8", "replace")
    except http.client.HTTPException as error:
        raise OSError(f"not HTTP: {error!r}") from error
    finally:
        client.close()


def attempt(probe, container, run, node_path, pod_ip):
    """Makes a probe once: (whether it succeeded, why not)."""
    timeout = probe.get("timeoutSeconds", 1)
    try:
        if "exec" in probe:
            code, output = run.exec(probe["exec"]["command"], timeout)
            return code == 0, f"exit code {code}: {output.strip()[-200:]}"
        action = probe.get("httpGet") or probe["tcpSocket"]
        address = action.get("host", pod_ip), port_number(container, action["port"])
        if "tcpSocket" in probe:
            connect(node_path, address, timeout).close()
            return True, ""
        headers = {header["name"]: header["value"] for header in action.get("httpHeaders", [])}
        headers.setdefault("User-Agent", "kube-probe/1.30")
        status, body = http_get(node_path, address, action.get("path", "/"), headers, timeout, action.get("scheme") == "HTTPS")
        return 200 <= status < 400, f"HTTP {status}: {body.strip()[:200]}"
    except OSError as error:
        return False, str(error)


class Threshold:
    """Turns single results into a state: it changes after so many results in a row."""

    def __init__(self, probe, state):
        self.failures, self.successes = probe.get("failureThreshold", 3), probe.get("successThreshold", 1)
        self.state, self._run, self._last = state, 0, None

    def add(self, succeeded):
        """The state after another result."""
        self._run = self._run + 1 if succeeded == self._last else 1
        self._last = succeeded
        if self._run >= (self.successes if succeeded else self.failures):
            self.state = succeeded
        return self.state


def watch(probe, attempt_once, stopped, on_state, state):
    """Probes until `stopped` is set, or until `on_state(succeeded, reason)`, called with each state, returns true."""
    threshold = Threshold(probe, state)
    if stopped.wait(probe.get("initialDelaySeconds", 0)):
        return
    while not stopped.is_set():
        succeeded, reason = attempt_once()
        if stopped.is_set():
            return
        if on_state(threshold.add(succeeded), reason) or stopped.wait(probe.get("periodSeconds", 10)):
            return
