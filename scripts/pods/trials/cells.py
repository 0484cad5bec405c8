"""Two cells, each in a namespace of its own: one is stopped and the other does not notice; a resting session is moved."""

import copy
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time

from .. import kubectl, manifests
from . import OVERLAYS, expect, session, started

HERE, THERE = "ailoop", "ailoop-two"
NAMES = {HERE: "one", THERE: "two"}
TENANTS = ("acme", "globex")
SECONDS_MAX = 60
CREDENTIALS = "/var/run/secrets/ailoop-cells"


def until(holds, seconds=SECONDS_MAX):
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.5)
    return holds()


def renamed(documents, namespace):
    """The same objects in another namespace."""
    text = json.dumps(documents)
    moved = json.loads(text.replace(f".{HERE}.svc", f".{namespace}.svc"))
    for document in moved:
        if document["kind"] == "Namespace":
            document["metadata"]["name"] = namespace
        if document["metadata"].get("namespace") == HERE:
            document["metadata"]["namespace"] = namespace
        for subject in document.get("subjects", []):
            subject["namespace"] = namespace
    return moved


def table(role, directory):
    """`edge.cells`, with the credentials of a role below a directory."""
    cell = lambda namespace: {
        "name": NAMES[namespace],
        "nats": {"url": f"nats://nats.{namespace}.svc:4222", "credentials": f"{directory}/{NAMES[namespace]}/{role}.creds"},
    }
    return [cell(HERE), cell(THERE)]


def with_cells(documents, keys):
    """The objects of the first cell, whose edge addresses both, with API keys of two tenants."""
    documents = copy.deepcopy(documents)
    edge = next(document for document in documents if document["kind"] == "Deployment" and document["metadata"]["name"] == "ailoop-edge")
    pod = edge["spec"]["template"]["spec"]
    container = pod["containers"][0]
    container["env"] += [
        {"name": "AILOOP__EDGE__CELLS", "value": json.dumps(table("edge", CREDENTIALS))},
        {"name": "AILOOP__EDGE__KEYS_FILE", "value": "/var/run/secrets/keys/keys.yaml"},
    ]
    for name in NAMES.values():
        container["volumeMounts"].append({"name": f"cell-{name}", "mountPath": f"{CREDENTIALS}/{name}", "readOnly": True})
        pod["volumes"].append({"name": f"cell-{name}", "secret": {"secretName": f"cell-{name}", "defaultMode": 0o440}})
    container["volumeMounts"].append({"name": "keys", "mountPath": "/var/run/secrets/keys", "readOnly": True})
    pod["volumes"].append({"name": "keys", "secret": {"secretName": "keys", "defaultMode": 0o440}})
    return documents + [secret("keys", {"keys.yaml": keys})]


def secret(name, contents, namespace=HERE):
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "stringData": contents}


def allow_edges(namespace, of):
    """Policies by which the edges of another namespace reach the NATS of this one."""
    edges = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": of}}, "podSelector": {"matchLabels": {"app.kubernetes.io/component": "edge"}}}
    servers = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    ports = [{"protocol": "TCP", "port": 4222}]
    policy = lambda name, where, component, spec: {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": where},
        "spec": {"podSelector": {"matchLabels": {"app.kubernetes.io/component": component}}} | spec,
    }
    return [
        policy("edges-of-other-cells", namespace, "nats", {"policyTypes": ["Ingress"], "ingress": [{"from": [edges], "ports": ports}]}),
        policy("to-other-cells", of, "edge", {"policyTypes": ["Egress"], "egress": [{"to": [servers], "ports": ports}]}),
    ]


def home(tenant, number):
    """The namespace of the cell in which a session of this id starts, by the hash of docs/adr/0067."""
    weight = lambda namespace: hashlib.sha256(f"{NAMES[namespace]}\n{tenant}\n{number}".encode()).digest()[:8]
    return max(NAMES, key=weight)


def new_key(tenant, keys):
    """An API key of a tenant, whose entry is added to a file."""
    scopes = ["--scope", "run", "--scope", "observe", "--scope", "administer", "--scope", "operate"]
    done = subprocess.run([sys.argv[1], "api-key", "new", tenant, "--tenant", tenant, *scopes, "--file", str(keys)], check=True, capture_output=True, text=True)
    return next(word for word in done.stdout.split() if word.startswith("ailoop_"))


def scaled(cluster, namespace, replicas):
    """The nats-servers of a cell, in another number."""
    servers = copy.deepcopy(cluster.lookup("StatefulSet", "nats", namespace))
    servers["spec"]["replicas"] = replicas
    return servers


with tempfile.TemporaryDirectory() as directory, started("local") as cluster:
    directory = pathlib.Path(directory)
    documents = kubectl.render(OVERLAYS / "local")
    client = cluster.client("clients")
    cluster.install(renamed(documents, THERE))
    cluster.wait_ready(THERE)
    # Each cell has users of its own: the edge and the operator have credentials of both.
    for namespace, name in NAMES.items():
        users = manifests.contents(cluster.lookup("Secret", "ailoop-nats-users", namespace))
        cluster.apply(secret(f"cell-{name}", {"edge.creds": users["edge.creds"].decode()}))
        (directory / name).mkdir()
        (directory / name / "archivist.creds").write_bytes(users["archivist.creds"])
    keys = directory / "keys.yaml"
    tokens = {tenant: new_key(tenant, keys) for tenant in TENANTS}
    cluster.apply(allow_edges(THERE, HERE))
    cluster.apply(with_cells(documents, keys.read_text()))
    cluster.wait_ready(HERE)

    def ask(tenant, *words):
        return session(cluster, client, *words, token=tokens[tenant])

    def listed(tenant):
        code, output = ask(tenant, "sessions", "-o", "json")
        return sorted(json.loads(line)["session_id"] for line in output.splitlines() if line.startswith("{")) if code == 0 else None

    ids = {tenant: [f"{tenant}-{number}" for number in range(8)] for tenant in TENANTS}
    for tenant in TENANTS:
        for number in ids[tenant]:
            code, output = ask(tenant, "run", "--session", number, "Say hello.")
            expect(code == 0, f"session {number} is answered: {output.strip().splitlines()[-1:]}")
        expect({home(tenant, number) for number in ids[tenant]} == set(NAMES), f"sessions of {tenant} are in both cells")
        expect(until(lambda: listed(tenant) == ids[tenant]), f"the list of {tenant} has the sessions of both cells")

    cluster.apply(scaled(cluster, THERE, 0))
    expect(until(lambda: not [pod for pod in cluster.pods if pod.namespace == THERE and pod.name.startswith("nats-")]), "the nats-server of one cell is stopped")
    for tenant in TENANTS:
        here = [number for number in ids[tenant] if home(tenant, number) == HERE]
        there = [number for number in ids[tenant] if home(tenant, number) == THERE]
        expect(all(ask(tenant, "send", number, "Go on.")[0] == 0 for number in here), f"sessions of {tenant} in the other cell go on")
        expect(until(lambda: listed(tenant) == here), "the list has the sessions of the other cell")
        code, output = ask(tenant, "describe", there[0])
        expect(code != 0 and f"cell {NAMES[THERE]}" in output, "a session of the missing cell is refused with its name")
    cluster.apply(scaled(cluster, THERE, 1))
    for tenant in TENANTS:
        there = next(number for number in ids[tenant] if home(tenant, number) == THERE)
        expect(until(lambda: listed(tenant) == ids[tenant]), f"all sessions of {tenant} are back")
        expect(until(lambda: ask(tenant, "send", there, "Go on.")[0] == 0), "and they go on")

    # The command runs with the network of the edges, and with the operator's credentials.
    tenant = TENANTS[0]
    number = next(number for number in ids[tenant] if home(tenant, number) == HERE)
    operator = cluster.client(HERE, {"app.kubernetes.io/component": "edge"}, "operator")
    environment = {"AILOOP__EDGE__CELLS": json.dumps(table("archivist", directory))}

    def operate(*words):
        return cluster.exec_in_pod(operator, [sys.argv[1], *words, "--tenant", tenant], env=environment)

    expect(until(lambda: operate("move", number, "--to", NAMES[THERE])[0] == 0), "a session that rests is moved")
    expect(operate("export", number, "--cell", NAMES[THERE])[0] == 0, "its log is in its new cell")
    code, output = operate("export", number, "--cell", NAMES[HERE])
    expect(code != 0 and "session_moved" in output, "the old cell says where it is")
    expect(ask(tenant, "send", number, "Still there?")[0] == 0, "it goes on")
    expect(until(lambda: listed(tenant) == ids[tenant]), "it is listed once")
