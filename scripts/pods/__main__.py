"""`make pods`: renders the overlays, starts them, follows the page, disturbs them under load, and prints what was lost."""

import argparse
import functools
import importlib.util
import pathlib
import runpy
import signal
import subprocess
import sys
import time

from . import disturbances, kubectl, manifests, page
from .cluster import RUNNER_FAILED, Cluster
from .image import ROOT
from .load import Load, with_steps
from .machine import require_root
from .manifests import Refused, key_of

OVERLAYS = ROOT / "deploy/kubernetes/overlays"
BASELINE_SECONDS = 10


def arguments():
    parser = argparse.ArgumentParser(prog="make pods", description=__doc__, epilog="By make: ONLY=local|prod|FILE, KEEP=1, VERBOSE=1.")
    parser.add_argument("what", nargs="*", help="overlays by name, or files of rendered manifests [default: every overlay]")
    parser.add_argument("--ailoop", type=pathlib.Path, required=True, help="the binary of the image")
    parser.add_argument("--nats-server", type=pathlib.Path, default=ROOT / ".tools/nats-server")
    parser.add_argument("--secret", type=pathlib.Path, action="append", default=[], metavar="FILE", help="manifests of Secrets; may be repeated")
    parser.add_argument("--secrets-from", type=pathlib.Path, metavar="DIRECTORY", help="a directory of such files")
    parser.add_argument("--image", action="append", default=[], metavar="NAME=DIRECTORY", help="a root filesystem for an image; may be repeated")
    parser.add_argument("--keep", action="store_true", help="keep it running after the start, without disturbances, until Ctrl-C")
    parser.add_argument("--trial", metavar="NAME", help="run one of scripts/pods/trials instead")
    parser.add_argument("--verbose", action="store_true", help="print every event of the cluster")
    return parser.parse_args()


def is_overlay(what):
    return (OVERLAYS / what).is_dir()


def start(cluster, server, options, what):
    """Brings one set of manifests up: an overlay as the page says, a file with Secrets of this run. Gives its namespace."""
    for file in options.secret + sorted(options.secrets_from.glob("*.yaml") if options.secrets_from else []):
        documents = manifests.read(file)
        for namespace in {key_of(document)[1] for document in documents}:
            cluster.create_namespace(namespace)
        cluster.apply(documents)
    if is_overlay(what):
        print(f"  the first steps of {page.PAGE.relative_to(ROOT)}:")
        page.first_steps(page.Operator(cluster, server, options.ailoop), what)
        namespace = "ailoop"
    else:
        documents = manifests.read(pathlib.Path(what))
        namespace = next((key_of(document)[1] for document in documents if document["kind"] in manifests.WORKLOADS), "default")
        for name in {key_of(document)[1] for document in documents} - {""}:
            cluster.create_namespace(name)
        cluster.create_secrets(documents)
        cluster.apply(documents)
    print(f"  all pods are ready after {cluster.wait_ready(namespace):.1f} s more")
    return namespace


def entrance(cluster, namespace):
    """(address of gRPC, token) of the edge, or None where there is none."""
    for (kind, of, name), document in sorted(cluster.objects.items()):
        ports = document.get("spec", {}).get("ports", []) if kind == "Service" and of == namespace else []
        for port in (port for port in ports if port.get("name") == "grpc"):
            pod = cluster.select(namespace, document["spec"]["selector"])[0]
            env = manifests.environment(pod.state().manifest, pod, functools.partial(cluster.lookup, namespace=namespace))
            return f"http://{name}.{namespace}:{port['port']}", env.get("AILOOP__EDGE__TOKEN", "")
    return None


def disturb(cluster, options, what, namespace):
    """Runs the load and the disturbances; gives the rows, the verdicts, and the outcomes of tool calls."""
    found = entrance(cluster, namespace)
    if found is None and is_overlay(what):
        raise Refused(f"{what} has no Service with a port `grpc`, which the load needs")
    if found is None:
        print("  there is no Service with a port `grpc`: nothing is disturbed")
        return [], [], {}
    # Volumes are refreshed at once, not within a minute; the gateway reads the changed script by itself.
    cluster.volume_refresh_seconds = 1
    cluster.apply(with_steps([document for key, document in cluster.objects.items() if key[1] == namespace]))
    client = cluster.client("clients")
    load = Load(cluster, client, str(options.ailoop), *found)
    wait_for_script(load)
    with load:
        time.sleep(BASELINE_SECONDS)
        baseline = disturbances.Row("none", [turn for turn in load.under_way(0) if turn.ended != float("inf")], 0)
        rows = [baseline] + disturbances.run(cluster, load, namespace, lambda what: print(f"  {what}", flush=True))
    verdicts, outcomes = load.verify()
    return rows, verdicts, outcomes


def wait_for_script(load):
    """Until the gateway plays the steps of the load."""
    deadline = time.monotonic() + 60
    while True:
        code, output = load.command("run", "--agent", "d", "--model", "rehearsal", "pods-load list try")
        if code == 0 and "Answer to pods-load list try." in output:
            return
        if time.monotonic() > deadline:
            raise Refused(f"the gateway does not play the changed script: exit code {code}: {output.strip()[-500:]}")
        time.sleep(1)


def run(what, options):
    """One set of manifests from its start to its end; gives the number of turns that are wrong."""
    print(f"{what}:", flush=True)
    images = dict(pair.split("=", 1) for pair in options.image)
    with Cluster(options.ailoop, options.nats_server, images=images, verbose=options.verbose) as cluster:
        server = kubectl.Server(cluster)
        try:
            namespace = start(cluster, server, options, what)
            if options.keep:
                keep(cluster, server, namespace)
                return 0
            return summary(cluster, *disturb(cluster, options, what, namespace))
        except (TimeoutError, Refused):
            print_not_ready(cluster)
            raise
        finally:
            server.shutdown()


def summary(cluster, rows, verdicts, outcomes):
    """Prints what became of every turn; gives the number of those that were lost or doubled, and of stalls."""
    words = ("refused", "unseen", "lost", "doubled")
    if rows:
        print(f"\n  {'disturbance':34} {'turns':>5} {'refused':>7} {'unseen':>6} {'lost':>4} {'doubled':>7} {'recovered, s':>12} {'slowest, s':>10}")
    for row in rows:
        found = [verdict.word for verdict in verdicts if verdict.turn in row.turns]
        refused, unseen, lost, doubled = (found.count(word) for word in words)
        print(f"  {row.what:34} {len(found):5} {refused:7} {unseen:6} {lost:4} {doubled:7} {row.recovered_seconds:12.1f} {row.slowest:10.1f}")
    counts = {word: sum(verdict.word == word for verdict in verdicts) for word in ("ok", *words)}
    if rows:
        slowest = max(rows, key=lambda row: row.slowest)
        print(f"\n  all {len(verdicts)} turns: {', '.join(f'{count} {word}' for word, count in counts.items())}; "
              f"the slowest took {slowest.slowest:.1f} s ({slowest.what})")
    for tool, results in sorted(outcomes.items()):
        print(f"  calls of {tool}: " + ", ".join(f"{results.count(outcome)} {outcome}" for outcome in sorted(set(results))))
    seen = {}
    for verdict in (verdict for verdict in verdicts if verdict.word != "ok"):
        what = verdict.turn.failure.splitlines()[0] if verdict.turn.failure else verdict.detail
        seen.setdefault((verdict.word, what), []).append(verdict.turn.session)
    for (word, what), sessions in seen.items():
        print(f"  {len(sessions)} {word}, such as {sessions[0]}: {what}")
    failures = [text for _, text in cluster.events if text.startswith(RUNNER_FAILED)]
    print("  not emulated: " + "; ".join(cluster.not_emulated()))
    if failures:
        raise Refused(f"the runner itself failed {len(failures)} times; see above")
    return counts["lost"] + counts["doubled"] + sum(row.recovered_seconds == float("inf") for row in rows)


def print_not_ready(cluster):
    """What a person looks at first when a start fails."""
    for pod in cluster.pods:
        if pod.containers and not pod.is_ready and pod.phase != "Succeeded":
            print(f"  {pod}: {pod.status()}, {pod.restarts} restarts")
            for line in cluster.logs(pod).splitlines()[-5:]:
                print(f"    {line[:300]}")


def keep(cluster, server, namespace):
    print(f"""
It runs until Ctrl-C. Look at it from another shell:
  export PATH={server.directory}:$PATH
  kubectl -n {namespace} get pods
  kubectl -n {namespace} logs PODNAME
  kubectl -n {namespace} port-forward service/ailoop-edge 7070 7071
Logs: {cluster.state}/logs; rules: ip netns exec {cluster.network.router} nft list ruleset""", flush=True)
    signal.pause()


def run_trial(options):
    """Runs a trial in this process, so that an end by a signal cleans up."""
    if importlib.util.find_spec(f"pods.trials.{options.trial}") is None:
        raise Refused(f"there is no trial {options.trial} in scripts/pods/trials")
    sys.argv = [options.trial, str(options.ailoop)]
    runpy.run_module(f"pods.trials.{options.trial}")
    return 0


def main():
    options = arguments()
    try:
        require_root()
        if options.trial:
            return run_trial(options)
        names = options.what or sorted(path.name for path in OVERLAYS.iterdir())
        for name in names:
            if not is_overlay(name) and not pathlib.Path(name).is_file():
                raise Refused(f"there is neither an overlay {name} nor a file of this name")
        began = time.monotonic()
        wrong = sum(run(what, options) for what in names)
        print(f"{time.monotonic() - began:.0f} s; {wrong} turns lost or doubled, or disturbances after which no answer came")
        return 1 if wrong else 0
    except (Refused, TimeoutError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    # Whatever ends this process, `Cluster.__exit__` removes what it made; also where a shell ignores Ctrl-C for it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
