"""What deploy/ must agree with, read from its sources."""

import json
import re

from .paths import CHART, ROOT
from .refused import refuse_unless

# The oldest that the manifests are written for, and the newest whose schemas are there.
KUBERNETES_VERSIONS = ["1.30.0", "1.37.0"]
# Seconds that a pod needs beside its drain: flushing telemetry, closing connections.
DRAIN_SLACK = 15
# The least memory with which each service was seen to idle, with reserve: 18 to 25 MiB.
MEMORY_MIN = 64 * 1024**2
# Secrets that the operator makes, and their keys. None is in the repository.
SECRETS = {
    "ailoop-nats-server": {"auth.conf"},
    "ailoop-nats-users": None,
    "ailoop-nats-routes": {"password"},
    "ailoop-edge": {"token"},
    "ailoop-edge-keys": {"keys.yaml"},
    "ailoop-edge-tls": {"tls.crt", "tls.key"},
    "ailoop-nats-tls": {"tls.crt", "tls.key", "ca.crt"},
    "ailoop-providers": None,
}
# ConfigMaps that the operator makes, and their keys.
CONFIG_MAPS = {"ailoop-edge-ca": {"ca.crt"}}
OTLP_HTTP_PORT = ":4318"
CREDENTIALS = "/var/run/secrets/ailoop"
# What each port of a service answers to.
HEALTH_PATHS = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}


def roles():
    """NATS roles. tests/deploy/manifests.rs holds this list against the permissions."""
    return set(json.loads((CHART / "values.schema.json").read_text())["definitions"]["role"]["enum"])


def consumers():
    """(stream, durable consumer) of each queue, from crates/contract."""
    path = ROOT / "crates/contract/src/streams.rs"
    text = path.read_text()
    streams = dict(re.findall(r'(\w+) = "(AI_LOOP_\w+)"', text))
    durables = dict(re.findall(r'(\w+) = "([a-z]+)"', text.split("pub enum Queue", 1)[-1].split("}", 1)[0]))
    of_queue = dict(re.findall(r"Self::(\w+) => Stream::(\w+)", text))
    found = {(streams[of_queue[queue]], durable) for queue, durable in durables.items()}
    refuse_unless(
        len(found) == 4, path.relative_to(ROOT), f"has the queues {sorted(found)}, not four", "adapt facts.py"
    )
    return found


def quantity(text):
    """Bytes of a quantity such as 512Mi."""
    number, unit = re.fullmatch(r"(\d+)([kMGT]i?|Ki)?", str(text)).groups()
    powers = {None: 1, "k": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}
    powers |= {f"{letter}i": 1024**power for power, letter in enumerate("KMGT", 1)}
    return int(number) * powers[unit]
