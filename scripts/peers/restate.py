"""Restate: its server, and a service on Node.js.

The service uses the SDK for TypeScript, since it is the faster one.
In a short trial with 16 sessions, the service took 0.8 CPU seconds for 1 000 steps.
With restate-sdk 1.3.0 for Python on hypercorn and uvloop, the same service took 1.3 beside the same server.
"""

import json
import shutil
import time
import urllib.error
import urllib.request

from .errors import Failed
from .peer import WORKERS
from .processes import START_SECONDS_MAX, free_ports
from .versions import NODE

NAME = f"Restate {NODE['@restatedev/restate-server']}"


def _post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=START_SECONDS_MAX) as response:
        return json.load(response)


def _wait_for_health(server, url):
    """Waits until the server answers: its log does not say so in one line."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        server.require_running()
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError) as error:
            if time.monotonic() > deadline:
                raise Failed(f"restate-server does not answer at {url}: {error}: {server.tail()}") from error
        time.sleep(0.2)


def _start_server(run, processes, directory):
    """Starts a server of one node. All settings but addresses are defaults: its log is synced to the disk."""
    ingress, admin, node = free_ports(3)
    env = {
        "RESTATE_BASE_DIR": str(directory / "store"),
        "RESTATE_NODE_NAME": "peers",
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_BIND_IP": "127.0.0.1",
        "RESTATE_BIND_PORT": str(node),
        "RESTATE_ADVERTISED_HOST": "127.0.0.1",
        "RESTATE_INGRESS__BIND_PORT": str(ingress),
        "RESTATE_ADMIN__BIND_PORT": str(admin),
        # Nothing goes to the outside.
        "RESTATE_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "1",
    }
    server = processes.start("restate-server", [run.packages.restate_server()], env, directory=directory)
    admin_url, ingress_url = f"http://127.0.0.1:{admin}", f"http://127.0.0.1:{ingress}"
    _wait_for_health(server, f"{admin_url}/health")
    _wait_for_health(server, f"{ingress_url}/restate/health")
    return server, admin_url, ingress_url


def _start_service(run, processes):
    """Starts the service. Node.js looks for packages beside the file, so there is a copy beside them."""
    (port,) = free_ports(1)
    script = run.packages.node_directory / "restate_service.mjs"
    shutil.copyfile(WORKERS / script.name, script)
    command = [run.packages.node(), script, run.model_url, port, run.options.restate_workers]
    service = processes.start("restate-service", command, {"NODE_ENV": "production"})
    service.wait_for("is ready", lambda text: "ready" in text)
    return service, f"http://127.0.0.1:{port}"


def levels(run):
    """Each level."""
    with run.part("restate") as (processes, directory):
        server, admin_url, ingress_url = _start_server(run, processes, directory)
        service, service_url = _start_service(run, processes)
        _post(f"{admin_url}/deployments", {"uri": service_url})
        servers = {"restate-server": [server], "service": [service]}
        for concurrency in run.options.concurrency:
            yield run.level(NAME, "restate_load", servers, concurrency, 1, lambda _: ingress_url, uncounted=True)
