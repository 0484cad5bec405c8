"""The credential of every role is rotated by the commands of the page, under load: no request fails, nothing restarts."""

import functools
import json
import re
import sys

from .. import disturbances, manifests, page, report
from . import expect, followed

SERVER = "--nats nats://127.0.0.1:4222"
# Where there is load, the runner updates the files of pods every second; a kubelet does it every minute.
MOUNTED = "sleep 3\n"
block = page.only([block for block in page.blocks(page.PAGE.read_text(), "### Create the credentials") if "secrets()" in block], "blocks with `secrets()`")
DEFINED, FORWARD, CHECK, ADD = block.splitlines(keepends=True)
SECRETS = DEFINED + FORWARD


def quietly(operator, script):
    return operator.run(script, on_line=lambda line: None)


def users(operator):
    """What is known of each user, by public key."""
    output = quietly(operator, f"{SECRETS}secrets | ailoop nats-auth user list --json --keys - {SERVER}")
    found = [json.loads(line) for line in output.splitlines() if line.startswith('{"')]
    return {user["user"]: user for user in found}


def rotate(operator, role):
    output = quietly(operator, DEFINED + ADD.replace("--role gateway", f"--role {role}"))
    old = re.search(r"user revoke (U\w+)", output).group(1)
    quietly(operator, f"{SECRETS}{MOUNTED}secrets | ailoop nats-auth user revoke {old} --keys - {SERVER} | kubectl apply -f -\n")
    revoked.append(old)


with followed("helm/local") as (cluster, operator):
    roles = sorted(key.removesuffix(".creds") for key in manifests.contents(cluster.lookup("Secret", "ailoop-nats-users", "ailoop")))
    revoked = []
    operator.run(SECRETS + CHECK)
    before = users(operator)
    restarts = {str(pod): pod.restarts for pod in cluster.pods}
    plan = [(f"rotate {role}", functools.partial(rotate, operator, role)) for role in roles]
    load = disturbances.load_of(cluster, sys.argv[1], "ailoop")
    rows, verdicts, outcomes = disturbances.under_load(cluster, load, "ailoop", plan)
    wrong = report.summary(cluster, rows, verdicts, outcomes)
    after = users(operator)
    connected = {user["name"] for user in before.values() if user["connections"]}
    expect(len(revoked) == len(roles), f"{len(roles)} roles were rotated")
    expect(all(after[user]["revoked"] and not after[user]["connections"] for user in revoked), "each old user is revoked and has no connection")
    back = {user["name"] for user in after.values() if user["connections"] and not user["revoked"]}
    expect(connected <= back, f"each role that was connected is connected as its new user: {sorted(connected)}")
    expect({str(pod): pod.restarts for pod in cluster.pods if str(pod) in restarts} == restarts, "no container restarted")
    expect(wrong == 0 and all(verdict.word == "ok" for verdict in verdicts), f"all {len(verdicts)} turns are answered once, without an error")
