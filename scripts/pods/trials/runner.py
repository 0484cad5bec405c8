"""The runner itself: what it does to containers, on a set of small manifests."""

import time

from ..manifests import Refused, read
from . import expect, started

POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: x}}
spec:
  terminationGracePeriodSeconds: {grace}
  restartPolicy: {policy}
  securityContext: {{runAsUser: 1000, runAsGroup: 1001, fsGroup: 1002}}
  {more}
  containers:
    - name: main
      image: shell
      args: ["{script}"]
      securityContext: {{readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}
      {container}
"""
FILES = """
kind: ConfigMap
metadata: {name: files, namespace: x}
data: {a: first, b: second}
---
kind: Secret
metadata: {name: key, namespace: x}
stringData: {key: secret}
"""
VOLUMES = """volumes:
    - {name: files, configMap: {name: files, items: [{key: a, path: deep/a}]}}
    - {name: key, secret: {secretName: key, defaultMode: 0400}}
    - {name: some, emptyDir: {}}
    - {name: all, projected: {sources: [{configMap: {name: files}}, {secret: {name: key}}]}}
"""
MOUNTS = """volumeMounts:
        - {name: files, mountPath: /files}
        - {name: files, mountPath: /one, subPath: deep/a}
        - {name: key, mountPath: /key}
        - {name: some, mountPath: /some}
        - {name: all, mountPath: /all}
      resources: {limits: {memory: 32Mi}}
"""
SIDECAR = """initContainers:
    - {name: first, image: shell, args: ["echo first > /some/order"], volumeMounts: [{name: some, mountPath: /some}]}
    - {name: side, image: shell, restartPolicy: Always, args: ["echo side >> /some/order; trap 'sleep 1; exit' TERM; while :; do sleep 0.1; done"],
       volumeMounts: [{name: some, mountPath: /some}]}
  volumes: [{name: some, emptyDir: {}}]
"""
ORDERED = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: ordered, namespace: x}
spec:
  serviceName: ordered
  replicas: 2
  selector: {matchLabels: {app: ordered}}
  template:
    metadata: {labels: {app: ordered}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - {name: main, image: shell, args: ["echo $(hostname) >> /data/starts; sleep 1000"], volumeMounts: [{name: data, mountPath: /data}],
           readinessProbe: {exec: {command: [cat, /data/starts]}, periodSeconds: 1}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {}}]
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: failing, namespace: x}
spec:
  backoffLimit: 1
  template: {metadata: {}, spec: {restartPolicy: OnFailure, containers: [{name: main, image: shell, args: [exit 3]}]}}
"""
FOREVER = "trap 'exit 0' TERM; while :; do sleep 0.1; done"


def pod(cluster, name, script, policy="Always", grace=5, more="", container=""):
    cluster.apply(POD.format(name=name, script=script, policy=policy, grace=grace, more=more, container=container))
    return cluster.find(name)


def until(holds, seconds=20):
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds()


def output(cluster, of, script):
    return cluster.exec_in_pod(of, ["sh", "-c", script])[1].strip()


with started(read("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other, namespace: x}")) as cluster:
    cluster.volume_refresh_seconds = 1
    cluster.apply(FILES)
    one = pod(cluster, "one", FOREVER, more=VOLUMES, container=MOUNTS)
    expect(until(lambda: one.is_ready), "a pod without probes is ready when it runs")
    status = output(cluster, one, "grep -E '^(CapBnd|CapEff|NoNewPrivs)' /proc/self/status | cat; id")
    expect("CapBnd:\t0000000000000000" in status and "NoNewPrivs:\t1" in status, "it has no capabilities and gets no privileges")
    expect("uid=1000 gid=1001" in status and "1002" in status, "it has its user and groups")
    expect("Read-only" in output(cluster, one, "touch /x"), "its root cannot be written")
    expect("Read-only" in output(cluster, one, "touch /files/x"), "a ConfigMap cannot be written")
    expect(output(cluster, one, "touch /some/x && ls /some") == "x", "an emptyDir can be written")
    expect(output(cluster, one, "cat /files/deep/a /one /all/b /all/key") == "firstfirstsecondsecret", "items, subPath and projections")
    expect(output(cluster, one, "ls -lL /key").endswith("key") and "-r--r-----" in output(cluster, one, "ls -lL /key"), "fsGroup reads a mode of 0400")
    expect(output(cluster, one, "hostname; cat /etc/resolv.conf").startswith("one\nsearch x.svc.cluster.local"), "its name and names of others")
    cluster.apply(FILES.replace("first", "third"))
    expect(until(lambda: output(cluster, one, "cat /files/deep/a") == "third"), "a changed ConfigMap reaches a volume")
    expect(output(cluster, one, "cat /one") == "first", "but not a mount by subPath")
    began = time.monotonic()
    cluster.delete("Pod", "x", "one")
    expect(one.gone.wait(4) and time.monotonic() - began < 2, "SIGTERM ends it")

    stubborn = pod(cluster, "stubborn", "trap '' TERM; while :; do sleep 0.1; done", grace=2)
    until(lambda: stubborn.is_ready)
    time.sleep(0.5)
    began = time.monotonic()
    cluster.delete("Pod", "x", "stubborn")
    expect(stubborn.gone.wait(9) and 1.9 < time.monotonic() - began < 4, "SIGKILL ends what ignores SIGTERM, after the grace")

    hog = pod(cluster, "hog", "x=aaaaaaaa; while :; do x=$x$x; done", policy="Never", container="resources: {limits: {memory: 32Mi}}")
    expect(until(lambda: hog.phase == "Failed", 30) and hog.state().exit_code == 137, "more memory than its limit ends it")

    liveness = "livenessProbe: {exec: {command: [cat, /some/alive]}, periodSeconds: 1, failureThreshold: 2}"
    mounted = "volumeMounts: [{name: some, mountPath: /some}]\n      " + liveness
    live = pod(cluster, "live", "touch /some/alive; " + FOREVER, more="volumes: [{name: some, emptyDir: {}}]", container=mounted)
    time.sleep(3)
    expect(live.restarts == 0, "a liveness probe that succeeds restarts nothing")
    cluster.exec_in_pod(live, ["sh", "-c", "echo > /some/gone"])
    dead = pod(cluster, "dead", FOREVER, more="volumes: [{name: some, emptyDir: {}}]", container=mounted)
    expect(until(lambda: dead.restarts == 1), "one that fails restarts its container")
    expect(until(lambda: "CrashLoopBackOff (10 s)" in dead.status()), "the second restart waits 10 s")

    secret = "env: [{name: A, valueFrom: {secretKeyRef: {name: late, key: a}}}]"
    late = pod(cluster, "late", "echo got $A; " + FOREVER, container=secret)
    expect(until(lambda: "CreateContainerConfigError" in late.status()), "a pod waits for its Secret")
    cluster.apply({"kind": "Secret", "metadata": {"name": "late", "namespace": "x"}, "stringData": {"a": "value"}})
    expect(until(lambda: late.is_ready and "got value" in cluster.logs(late)), "and starts when it is there")

    served = pod(cluster, "served", "cat /some/order; " + FOREVER, more=SIDECAR, container="volumeMounts: [{name: some, mountPath: /some}]")
    expect(until(lambda: served.is_ready) and cluster.logs(served) == "first\nside\n", "init containers and sidecars start first, in order")

    cluster.apply(JOB)
    expect(until(lambda: cluster.lookup("Job", "failing", "x").get("status", {}).get("succeeded") is False), "a Job ends at its backoffLimit")

    cluster.apply(ORDERED)
    until(lambda: len(cluster.select("x", {"app": "ordered"})) == 2 and all(of.is_ready for of in cluster.select("x", {"app": "ordered"})))
    first, second = cluster.find("ordered-0"), cluster.find("ordered-1")
    expect(first.ready_since < second.created, "OrderedReady: the second pod comes after the first is ready")
    cluster.move(first)
    expect(until(lambda: cluster.find("ordered-0").is_ready and cluster.find("ordered-0").ip != first.ip), "a moved pod has another address")
    expect(output(cluster, cluster.find("ordered-0"), "cat /data/starts") == "ordered-0\nordered-0", "and its volume")

    try:
        cluster.apply(JOB.replace("exit 3", "exit 4"))
    except Refused as refused:
        expect("immutable" in str(refused), "the template of a Job cannot be changed")
    else:
        expect(False, "the template of a Job cannot be changed")
