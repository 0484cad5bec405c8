"""The cluster: objects and pods, the loop that brings them together, and what a trial does with them."""

import os
import pathlib
import secrets
import subprocess
import sys
import threading
import time
import traceback
import urllib.parse

from . import controllers, dns, endpoints, manifests, policy, probes
from .container import memory_controller
from .image import ROOT, Images
from .kubelet import Pod
from .machine import STATE, remove_leftovers, remove_run
from .manifests import Refused, key_of, matches
from .network import NODE, SERVICES, Network

DNS_ADDRESS = str(SERVICES[10])
TICK_SECONDS = 0.2
# As the kubelet: changes of ConfigMaps and Secrets reach the volumes of running pods after about a minute.
VOLUME_REFRESH_SECONDS = 60
RUNNER_FAILED = "the runner failed"
NOT_EMULATED = "seccomp profiles, CPU and memory requests, affinity and priorities, zones of volumes, sizes of claims and of emptyDir on disk"


class Cluster:
    """A cluster of this machine. Use it as a context manager: it removes all that it made."""

    def __init__(self, ailoop, nats_server=ROOT / ".tools/nats-server", nodes=3, images=None, verbose=False):
        remove_leftovers()
        self.ailoop = ailoop
        self.state, self.verbose = STATE / str(os.getpid()), verbose
        self.state.mkdir(parents=True)
        self.cgroup = f"/ailoop-pods-{os.getpid()}"
        self.claims = self.state / "claims"
        self.volume_refresh_seconds = VOLUME_REFRESH_SECONDS
        self.lock = threading.RLock()
        self.objects, self.pods, self.events, self.ignored = {}, [], [], {}
        self.nodes = {f"node-{index}": True for index in range(nodes)}
        self._lost_addresses = set()
        self._addresses, self._next_address, self._wake, self._closing = {}, 100, threading.Event(), threading.Event()
        self._began, self._refreshed = time.monotonic(), time.monotonic()
        try:
            self.images = Images(self.state / "images", ailoop, nats_server, images)
            self.network = Network(os.getpid())
            self._dns = None
            self._start_dns()
        except BaseException:
            remove_run(self.state)
            raise
        threading.excepthook = lambda failed: self._report_failure(failed.exc_value)
        self._loop = threading.Thread(target=self._run, name="controllers", daemon=True)
        self._loop.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._closing.set()
        self._loop.join()
        for pod in self.pods:
            pod.end(0)
        for pod in self.pods:
            pod.gone.wait(20)
        if self._dns:
            self._dns.close()
        self.network.close()
        remove_run(self.state)

    def _start_dns(self):
        """The cluster's DNS server is a pod of kube-system, so that policies apply to questions too."""
        for name in ("kube-system", "default"):
            self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        pod = self._bare_pod("coredns", "kube-system", {"k8s-app": "kube-dns"})
        self._dns = dns.DnsServer(pod.netns_path)
        ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53}]
        spec = {"clusterIP": DNS_ADDRESS, "selector": {"k8s-app": "kube-dns"}, "ports": ports}
        self.apply({"kind": "Service", "metadata": {"name": "kube-dns", "namespace": "kube-system"}, "spec": spec})

    # What a trial does.

    def apply(self, documents, namespace="default", instead_of=()):
        """Creates or changes objects: a document, a list, a file or a text. Gives one line for each.

        Objects of `instead_of` that the new documents lack are deleted, as an upgrade by Helm does.
        """
        if isinstance(documents, (str, pathlib.Path)):
            documents = manifests.read(documents)
        documents = [documents] if isinstance(documents, dict) else documents
        for document in documents:
            self._check(document)
        lines = []
        with self.lock:
            for document in documents:
                key = key_of(document, namespace)
                if key[1]:
                    document.setdefault("metadata", {})["namespace"] = key[1]
                    if ("Namespace", "", key[1]) not in self.objects:
                        raise Refused(f'namespaces "{key[1]}" not found')
                lines.append(f"{key[0].lower()}/{key[2]} {self._put(key, document)}")
            for key in {key_of(old, namespace) for old in instead_of} - {key_of(document, namespace) for document in documents}:
                self.objects.pop(key, None)
                lines.append(f"{key[0].lower()}/{key[2]} deleted")
        self.wake()
        return lines

    def _check(self, document):
        kind = document["kind"]
        if kind not in manifests.EMULATED:
            self.ignored.setdefault(kind, []).append(document["metadata"]["name"])
        elif kind == "NetworkPolicy":
            policy.check(document)
        elif kind in manifests.WORKLOADS:
            spec = manifests.pod_template(document)["spec"]
            for container in manifests.all_containers(spec):
                self.images.check(container["image"])
                probes.check(container)
            if spec.get("hostNetwork") or spec.get("hostPID"):
                raise Refused(f"{kind} {document['metadata']['name']}: the namespaces of the host are not emulated")

    def _put(self, key, document):
        old = self.objects.get(key)
        if old is None:
            self.objects[key] = document
            if key[0] == "Pod":
                self.add_pod(Pod(self, key[2], key[1], document, key))
            return "created"
        if "template" in document.get("spec", {}):
            # `kubectl apply` keeps an annotation that it did not write.
            at = (old["spec"]["template"]["metadata"].get("annotations") or {}).get(controllers.RESTARTED_AT)
            if at:
                document["spec"]["template"]["metadata"].setdefault("annotations", {}).setdefault(controllers.RESTARTED_AT, at)
            controllers.check_change(old, document)
        changed = {name: value for name, value in old.items() if name != "status"} != document
        self.objects[key] = document | ({"status": old["status"]} if "status" in old else {})
        return "configured" if changed else "unchanged"

    def delete(self, kind, namespace, name):
        """Deletes an object and waits for the end of its pods, which another object of this name would take for its own."""
        key = kind, namespace, name
        with self.lock:
            if self.objects.pop(key, None) is None:
                raise Refused(f'{kind.lower()}s "{name}" not found')
        self.wake()
        while self.owned(key):
            time.sleep(0.05)

    def create_namespace(self, name, labels=None):
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels or {}}})

    def install(self, documents):
        """Applies documents with all that they need: namespaces, and a value for each key of a Secret that they lack."""
        for namespace in {key_of(document)[1] for document in documents} - {""}:
            self.create_namespace(namespace)
        needed = {key: keys for key, keys in manifests.named_secrets(documents).items() if self.lookup("Secret", key[1], key[0]) is None}
        for namespace in {namespace for namespace, _ in needed}:
            command = [str(self.ailoop), "nats-auth", "init", "--manifest", namespace]
            credentials = manifests.read(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout)
            if any(key_of(secret)[1:] in needed for secret in credentials):
                self.apply(credentials)
        for (namespace, name), keys in needed.items():
            if self.lookup("Secret", name, namespace) is None:
                # nats-server reads a value as configuration: it begins with a letter.
                # A volume may take every key, whatever its name.
                values = {key: f"p{secrets.token_hex(16)}" for key in sorted(keys) or ["token"]}
                self.apply({"kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "stringData": values})
        self.apply(documents)

    def find(self, name, namespace=None):
        """The pod of this name; several Deployments' pods are found by the beginning of their names."""
        found = [pod for pod in self.pods if namespace in (None, pod.namespace) and pod.name == name]
        found = found or [pod for pod in self.pods if namespace in (None, pod.namespace) and pod.name.startswith(f"{name}-")]
        if not found:
            raise Refused(f'pods "{name}" not found')
        return min(found, key=lambda pod: (pod.terminating.is_set(), not pod.is_ready, pod.created))

    def select(self, namespace, labels):
        with self.lock:
            return [pod for pod in self.pods if pod.namespace == namespace and matches({"matchLabels": labels}, pod.labels)]

    def not_ready(self, namespace=None):
        """What is not as its manifest wants it: one line for each."""
        with self.lock:
            waiting = []
            for (kind, of, name), document in self.objects.items():
                if namespace not in (None, of):
                    continue
                if kind in ("Deployment", "StatefulSet") and not controllers.is_rolled_out(self, document):
                    pods = ", ".join(f"{pod.name} {pod.status()}" for pod in self.owned((kind, of, name)))
                    waiting.append(f"{kind} {name}: {pods or 'no pods'}")
                if kind == "Job" and not document.get("status", {}).get("succeeded"):
                    waiting.append(f"Job {name}: {', '.join(pod.status() for pod in self.owned((kind, of, name)))}")
            return waiting

    def wait_ready(self, namespace=None, timeout=180):
        """Waits until every workload is rolled out and every Job has succeeded; gives the seconds that it took."""
        began = time.monotonic()
        while True:
            waiting = self.not_ready(namespace)
            if not waiting:
                return time.monotonic() - began
            if time.monotonic() - began > timeout:
                raise TimeoutError(f"not ready after {timeout} s: {'; '.join(waiting)}")
            time.sleep(0.1)

    def wait_for(self, kind, key, timeout=180):
        """Waits until one workload is rolled out, a Job has succeeded or a pod is ready."""
        began = time.monotonic()
        while True:
            with self.lock:
                document = self.objects.get(key)
                if kind == "Job" and document:
                    holds = document.get("status", {}).get("succeeded", False)
                elif kind in ("Deployment", "StatefulSet") and document:
                    holds = controllers.is_rolled_out(self, document)
                else:
                    holds = self.find(key[2], key[1]).is_ready
            if holds:
                return
            if time.monotonic() - began > timeout:
                raise TimeoutError(f"timed out waiting for {kind.lower()}/{key[2]}")
            time.sleep(0.1)

    def kill(self, pod):
        """kill -9 of the processes of a pod, which the kubelet starts again in the same pod; returns when it has noticed."""
        self.report(f"kill -9 {pod}")
        runs = [(state, state.run) for state in pod.containers if state.run is not None]
        for _, run in runs:
            run.kill()
        while any(state.run is run and state.ready for state, run in runs):
            time.sleep(0.01)

    def move(self, pod, grace=None):
        """Deletes a pod, so that its owner starts another one with another address; waits until the pod is gone."""
        self.report(f"move {pod} from {pod.ip}")
        pod.end(grace)
        self.wake()
        pod.gone.wait()

    def drain(self, node, timeout=300):
        """Evicts every pod of a node as its budgets let it; the node takes no pods until `uncordon`."""
        self.report(f"drain {node}")
        self.nodes[node] = False
        began = time.monotonic()
        while True:
            with self.lock:
                left = [pod for pod in self.pods if pod.node == node and pod.owner and pod.phase not in ("Succeeded", "Failed")]
                for pod in left:
                    if not pod.terminating.is_set() and self.may_evict(pod):
                        self.report(f"evict {pod}")
                        pod.end()
            if not left:
                return
            if time.monotonic() - began > timeout:
                raise TimeoutError(f"{node} is not drained after {timeout} s: {', '.join(map(str, left))}")
            time.sleep(0.2)

    def uncordon(self, node):
        self.nodes[node] = True
        self.wake()

    def lose_node(self, node, notice_after=40, evict_after=300):
        """A node loses its power: packets vanish at once, endpoints after a while, pods are replaced later still.

        The defaults are those of Kubernetes. The pods of a StatefulSet are replaced after `remove_node` only: before,
        nobody can say that they do not run.
        """
        self.report(f"lose {node}")
        self.nodes[node] = False
        with self.lock:
            lost = [pod for pod in self.pods if pod.node == node and pod.owner]
            self._lost_addresses |= {pod.ip for pod in lost}
            self._publish()  # before the processes end: no packet may tell that they did
        for pod in lost:
            pod.cut_off()

        def later():
            time.sleep(notice_after)
            for pod in lost:
                pod.is_lost = True
            self.wake()
            time.sleep(max(evict_after - notice_after, 0))
            for pod in (pod for pod in lost if pod.owner[0] != "StatefulSet"):
                pod.end(0)
            self.wake()

        threading.Thread(target=later, daemon=True).start()

    def remove_node(self, node):
        """Takes a node out of the cluster, as `kubectl delete node`: its pods are gone, and others may replace them."""
        with self.lock:
            del self.nodes[node]
            for pod in (pod for pod in self.pods if pod.node == node and pod.owner):
                pod.end(0)
        self.wake()

    def rollout_restart(self, kind, namespace, name):
        with self.lock:
            template = self.objects[kind, namespace, name]["spec"]["template"]
            template["metadata"].setdefault("annotations", {})[controllers.RESTARTED_AT] = str(time.time())
        self.report(f"rollout restart {kind} {name}")
        self.wake()

    def logs(self, pod, container=None, previous=False):
        files = pod.state(container).logs
        index = -2 if previous else -1
        if len(files) < -index:
            return ""
        return files[index].read_text(errors="replace")

    def exec_in_pod(self, pod, command, timeout=60, env=None):
        """(exit code, output) of a command in the first container, or in the namespace of a pod without containers."""
        if pod.containers:
            state = pod.state()
            if state.run is None or not state.run.is_running():
                raise Refused(f"pod {pod} does not run")
            return state.run.exec(command, timeout, env)
        done = subprocess.run(self.command_in(pod, command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=timeout, env=os.environ | (env or {}), start_new_session=True)
        return done.returncode, done.stdout

    def command_in(self, pod, command):
        """A command line that runs a program of this machine with the network and the names of a pod."""
        resolver = self.state / f"resolv-{pod.namespace}.conf"
        with self.lock:
            if not resolver.exists():  # others may read it now
                resolver.write_text(self.resolv_conf(pod.namespace))
        script = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
        return ["nsenter", f"--net={pod.netns_path}", "unshare", "--mount", "sh", "-c", script, str(resolver), *command]

    def http_get_from(self, pod, url, headers=None, timeout=5):
        """(status, body) of a request from a pod, by the names that the pod knows."""
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname
        if not host.replace(".", "").isdigit():
            addresses = dns.resolve(pod.netns_path, DNS_ADDRESS, host, pod.namespace, timeout)
            if not addresses:
                raise OSError(f"no address for {host}")
            host = addresses[0]
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return probes.http_get(pod.netns_path, (host, parts.port or 80), path, headers or {}, timeout)

    def client(self, namespace, labels=None, name="client", address=None):
        """A pod without containers, to look at the cluster from there. With an address of its own it is a host outside."""
        if ("Namespace", "", namespace) not in self.objects:
            self.create_namespace(namespace)
        return self._bare_pod(name, namespace, labels or {}, address)

    def _bare_pod(self, name, namespace, labels, address=None):
        pod = Pod(self, name, namespace, {"metadata": {"labels": labels}})
        pod.fixed_ip = address
        self.add_pod(pod)
        pod.place("node-0", NODE)
        while pod.ready_since is None:
            time.sleep(0.01)
        self._publish()
        return pod

    # What the other modules ask of the cluster.

    def lookup(self, kind, name, namespace):
        return self.objects.get((kind, namespace, name))

    def owned(self, owner):
        return [pod for pod in self.pods if pod.owner == owner]

    def add_pod(self, pod):
        with self.lock:
            self.pods.append(pod)

    def may_evict(self, pod):
        budgets = [document for (kind, _, _), document in self.objects.items() if kind == "PodDisruptionBudget"]

        def expected(pods):
            owners = {pod.owner for pod in pods if pod.owner in self.objects}
            return sum(self.objects[owner]["spec"].get("replicas", 1) for owner in owners)

        return controllers.may_evict(pod, budgets, self.pods, expected)

    @staticmethod
    def suffix():
        return "".join(secrets.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(5))

    def resolv_conf(self, namespace):
        return dns.resolv_conf(DNS_ADDRESS, namespace)

    def service_links(self, namespace):
        services = [
            (name, self._address((of, name), document), document["spec"].get("ports", []))
            for (kind, of, name), document in self.objects.items()
            if kind == "Service" and of == namespace and document["spec"].get("clusterIP") != "None"
        ]
        return manifests.service_links(services)

    def report(self, text):
        seconds = time.monotonic() - self._began
        self.events.append((seconds, text))
        if self.verbose:
            print(f"{seconds:7.1f}  {text}", flush=True)

    def wake(self):
        self._wake.set()

    def not_emulated(self):
        """What was asked for and is not done, for the end of a run."""
        kinds = [f"{kind} ({', '.join(sorted(set(names)))})" for kind, names in sorted(self.ignored.items())]
        memory = [] if memory_controller() else ["limits of memory and CPU: this machine's cgroups cannot be written"]
        return kinds + memory + [NOT_EMULATED]

    # The loop of the controllers.

    def _run(self):
        while not self._closing.is_set():
            self._wake.wait(TICK_SECONDS)
            self._wake.clear()
            try:
                self._reconcile()
            except Exception as error:  # pylint: disable=broad-except
                self._report_failure(error)

    def _report_failure(self, error):
        """A mistake of the runner must not look like one of the manifests: `make pods` fails by it."""
        text = "".join(traceback.format_exception(error))
        self.report(f"{RUNNER_FAILED}:\n{text}")
        print(text, file=sys.stderr, flush=True)

    def _reconcile(self):
        with self.lock:
            self.pods = [pod for pod in self.pods if not pod.gone.is_set()]
            for pod in self.pods:
                if pod.owner and pod.owner not in self.objects and not pod.terminating.is_set():
                    pod.end()
            for (kind, _, _), document in list(self.objects.items()):
                if kind in controllers.RECONCILERS:
                    controllers.RECONCILERS[kind](self, document)
            for pod in self.pods:
                if pod.node is None and not pod.terminating.is_set():
                    self._schedule(pod)
            self._publish()
            is_time = time.monotonic() - self._refreshed >= self.volume_refresh_seconds
            pods = list(self.pods) if is_time else []
        if is_time:
            self._refreshed = time.monotonic()
            for pod in pods:
                pod.refresh_volumes()

    def _schedule(self, pod):
        """The node with the fewest pods of the same owner; a spread that must hold leaves a pod waiting."""
        count = {node: sum(other.node == node and other.owner == pod.owner for other in self.pods) for node in self.nodes}
        total = {node: sum(other.node == node for other in self.pods) for node in self.nodes}
        allowed = [node for node, is_open in self.nodes.items() if is_open]
        for rule in pod.spec.get("topologySpreadConstraints", []):
            if rule["topologyKey"] == "kubernetes.io/hostname" and rule.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule":
                # A cordoned node counts as a place without pods, as by default in Kubernetes.
                allowed = [node for node in allowed if count[node] + 1 - min(count.values()) <= rule["maxSkew"]]
        if allowed:
            pod.place(min(allowed, key=lambda node: (count[node], total[node], node)), NODE)

    def _publish(self):
        """Gives endpoints, names and policies to the router and the DNS server."""
        with self.lock:
            placed = [pod for pod in self.pods if pod.ip]
            hosts = [policy.Host(pod.namespace, pod.labels, pod.ip, pod.named_ports()) for pod in placed]
            policies = [document for (kind, _, _), document in self.objects.items() if kind == "NetworkPolicy"]
            labels_of = {
                name: (document["metadata"].get("labels") or {}) | {"kubernetes.io/metadata.name": name}
                for (kind, _, name), document in self.objects.items() if kind == "Namespace"
            }
            documents = {key: document for key, document in self.objects.items() if key[0] == "Service"}
            services, table, ports = endpoints.of_services(documents, placed, self._address)
            if self._dns:
                self._dns.table, self._dns.ports = table, ports
            self.network.set_rules(policy.ruleset(hosts, policies, labels_of, services, self._lost_addresses))

    def _address(self, name, document):
        given = document["spec"].get("clusterIP")
        if given:
            return given
        if name not in self._addresses:
            self._next_address += 1
            self._addresses[name] = str(SERVICES[self._next_address])
        return self._addresses[name]
