"""The shipped rules as text, and the same rules with shorter times. No YAML library is needed for that."""

import re

from .errors import Failed
from .fleet import ROOT

RULES = ROOT / "deploy/monitoring/rules.yaml"
VALUES = ROOT / "deploy/helm/ailoop/values.yaml"
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
DURATION = r"(\d+)([smhd])"
# What is scaled: `for`, ranges and offsets. The interval of a group is set by itself.
SCALED = re.compile(rf"(?P<before>^\s+for: |\[|\boffset ){DURATION}(?P<after>\]|$|(?=\)))", re.M)
# Edges measure every 5 s, and a busy machine may miss some scrapes: shorter times would fire by chance.
SECONDS_MIN = 12
# How often the scaled rules are evaluated, and their targets scraped.
INTERVAL = "2s"


def read():
    return RULES.read_text()


def names(text):
    return re.findall(r"^\s+- alert: (\w+)$", text, re.M)


def scaled(text, factor):
    """The rules with every time divided by the factor, but not below 12 s, and evaluated every 2 s."""

    def shorter(match):
        seconds = int(match[2]) * UNITS[match[3]]
        return f"{match['before']}{max(SECONDS_MIN, round(seconds / factor))}s{match['after']}"

    result, count = SCALED.subn(shorter, text)
    intended = len(re.findall(r"^\s+for: |\[\d|\boffset \d", text, re.M))
    if count != intended:
        raise Failed(f"{count} of {intended} times of rules.yaml were scaled: correct the pattern in rules.py")
    return re.sub(rf"^(\s+interval: ){DURATION}$", rf"\g<1>{INTERVAL}", result, flags=re.M)


def shipped_interval():
    """The scrape interval of the chart's PodMonitors."""
    found = re.search(r"podMonitor: \{[^}]*interval: (\w+)", VALUES.read_text())
    if not found:
        raise Failed(f"{VALUES} has no interval of podMonitor")
    return found[1]
