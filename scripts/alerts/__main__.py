"""`make lab NAME=alerts`: each alert of deploy/monitoring fires when its condition holds, and only then.

Each dashboard has data.
"""

import argparse
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time

from . import dashboards, load, model, rules
from .errors import Failed, wait_until
from .fleet import ROOT, Fleet
from .prometheus import Prometheus, Targets, binary, check_rules
from .trials import TRIALS, World

# With all gateways gone, an alert fires within this time.
GONE_SECONDS_MAX = 60
END_SECONDS_MAX = 120
# An alert that fires is watched for this long, to see what else fires.
WATCH_SECONDS = 5


def arguments():
    parser = argparse.ArgumentParser(
        prog="make lab NAME=alerts", description=__doc__, epilog="By make: ONLY=AiloopQueueOld."
    )
    parser.add_argument("only", nargs="*", metavar="ALERT", help="run only the trials of these alerts")
    parser.add_argument("--ailoop", type=pathlib.Path, required=True, help="the binary of the services")
    parser.add_argument("--nats-server", type=pathlib.Path, default=nats_server())
    parser.add_argument("--factor", type=int, default=60, help="times of the rules are divided by it [default: 60]")
    parser.add_argument("--load", type=int, default=60, help="seconds of load on the healthy fleet [default: 60]")
    parser.add_argument("--kills", type=int, default=2, help="how often all gateways go with the shipped times [default: 2]")
    parser.add_argument("--keep", action="store_true", help="keep the directory with logs and data")
    return parser.parse_args()


def nats_server():
    """The binary, by the order of CONTRIBUTING.md."""
    own = ROOT / ".tools/nats-server"
    return os.environ.get("AILOOP_NATS_SERVER") or (own if own.exists() else shutil.which("nats-server"))


def say(text):
    print(text, flush=True)


def expect_firing(prometheus, allowed, what):
    """Gives what fires; refuses what is not allowed."""
    firing = prometheus.firing()
    if unexpected := set(firing) - set(allowed):
        labels = {alert: [found["labels"] for found in firing[alert]] for alert in unexpected}
        raise Failed(f"{what}: also fires {labels}")
    return firing


def wait_quiet(prometheus, what):
    return wait_until(f"{what}: no alert fires any more", lambda: not prometheus.firing(), END_SECONDS_MAX, 0.25)


def run_trial(prometheus, world, trial):
    """(seconds until it fires, seconds until it ends, consequences)."""
    wait_quiet(prometheus, "before the trial")
    allowed, seen, began = {trial.alert} | trial.consequences, set(), time.monotonic()

    def look():
        seen.update(expect_firing(prometheus, allowed, trial.alert))
        return trial.alert in seen

    with trial.make(world):
        wait_until(f"{trial.alert} fires", look, trial.seconds_max, 0.25)
        fired = time.monotonic() - began
        until = time.monotonic() + WATCH_SECONDS
        while time.monotonic() < until:
            look()
            time.sleep(0.25)
        ends = time.monotonic()
    wait_until(f"{trial.alert} ends", lambda: trial.alert not in prometheus.firing(), END_SECONDS_MAX, 0.25)
    return fired, time.monotonic() - ends, sorted(seen - {trial.alert})


def run_healthy(prometheus, world, seconds):
    """Nothing fires under load, and the dashboards have data."""
    began = time.time()
    with load.of(world.fleet) as traffic:
        while time.time() < began + seconds:
            expect_firing(prometheus, (), "the healthy fleet under load")
            time.sleep(0.25)
        shown, without = dashboards.check_healthy(prometheus, began)
    if traffic.errors or not traffic.count:
        raise Failed(f"the load: {traffic.count} sessions, errors {traffic.errors[:3]}")
    say(f"ok  {seconds} s of load, {traffic.count} sessions of {len(load.PROMPTS)} turns: no alert fires")
    say(f"ok  {shown} queries of the dashboards have data; without, as they should: {', '.join(without)}")


def run_gone(fleet, world, targets, kills):
    """With the shipped rules and the shipped intervals: all gateways gone, until an alert fires."""
    interval = rules.shipped_interval()
    prometheus = Prometheus(fleet, "shipped", rules.read(), targets, interval)
    say(f"    times as shipped: scraped every {interval}, rules evaluated every 15s")
    wait_until("Prometheus has scraped", lambda: prometheus.query("ailoop_queue_pullers"), 60)
    for number in range(kills):
        # At another place of the intervals each time.
        time.sleep(20 + random.random() * 15)
        expect_firing(prometheus, (), "before the gateways go")
        began = time.monotonic()
        trial = TRIALS["AiloopQueueWithoutWorkers"]
        with trial.make(world):
            alert = lambda: trial.alert in prometheus.firing()  # noqa: E731
            wait_until(f"all gateways gone: {trial.alert} fires", alert, GONE_SECONDS_MAX, 0.25)
            fired = time.monotonic() - began
            also = sorted(set(prometheus.firing()) - {trial.alert})
        ended = time.monotonic()
        wait_quiet(prometheus, "the gateways are back")
        ended = time.monotonic() - ended
        say(
            f"ok  all gateways gone ({number + 1}): {trial.alert} fires after {fired:.1f} s, of at most {GONE_SECONDS_MAX};"
            f" ends {ended:.1f} s after they are back; also fires: {', '.join(also) or 'none'}"
        )
    prometheus.check_health()
    prometheus.end()


def run(options, directory):
    shipped = rules.read()
    if missing := set(rules.names(shipped)) ^ set(TRIALS):
        raise Failed(f"alerts without a trial, or trials without an alert: {', '.join(sorted(missing))}")
    if unknown := set(options.only) - set(TRIALS):
        raise Failed(f"no alert is called {', '.join(unknown)}")
    binary("prometheus")
    check_rules(rules.RULES)
    server = model.Server()
    model.write_configuration(directory / "config", server.url)
    with Fleet(directory, options.ailoop, options.nats_server, directory / "config") as fleet:
        targets = Targets(directory / "targets.json", fleet.targets())
        world = World(fleet, server, targets)
        say(f"ok  {len(fleet.services)} processes and nats-server run; logs in {directory}")
        scaled = rules.scaled(shipped, options.factor)
        prometheus = Prometheus(fleet, "scaled", scaled, targets, rules.INTERVAL)
        began = time.time()
        wait_until("all are scraped", lambda: len(prometheus.query("up == 1")) == len(fleet.services), 60)
        if not options.only:
            run_healthy(prometheus, world, options.load)
            run_gone(fleet, world, targets, options.kills)
        run_trials(prometheus, world, options)
        prometheus.check_health()
        if not options.only:
            dashboards.check_after_trials(prometheus, began)
            say("ok  after the trials, every query of the dashboards has data")


def run_trials(prometheus, world, options):
    """Runs every trial, and fails at the end if one of them did."""
    say(
        f"    times of the rules divided by {options.factor}, and at least {rules.SECONDS_MIN} s; scraped and evaluated every"
        f" {rules.INTERVAL}. Thresholds are as shipped."
    )
    say(f"    {'alert':30} {'fires, s':>8} {'ends, s':>8}  consequences")
    failed = []
    for name in options.only or TRIALS:
        try:
            fired, ended, also = run_trial(prometheus, world, TRIALS[name])
            say(f"ok  {name:30} {fired:8.1f} {ended:8.1f}  {', '.join(also)}")
        except Failed as failure:
            failed.append(name)
            say(f"BAD {name:30} {failure}")
    if failed:
        raise Failed(f"{len(failed)} trials failed: {', '.join(failed)}")


def main():
    options = arguments()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="ailoop-alerts-"))
    began, code = time.monotonic(), 1
    try:
        run(options, directory)
        code = 0
    except Failed as failed:
        print(f"error: {failed}\n  logs are in {directory}", file=sys.stderr)
    if code == 0:
        say(f"{time.monotonic() - began:.0f} s; every alert fires when its condition holds, and only then")
        if not options.keep:
            remove(directory)
    return code


def remove(directory):
    """Only directories of this program are below it."""
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    # Whatever ends this process, the fleet ends first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
