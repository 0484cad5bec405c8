"""A Prometheus of the test, with rules of its own, and its HTTP API."""

import json
import pathlib
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request

from .errors import Failed, wait_until

HOW_TO_GET = "install the package `prometheus` of Debian or Ubuntu (promtool is in it), or put both on PATH"


def binary(name):
    found = shutil.which(name)
    if not found:
        raise Failed(f"{name} is not on PATH: {HOW_TO_GET}")
    return found


def check_rules(path):
    """Refuses rules that promtool refuses, and those that fail new_series.yaml."""
    cases = pathlib.Path(__file__).with_name("new_series.yaml")
    for command in (["check", "rules", path], ["test", "rules", cases]):
        done = subprocess.run([binary("promtool"), *command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"promtool {' '.join(map(str, command))}: {done.stdout}{done.stderr}")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Targets:
    """The file of targets that every Prometheus of the test reads, whatever changes in it."""

    def __init__(self, path, addresses):
        self.path, self.addresses = path, list(addresses)
        self.write()

    def write(self):
        # By a rename, so that nobody reads half a file.
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps([{"targets": self.addresses}]))
        new.rename(self.path)

    def add(self, address):
        self.addresses.append(address)
        self.write()

    def remove(self, address):
        self.addresses.remove(address)
        self.write()


class Prometheus:
    """Scrapes the targets by the job `ailoop`, as the chart's PodMonitors do."""

    def __init__(self, fleet, name, rules, targets, interval):
        self.directory = fleet.directory / name
        self.directory.mkdir()
        (self.directory / "rules.yaml").write_text(rules)
        configuration = {
            "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
            "rule_files": [str(self.directory / "rules.yaml")],
            "scrape_configs": [
                {"job_name": "ailoop", "file_sd_configs": [{"files": [str(targets.path)], "refresh_interval": "5s"}]}
            ],
        }
        # JSON is YAML.
        (self.directory / "prometheus.yaml").write_text(json.dumps(configuration))
        self.address = f"127.0.0.1:{free_port()}"
        options = ["--config.file", "prometheus.yaml", "--storage.tsdb.path", "data", "--web.listen-address", self.address]
        options[1], options[3] = str(self.directory / options[1]), str(self.directory / options[3])
        self.log = self.directory / "prometheus.log"
        self.process = fleet.spawn(self.log, [binary("prometheus"), *options, "--log.level=warn"], fleet.environment)
        wait_until("Prometheus starts", self._is_ready, 30)

    def _is_ready(self):
        if self.process.poll() is not None:
            raise Failed(f"Prometheus ended: {self.log.read_text()[-500:]}")
        try:
            return self.get("-/ready", raw=True)
        except OSError:
            return False

    def end(self):
        self.process.terminate()
        self.process.wait(timeout=15)

    def get(self, path, raw=False, **parameters):
        url = f"http://{self.address}/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                body = answer.read()
        except urllib.error.HTTPError as error:
            if raw:
                return None
            raise Failed(f"Prometheus refuses {path} {parameters}: {error.read().decode()}") from error
        return body if raw else json.loads(body)["data"]

    def query(self, expression):
        return self.get("api/v1/query", query=expression)["result"]

    def query_range(self, expression, start, end, step):
        return self.get("api/v1/query_range", query=expression, start=start, end=end, step=step)["result"]

    def firing(self):
        """Names of the alerts that fire, with their labels."""
        found = {}
        for alert in self.get("api/v1/alerts")["alerts"]:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], []).append(alert)
        return found

    def check_health(self):
        """Every rule was evaluated without an error."""
        for group in self.get("api/v1/rules")["groups"]:
            for rule in group["rules"]:
                if rule["health"] != "ok":
                    raise Failed(f"the rule {rule['name']} has the health {rule['health']}: {rule.get('lastError')}")
