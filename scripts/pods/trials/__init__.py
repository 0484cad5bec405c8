"""Trials of single claims about Kubernetes. `make pods TRIAL=NAME` runs the module of that name."""

import contextlib
import sys

from .. import kubectl, manifests
from ..cluster import Cluster
from ..__main__ import OVERLAYS, entrance
from ..network import connect


@contextlib.contextmanager
def started(overlay, **options):
    """A cluster in which an overlay, or a list of documents, is ready; Secrets that it names have values of this run."""
    documents = kubectl.render(OVERLAYS / overlay) if isinstance(overlay, str) else overlay
    with Cluster(sys.argv[1], verbose=True, **options) as cluster:
        for namespace in {manifests.key_of(document)[1] for document in documents} - {""}:
            cluster.create_namespace(namespace)
        cluster.create_secrets(documents)
        cluster.apply(documents)
        cluster.wait_ready()
        yield cluster


def session(cluster, client, *words, namespace="ailoop", token=None):
    """Runs `ailoop` with these words in a client pod, at the edge: (exit code, output)."""
    url, current = entrance(cluster, namespace)
    return cluster.exec_in_pod(client, [sys.argv[1], *words], env={"AILOOP_URL": url, "AILOOP_TOKEN": token or current})


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
