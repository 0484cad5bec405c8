"""NATS: who logs in as whom, where the servers are, how many copies there are, and nats-server's own opinion."""

import pathlib
import re
import tempfile

from . import facts
from .paths import nats_server, run
from .refused import name_of, refuse_unless
from .workloads import component, containers, environment, named, of_kind, value_of, workloads

# Kinds of tools whose credentials a tool-host reads.
LOGIN = re.compile(r"AILOOP__TOOL_HOST__(\w+)__LOGIN__CREDENTIALS")
# An account as `ailoop nats-auth init` writes it into the Secret, in short.
AUTH = 'accounts { AILOOP { jetstream: enabled, users: [{user: anybody, password: "secret"}] } }\n'


def check(documents):
    for document, pod, container in containers(documents):
        if container["name"] == "ailoop":
            check_login(document, pod, container)
            check_address(documents, document, container)
            check_encryption(documents, document, container)
    check_copies(documents)


def role_of(container):
    """The role of a service: the first argument of the binary, except for a tool-host, which has one for each kind."""
    return container["args"][0]


def check_login(document, pod, container):
    place = name_of(document)
    if document["kind"] == "Pod":
        return
    for name in environment(container):
        old = re.search(r"__(USER|PASSWORD)$", name)
        refuse_unless(
            not old, place, f"{name} is an old way to log in", "use the variable that ends with __CREDENTIALS"
        )
    wanted = {}
    for name in environment(container):
        kind = LOGIN.fullmatch(name)
        if kind:
            wanted[name] = kind[1].lower()
        elif name == "AILOOP__NATS__CREDENTIALS":
            wanted[name] = role_of(container)
    # Webhooks and MCP servers name the file in their own section of ailoop.yaml.
    bridges = role_of(container) == "tool-host"
    problem, remedy = "has no NATS role", "set AILOOP__NATS__CREDENTIALS to its credentials file"
    refuse_unless(wanted or bridges, place, problem, remedy)
    for name, role in wanted.items():
        value = value_of(container, name)
        expected = f"{facts.CREDENTIALS}/{role}.creds"
        refuse_unless(
            role in facts.roles(), f"{place}, {name}", f"{role} is no NATS role", "use a role of values.types.yaml"
        )
        refuse_unless(
            value == expected, f"{place}, {name}", f"names {value}", f"use {expected}: each has a role of its own"
        )
    check_mounted(document, pod, container, set(wanted.values()))


def check_mounted(document, pod, container, roles):
    """Only its own credentials are in a pod, as a directory: a file by subPath would not be updated."""
    place = f"{name_of(document)}, credentials"
    volumes = [v for v in pod.get("volumes", []) if v.get("secret", {}).get("secretName") == "ailoop-nats-users"]
    refuse_unless(volumes, place, "Secret ailoop-nats-users is not mounted", "use the helper ailoop.credentialsVolume")
    mounted = {item["key"].removesuffix(".creds") for v in volumes for item in v["secret"].get("items", [])}
    whole = any("items" not in v["secret"] for v in volumes)
    refuse_unless(not whole, place, "every role's credentials are mounted", "list its own in `items`")
    foreign = mounted - roles - ({"bridge"} if role_of(container) == "tool-host" else set())
    remedy = f"mount {', '.join(sorted(roles)) or 'bridge'} alone"
    refuse_unless(not foreign, place, f"credentials of {', '.join(sorted(foreign))} are mounted", remedy)
    missing = roles - mounted
    refuse_unless(
        not missing, place, f"credentials of {', '.join(sorted(missing))} are not mounted", "add them to `items`"
    )
    for mount in container["volumeMounts"]:
        if mount["mountPath"].startswith("/var/run/secrets/"):
            refuse_unless("subPath" not in mount, place, "a Secret is mounted by subPath", "mount its directory")


def check_address(documents, document, container):
    """Every address is of a server of this release, or none is."""
    url = value_of(container, "AILOOP__NATS__URL")
    servers = of_kind(documents, "StatefulSet")
    if url is None or not servers:
        return
    known, scheme = set(), "tls" if is_encrypted(documents) else "nats"
    for server in servers:
        service, name = server["spec"]["serviceName"], server["metadata"]["name"]
        known |= {f"{scheme}://{service}:4222"} if service in named(documents, "Service") else set()
        known |= {f"{scheme}://{name}-{i}.{service}:4222" for i in range(server["spec"]["replicas"])}
    for address in url.split(","):
        place = f"{name_of(document)}, AILOOP__NATS__URL"
        refuse_unless(address in known, place, f"{address} is no nats-server", f"use {', '.join(sorted(known))}")


def is_encrypted(documents):
    """Whether nats-server has a certificate."""
    maps = named(documents, "ConfigMap").values()
    return any("tls {" in map_["data"].get("server.conf", "") for map_ in maps)


def check_encryption(documents, document, container):
    """Where nats-server encrypts, each process trusts its authority, from a file that is mounted."""
    name, place = "AILOOP__NATS__TLS__CA", name_of(document)
    if not of_kind(documents, "StatefulSet") or value_of(container, "AILOOP__NATS__URL") is None:
        return
    ca, has_tls = value_of(container, name), is_encrypted(documents)
    problem = f"has {'no ' if has_tls else ''}{name}, and nats-server {'encrypts' if has_tls else 'does not encrypt'}"
    refuse_unless(bool(ca) == has_tls, place, problem, "use the helper ailoop.nats.caEnv")
    mounts = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
    is_mounted = not ca or any(ca.startswith(f"{mount}/") for mount in mounts)
    refuse_unless(is_mounted, place, f"{name} names {ca}, which is not mounted", "use the helper ailoop.nats.caMount")


def check_copies(documents):
    servers = [server["spec"]["replicas"] for server in of_kind(documents, "StatefulSet")]
    for document, template in workloads(documents):
        if component(template) != "bootstrap":
            continue
        place, container = name_of(document), template["spec"]["containers"][0]
        copies = value_of(container, "AILOOP__NATS__REPLICAS")
        remedy = "set AILOOP__NATS__REPLICAS to 3 on three servers, and to 1 on one"
        if servers:
            problem = f"makes {copies} copies of each stream on {servers[0]} servers"
            refuse_unless(int(copies) == (3 if servers[0] >= 3 else 1), place, problem, remedy)
        fixes = container["args"] == ["bootstrap", "--fix"]
        problem = "only verifies streams, so a changed setting ends the services"
        refuse_unless(fixes, place, problem, "run `bootstrap --fix`")
        mounts = {mount["mountPath"] for mount in container.get("volumeMounts", [])}
        reads = value_of(container, "AILOOP_CONFIG") == "/etc/ailoop" and "/etc/ailoop" in mounts
        problem = "does not read the configuration, so nats.retention_days differs from what services expect"
        refuse_unless(reads, place, problem, "mount the ConfigMap of the services and set AILOOP_CONFIG")
        check_same_configuration(documents, document, template)


def check_same_configuration(documents, document, template):
    """The Job and the services read the same ailoop.yaml. A hook has a copy of it."""
    maps = {name: map_["data"].get("ailoop.yaml") for name, map_ in named(documents, "ConfigMap").items()}

    def text_of(pod):
        return next((maps.get(v["configMap"]["name"]) for v in pod["volumes"] if v["name"] == "config"), None)

    own = text_of(template["spec"])
    for other, pod in workloads(documents):
        if component(pod) == "orchestrator":
            problem = f"reads another ailoop.yaml than {name_of(other)}"
            refuse_unless(
                text_of(pod["spec"]) == own, name_of(document), problem, "use the same text in both ConfigMaps"
            )


def variables_of(document, container):
    """The environment of the first server, as its pod has it; what comes from Secrets has some value."""
    values = {}
    for name, entry in environment(container).items():
        value = f"{document['metadata']['name']}-0" if "fieldRef" in str(entry) else entry.get("value", "3a7f-secret")
        values[name] = re.sub(r"\$\((\w+)\)", lambda found, before=values: before[found[1]], value)
    return values


def check_configuration(documents):
    """nats-server accepts its configuration, with the variables of its pod."""
    for document in of_kind(documents, "StatefulSet"):
        pod = document["spec"]["template"]["spec"]
        container = next(c for c in pod["containers"] if c["name"] == "nats")
        volume = next(v for v in pod["volumes"] if v["name"] == "config")
        files = named(documents, "ConfigMap")[volume["configMap"]["name"]]["data"]
        main, env = pathlib.Path(container["args"][-1]).name, variables_of(document, container)
        refuse_unless(main in files, name_of(document), f"runs with {main}, which no ConfigMap has", "correct args")
        problem = ask_server(main, files, env)
        place, remedy = f"{name_of(document)}, {main}", "correct the configuration in nats.yaml"
        refuse_unless(not problem, place, problem, remedy)
        if document["spec"]["replicas"] > 1:
            check_cluster(document, files[main], env)


def ask_server(main, files, env):
    """What nats-server has against its configuration; empty where it has nothing."""
    with tempfile.TemporaryDirectory() as scratch:
        directory, auth = pathlib.Path(scratch) / "nats", pathlib.Path(scratch) / "nats-auth"
        directory.mkdir()
        auth.mkdir()
        (auth / "auth.conf").write_text(AUTH)
        if any("/etc/nats-tls/" in text for text in files.values()):
            make_certificate(pathlib.Path(scratch))
        for name, text in files.items():
            (directory / name).write_text(text.replace("/etc/nats-tls/", f"{scratch}/"))
        code, out, error = run(nats_server(), "-t", "-c", main, cwd=directory, env=env)
    return "" if code == 0 else (error or out).strip()


def make_certificate(directory):
    """A certificate of its own authority, as the Secret of nats-server has it."""
    key, certificate = directory / "tls.key", directory / "tls.crt"
    kind = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=nats"]
    code, out, error = run("openssl", *kind, "-keyout", key, "-out", certificate)
    refuse_unless(code == 0, "openssl", (error or out).strip(), "install openssl")
    (directory / "ca.crt").write_bytes(certificate.read_bytes())


def check_cluster(document, text, env):
    place = f"{name_of(document)}, cluster"
    for needed, remedy in (
        ("no_advertise", "clients would be sent to addresses of pods; add it to `cluster`"),
        ("authorization", "any nats-server that reaches port 6222 would read every session; add it to `cluster`"),
    ):
        refuse_unless(needed in text, place, f"has no {needed}", remedy)
    name, service = document["metadata"]["name"], document["spec"]["serviceName"]
    for i in range(document["spec"]["replicas"]):
        route = f"@{name}-{i}.{service}:6222"
        known = any(value.rstrip('"').endswith(route) for value in env.values())
        refuse_unless(
            known, place, f"no route leads to {name}-{i}", f"add a NATS_ROUTE variable that ends with {route}"
        )
