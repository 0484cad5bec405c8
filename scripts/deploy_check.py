"""Checks deploy/ without a cluster, then checks itself: what it must refuse is planted and must be refused.

Run by scripts/deploy-check.sh, which brings the pinned packages.
"""

import copy
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
# The oldest that the manifests are written for, and the newest whose schemas are there.
VERSIONS = ["1.30.0", "1.37.0"]
# Seconds that a pod needs beside its drain: flushing telemetry, closing connections.
SLACK = 5
# Secrets that the operator makes; none is in the repository.
SECRETS = {"ailoop-nats", "ailoop-edge", "ailoop-providers"}


class Refused(Exception):
    """Something in deploy/ is wrong."""


def refuse_unless(holds, why):
    if not holds:
        raise Refused(why)


def name_of(document):
    return f"{document.get('kind')}/{document.get('metadata', {}).get('name')}"


def check_schema(documents):
    """Every field must be known and of the right type, in every version."""
    for document in documents:
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                where = ".".join(str(part) for part in error.path)
                raise Refused(f"{name_of(document)} at {where or 'the top'} (Kubernetes {version}): {error.message[:300]}")
            except kubernetes_validate.SchemaNotFoundError as error:
                raise Refused(f"{name_of(document)}: {error}")


def workloads(documents):
    """(document, pod template) of everything that makes pods."""
    return [(d, d["spec"]["template"]) for d in documents if d["kind"] in ("Deployment", "StatefulSet", "Job")]


def check_pods(documents):
    """Hardened, bounded, and given the time that their drain takes."""
    for document, template in workloads(documents):
        name, pod = name_of(document), template["spec"]
        context = pod.get("securityContext", {})
        refuse_unless(context.get("runAsNonRoot") is True, f"{name} may run as root")
        refuse_unless(context.get("seccompProfile", {}).get("type") == "RuntimeDefault", f"{name} has no seccomp profile")
        refuse_unless(pod.get("automountServiceAccountToken") is False, f"{name} mounts a token")
        for container in pod["containers"]:
            own = container.get("securityContext", {})
            hard = (
                own.get("allowPrivilegeEscalation") is False
                and own.get("readOnlyRootFilesystem") is True
                and own.get("capabilities", {}).get("drop") == ["ALL"]
            )
            refuse_unless(hard, f"{name}: container {container['name']} is not hardened")
            resources = container.get("resources", {})
            refuse_unless("memory" in resources.get("limits", {}), f"{name} has no limit of memory")
            refuse_unless("cpu" in resources.get("requests", {}), f"{name} requests no cpu")
            refuse_unless(":" in container["image"], f"{name}: image {container['image']} has no tag")
            if document["kind"] != "Job":
                for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                    refuse_unless(probe in container, f"{name} has no {probe}")
            env = {entry["name"]: entry.get("value") for entry in container.get("env", [])}
            if document["kind"] == "Deployment":
                stop = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
                needed = int(env["AILOOP__DRAIN_TIMEOUT"]) + stop + SLACK
                grace = pod["terminationGracePeriodSeconds"]
                refuse_unless(needed <= grace, f"{name} needs {needed} s to end and gets {grace} s")


def check_references(documents):
    """What is named is there."""
    named = {kind: {d["metadata"]["name"] for d in documents if d["kind"] == kind} for kind in ("ConfigMap", "ServiceAccount")}
    labels = [template["metadata"]["labels"] for _, template in workloads(documents)]

    def selects(selector):
        return any(selector.items() <= of.items() for of in labels)

    for document, template in workloads(documents):
        name, pod = name_of(document), template["spec"]
        refuse_unless(pod.get("serviceAccountName") in named["ServiceAccount"], f"{name} has no service account")
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        volumes |= {claim["metadata"]["name"] for claim in document["spec"].get("volumeClaimTemplates", [])}
        for volume in pod.get("volumes", []):
            if "configMap" in volume:
                refuse_unless(volume["configMap"]["name"] in named["ConfigMap"], f"{name}: no ConfigMap for {volume['name']}")
                keys = next(d for d in documents if d["kind"] == "ConfigMap" and d["metadata"]["name"] == volume["configMap"]["name"])["data"]
                for item in volume["configMap"].get("items", []):
                    refuse_unless(item["key"] in keys, f"{name}: {item['key']} is not in {volume['configMap']['name']}")
        for container in pod["containers"]:
            for mount in container.get("volumeMounts", []):
                refuse_unless(mount["name"] in volumes, f"{name}: no volume {mount['name']}")
            for entry in container.get("env", []):
                secret = entry.get("valueFrom", {}).get("secretKeyRef", {}).get("name")
                refuse_unless(secret is None or secret in SECRETS, f"{name}: unknown secret {secret}")
        if document["kind"] != "Job":
            refuse_unless(selects(document["spec"]["selector"]["matchLabels"]), f"{name} selects nothing")
    for document in documents:
        if document["kind"] == "Service":
            refuse_unless(selects(document["spec"]["selector"]), f"{name_of(document)} selects nothing")
        if document["kind"] == "PodDisruptionBudget":
            refuse_unless(selects(document["spec"]["selector"]["matchLabels"]), f"{name_of(document)} selects nothing")
        refuse_unless(document["kind"] != "Secret", "a Secret stands in the repository")


def check_passwords(documents):
    """nats-server gets the password of each user, and each service is a user that there is."""
    text = (DEPLOY / "nats/ailoop.conf").read_text()
    wanted, users = set(re.findall(r"\$(AILOOP_NATS_\w+)", text)), set(re.findall(r"^\s*user: (\S+)", text, re.M))
    for document, template in workloads(documents):
        for container in template["spec"]["containers"]:
            env = {entry["name"]: entry for entry in container.get("env", [])}
            if document["kind"] == "StatefulSet":
                given = {name for name in env if name.startswith("AILOOP_NATS_")}
                refuse_unless(given == wanted, f"{name_of(document)}: passwords differ: {sorted(given ^ wanted)}")
            else:
                # A tool-host has a user for each kind of tools, and no other.
                prefixes = [name.removesuffix("__USER") for name in env if re.search(r"__(NATS|LOGIN)__USER$", name)]
                refuse_unless(prefixes, f"{name_of(document)} has no NATS user")
                for prefix in prefixes:
                    user = env[f"{prefix}__USER"]["value"]
                    key = env.get(f"{prefix}__PASSWORD", {}).get("valueFrom", {}).get("secretKeyRef", {}).get("key")
                    refuse_unless(user in users and user == key, f"{name_of(document)}: user {user}, password of {key}")
                    kind = prefix.removeprefix("AILOOP__TOOL_HOST__").removesuffix("__LOGIN").lower()
                    runs = "tool-host" if prefix.endswith("__LOGIN") else user
                    refuse_unless(runs == user or kind == user, f"{name_of(document)}: {kind} logs in as {user}")
                    refuse_unless(container["args"] == [runs], f"{name_of(document)} runs {container['args']} as {user}")


def check_rendered(documents):
    check_schema(documents)
    check_pods(documents)
    check_references(documents)
    check_passwords(documents)


def check_config_maps():
    """Every prompt and every file of the configuration goes into a ConfigMap."""
    for directory, pattern in (("prompts", "**/*.md"), ("config", "**/*.yaml")):
        text = (ROOT / directory / "kustomization.yaml").read_text()
        for path in (ROOT / directory).glob(pattern):
            inside = path.relative_to(ROOT / directory).as_posix()
            refuse_unless(inside == "kustomization.yaml" or inside in text, f"{directory}/kustomization.yaml lacks {inside}")


def check_dockerfile(text):
    for line in text.splitlines():
        if line.startswith("COPY ") and "--from=" not in line:
            for source in line.split()[1:-1]:
                refuse_unless((ROOT / source).exists(), f"deploy/Dockerfile copies {source}, which is not there")


def nats_server():
    named = os.environ.get("AILOOP_NATS_SERVER")
    tools = ROOT / ".tools/nats-server"
    return named or (str(tools) if tools.exists() else shutil.which("nats-server"))


def check_nats(directory, binary):
    text = (directory / "ailoop.conf").read_text()
    env = {name: "secret" for name in re.findall(r"\$(AILOOP_NATS_\w+)", text)} | {"POD_NAME": "nats-0"}
    for name in ("server.conf", "cluster.conf"):
        done = subprocess.run([binary, "-t", "-c", name], cwd=directory, env=env, capture_output=True, text=True)
        refuse_unless(done.returncode == 0, f"{name}: {(done.stderr or done.stdout).strip()}")


def render(overlay):
    done = subprocess.run(["kubectl", "kustomize", str(overlay)], capture_output=True, text=True)
    refuse_unless(done.returncode == 0, f"{overlay.name} is not rendered: {done.stderr.strip()}")
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def must_refuse(what, check, *arguments):
    try:
        check(*arguments)
    except Refused:
        return
    raise Refused(f"the check itself is broken: it lets in {what}")


def self_test(documents, binary):
    """Plants what must be refused, one by one."""

    def planted(kind, change):
        """Changes the first document of a kind, or of `kind/name`."""
        copies = copy.deepcopy(documents)
        kind, _, name = kind.partition("/")
        fits = (d for d in copies if d["kind"] == kind and d["metadata"]["name"].startswith(name))
        change(next(fits))
        return copies

    def container(document):
        return document["spec"]["template"]["spec"]["containers"][0]

    def variable(document, end):
        return next(entry for entry in container(document)["env"] if entry["name"].endswith(end))

    mutations = [
        ("an unknown field", "Deployment", lambda d: d["spec"]["template"]["spec"].update(terminationGracePeriod=3)),
        ("an unknown field in a probe", "Deployment", lambda d: container(d)["livenessProbe"].update(intervalSeconds=3)),
        ("a wrong type", "Deployment", lambda d: d["spec"].update(replicas="two")),
        ("a missing field", "Deployment", lambda d: d["spec"].pop("selector")),
        ("an unknown field of a policy", "NetworkPolicy", lambda d: d["spec"].update(direction="in")),
    ]
    for what, kind, change in mutations:
        must_refuse(what, check_schema, planted(kind, change))
    deeper = [
        ("a drain longer than the grace", check_pods, "Deployment", lambda d: d["spec"]["template"]["spec"].update(terminationGracePeriodSeconds=5)),
        ("a container that may write its image", check_pods, "Deployment", lambda d: container(d)["securityContext"].pop("readOnlyRootFilesystem")),
        ("a ConfigMap that is not there", check_references, "Deployment", lambda d: d["spec"]["template"]["spec"]["volumes"][0].update(configMap={"name": "gone"})),
        ("a Service for nobody", check_references, "Service", lambda d: d["spec"].update(selector={"app": "gone"})),
        ("nats-server without a password", check_passwords, "StatefulSet", lambda d: container(d)["env"].pop()),
        ("a service with another one's password", check_passwords, "Deployment", lambda d: container(d).update(args=["bootstrap"])),
    ]
    host = "Deployment/ailoop-tool-host"
    deeper += [
        ("a kind of tools with another one's user", check_passwords, host, lambda d: variable(d, "RESULTS__LOGIN__USER").update(value="mail")),
        ("a kind of tools without a password", check_passwords, host, lambda d: variable(d, "RESULTS__LOGIN__PASSWORD").update(name="OTHER")),
    ]
    for what, check, kind, change in deeper:
        must_refuse(what, check, planted(kind, change))
    must_refuse("a path that is not there", check_dockerfile, "COPY nowhere nowhere")
    count = len(mutations) + len(deeper) + 1
    if binary:
        with tempfile.TemporaryDirectory() as scratch:
            for path in (DEPLOY / "nats").glob("*.conf"):
                shutil.copy(path, scratch)
            broken = pathlib.Path(scratch) / "ailoop.conf"
            broken.write_text(broken.read_text().replace("allow_responses", "allow_respones", 1))
            must_refuse("an unknown field for nats-server", check_nats, pathlib.Path(scratch), binary)
        count += 1
    return count


def main():
    binary = nats_server()
    check_dockerfile((DEPLOY / "Dockerfile").read_text())
    check_config_maps()
    print("ok  the Dockerfile's paths; every prompt and configuration file in a ConfigMap")
    if binary:
        check_nats(DEPLOY / "nats", binary)
        print("ok  nats-server accepts server.conf and cluster.conf")
    else:
        print("--  nats-server's configuration NOT checked: there is no nats-server (make setup)")
    if shutil.which("kubectl"):
        for overlay in sorted((KUBERNETES / "overlays").iterdir()):
            documents = render(overlay)
            check_rendered(documents)
            print(f"ok  {overlay.name}: {len(documents)} manifests, Kubernetes {' and '.join(VERSIONS)}, strictly")
        print(f"ok  {self_test(documents, binary)} planted mistakes are refused")
    else:
        patches = {"kustomization.yaml", "service-pod.yaml"}
        files = [path for path in sorted((KUBERNETES / "base").glob("*.yaml")) if path.name not in patches]
        for path in files:
            check_schema([document for document in yaml.safe_load_all(path.read_text()) if document])
        print(f"ok  {len(files)} files of the base, each alone; NOT rendered, since there is no kubectl")


if __name__ == "__main__":
    try:
        main()
    except Refused as refused:
        sys.exit(f"error: {refused}")
