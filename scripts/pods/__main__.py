"""`make pods`: installs as the page says, by Helm and by kustomize, disturbs it under load, and prints what was lost."""

import argparse
import importlib.util
import pathlib
import runpy
import signal
import subprocess
import sys
import time

from . import disturbances, manifests, page, report, shims
from .cluster import Cluster
from .image import ROOT
from .machine import require_root
from .manifests import Refused, key_of


def arguments():
    parser = argparse.ArgumentParser(prog="make pods", description=__doc__, epilog="By make: ONLY=helm/local|local|prod|FILE, KEEP=1, TRIAL=NAME, VERBOSE=1.")
    parser.add_argument("what", nargs="*", help=f"of {', '.join(page.SETUPS)}, or `local`, or `prod`, or files of rendered manifests [default: every setup]")
    parser.add_argument("--ailoop", type=pathlib.Path, required=True, help="the binary of the image")
    parser.add_argument("--nats-server", type=pathlib.Path, default=ROOT / ".tools/nats-server")
    parser.add_argument("--secret", type=pathlib.Path, action="append", default=[], metavar="FILE", help="manifests of Secrets; may be repeated")
    parser.add_argument("--secrets-from", type=pathlib.Path, metavar="DIRECTORY", help="a directory of such files")
    parser.add_argument("--image", action="append", default=[], metavar="NAME=DIRECTORY", help="a root filesystem for an image; may be repeated")
    parser.add_argument("--keep", action="store_true", help="keep it running after the start, without disturbances, until Ctrl-C")
    parser.add_argument("--trial", metavar="NAME", help="run one of scripts/pods/trials instead")
    parser.add_argument("--verbose", action="store_true", help="print every event of the cluster")
    return parser.parse_args()


def expand(names):
    """Setups and files; `local` and `prod` are the setups with these values."""
    found = []
    for name in names or page.SETUPS:
        setups = [setup for setup, (_, values) in page.SETUPS.items() if name in (setup, values)]
        if not setups and not pathlib.Path(name).is_file():
            raise Refused(f"there is neither a setup {name} nor a file of this name")
        found += setups or [name]
    return found


def start(cluster, server, options, what):
    """Brings one set of manifests up: a setup as the page says, a file with Secrets of this run. Gives its namespace."""
    for file in options.secret + sorted(options.secrets_from.glob("*.yaml") if options.secrets_from else []):
        documents = manifests.read(file)
        for namespace in {key_of(document)[1] for document in documents}:
            cluster.create_namespace(namespace)
        cluster.apply(documents)
    if what in page.SETUPS:
        print(f"  the steps of {page.PAGE.relative_to(ROOT)}:")
        page.first_steps(page.Operator(cluster, server, options.ailoop), what)
        namespace = "ailoop"
    else:
        documents = manifests.read(pathlib.Path(what))
        namespace = next((key_of(document)[1] for document in documents if document["kind"] in manifests.WORKLOADS), "default")
        cluster.install(documents)
    print(f"  all pods are ready after {cluster.wait_ready(namespace):.1f} s more")
    return namespace


def run(what, options):
    """One set of manifests from its start to its end; gives the number of turns that are wrong."""
    print(f"{what}:", flush=True)
    images = dict(pair.split("=", 1) for pair in options.image)
    with Cluster(options.ailoop, options.nats_server, images=images, verbose=options.verbose) as cluster:
        server = shims.Server(cluster)
        try:
            namespace = start(cluster, server, options, what)
            if options.keep:
                keep(cluster, server, namespace)
                return 0
            if what.startswith("kustomize/"):
                print("  not disturbed: these are the manifests of the chart, which `make deploy-check` compares")
                return 0
            if what not in page.SETUPS and disturbances.entrance(cluster, namespace) is None:
                print("  there is no Service with a port `grpc`: nothing is disturbed")
                return 0
            plan = list(disturbances.plan(cluster, namespace))
            load = disturbances.load_of(cluster, options.ailoop, namespace)
            return report.summary(cluster, *disturbances.under_load(cluster, load, namespace, plan))
        except (TimeoutError, Refused):
            print_not_ready(cluster)
            raise
        finally:
            server.shutdown()


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
        began = time.monotonic()
        wrong = sum(run(what, options) for what in expand(options.what))
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
