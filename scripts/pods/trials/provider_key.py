"""Rotation of a provider's key under load, as a file and as a variable: no turn fails, and the old key is refused at the end."""

import json
import subprocess
import sys
import time

import yaml

from .. import disturbances, report
from ..load import first_options
from ..probes import http_get
from . import expect, started

# A host outside, which the policies let the gateway reach.
PROVIDER, PORT = "203.0.113.10", 443
FIRST, SECOND = "the-first-key", "the-second-key"
KEY = "TRIAL_KEY"
FILE = f"/var/run/secrets/ailoop-providers/{KEY}"
MODELS = {"by-file": {"api_key_file": FILE}, "by-variable": {"api_key_env": KEY}}
# Where there is load, the runner updates the files of pods every second; a kubelet does it every minute.
MOUNTED_SECONDS = 3


def with_models(documents):
    """The ConfigMaps that hold models.yaml, with a provider for each way to have its key."""
    for document in documents:
        if document["kind"] != "ConfigMap" or "models.yaml" not in document.get("data", {}):
            continue
        models = yaml.safe_load(document["data"]["models.yaml"])
        for name, key in MODELS.items():
            models["providers"][name] = {"kind": "openai_chat", "base_url": f"http://{PROVIDER}:{PORT}/v1"} | key
        yield document | {"data": document["data"] | {"models.yaml": yaml.safe_dump(models, sort_keys=False)}}


with started("local") as cluster:
    provider = cluster.client("internet", address=PROVIDER)
    keys = cluster.state / "keys"
    keys.write_text(FIRST)
    server = [sys.executable, "-m", "pods.keyed_model", str(PORT), str(keys)]
    running = subprocess.Popen(cluster.command_in(provider, server), stdout=subprocess.PIPE, text=True)  # pylint: disable=consider-using-with
    try:
        running.stdout.readline()  # it listens

        def secret(value):
            cluster.apply({"kind": "Secret", "metadata": {"name": "ailoop-providers", "namespace": "ailoop"}, "stringData": {KEY: value}})

        def restart():
            cluster.rollout_restart("Deployment", "ailoop", "ailoop-gateway")
            cluster.wait_ready("ailoop")

        def status(key):
            return http_get(provider.netns_path, (PROVIDER, PORT), "/v1/models", {"Authorization": f"Bearer {key}"}, 5)[0]

        secret(FIRST)
        load = disturbances.load_of(cluster, sys.argv[1], "ailoop")
        cluster.apply(list(with_models([document for key, document in cluster.objects.items() if key[1] == "ailoop"])))
        restart()  # a variable is read at the start
        load.models = [f"{name}/{name}" for name in MODELS]
        for model in load.models:
            code, output = load.command("run", *first_options(model), "pods-load try")
            expect(code == 0 and "Answer to pods-load try." in output, f"{model} answers: {output.strip()[-300:]}")
        expect((status(FIRST), status(SECOND)) == (200, 401), "the provider accepts the first key, not the second one")

        def replace():
            secret(SECOND)
            time.sleep(MOUNTED_SECONDS)

        def forget():
            keys.write_text(SECOND)
            expect((status(FIRST), status(SECOND)) == (401, 200), "the provider accepts the second key, not the first one")

        plan = [
            ("the provider makes a second key", lambda: keys.write_text(f"{FIRST}\n{SECOND}")),
            ("the Secret has the second key", replace),
            ("the gateway restarts, for its variable", restart),
            ("the provider forgets the first key", forget),
        ]
        rows, verdicts, outcomes = disturbances.under_load(cluster, load, "ailoop", plan)
        wrong = report.summary(cluster, rows, verdicts, outcomes)
        used = json.loads(http_get(provider.netns_path, (PROVIDER, PORT), "/used", {}, 5)[1])
        expect(all(used.get(f"{key} {name}", 0) > 10 for key in (FIRST, SECOND) for name in MODELS), f"both keys were used in both ways: {used}")
        expect(wrong == 0 and all(verdict.word == "ok" for verdict in verdicts), f"all {len(verdicts)} turns are answered once, without an error")
    finally:
        running.kill()
        running.wait()
