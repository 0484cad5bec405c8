"""Trials of single claims about Kubernetes. `make pods TRIAL=NAME` runs the module of that name."""

import contextlib
import sys

from .. import kubectl, page, shims
from ..cluster import Cluster
from ..disturbances import entrance
from ..image import ROOT
from ..network import connect

OVERLAYS = ROOT / "deploy/kubernetes/overlays"


@contextlib.contextmanager
def started(overlay, **options):
    """A cluster in which an overlay, or a list of documents, is ready; Secrets that it names have values of this run."""
    documents = kubectl.render(OVERLAYS / overlay) if isinstance(overlay, str) else overlay
    with Cluster(sys.argv[1], verbose=True, **options) as cluster:
        cluster.install(documents)
        cluster.wait_ready()
        yield cluster


@contextlib.contextmanager
def followed(setup):
    """A cluster in which the steps of the page were followed for a setup, and the operator who did that."""
    with Cluster(sys.argv[1], verbose=True) as cluster:
        server = shims.Server(cluster)
        try:
            operator = page.Operator(cluster, server, sys.argv[1])
            page.first_steps(operator, setup)
            cluster.wait_ready("ailoop")
            yield cluster, operator
        finally:
            server.shutdown()


def session(cluster, client, *words, namespace="ailoop", token=None):
    """Runs `ailoop` with these words in a client pod, at the edge: (exit code, output)."""
    url, current = entrance(cluster, namespace)
    return cluster.exec_in_pod(client, [sys.argv[1], *words], env={"AILOOP_GRPC_URL": url, "AILOOP_TOKEN": token or current, "AILOOP_PLAINTEXT": "true"})


def can_reach(pod, address, port, timeout=1.5):
    """Whether packets pass: a refusal shows that they do, silence that a policy drops them."""
    try:
        connect(pod.netns_path, (address, port), timeout).close()
        return True
    except ConnectionRefusedError:
        return True
    except TimeoutError:
        return False


def expect(holds, claim):
    """Prints a claim that holds; ends the trial at one that does not."""
    if not holds:
        sys.exit(f"error: this does not hold: {claim}")
    print(f"ok  {claim}", flush=True)
