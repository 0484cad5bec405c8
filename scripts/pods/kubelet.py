"""Runs one pod from its start to its end, as a kubelet does: init containers, probes, restarts, hooks, grace."""

import functools
import signal
import threading
import time
import uuid

from . import manifests, probes
from .container import Run, configuration
from .manifests import Missing, Refused, all_containers
from .network import Network
from .volumes import Volumes

RETRY_SECONDS = 2
# A container that ran this long is restarted without a pause again.
RESET_SECONDS = 600


def restart_delay(crashes):
    """The pause before a restart, in seconds: none at first, then 10 s, doubled up to five minutes."""
    return 0 if crashes <= 1 else min(10 * 2 ** (crashes - 2), 300)


class ContainerState:
    """What is known of one container of a pod, over all its restarts."""

    def __init__(self, manifest, is_init=False):
        self.manifest, self.name = manifest, manifest["name"]
        self.is_sidecar = is_init and manifest.get("restartPolicy") == "Always"
        self.run = None
        self.started = self.ready = False
        self.restarts, self.crashes, self.exit_code = 0, 0, None
        self.reason = "ContainerCreating"
        self.logs = []
        self.finished = threading.Event()


class Pod:
    """One pod and the thread that runs it. A pod without containers is an address, for tests."""

    def __init__(self, cluster, name, namespace, template, owner=None, revision="", ordinal=None):
        self.cluster, self.name, self.namespace = cluster, name, namespace
        metadata = template.get("metadata", {})
        self.labels, self.annotations = dict(metadata.get("labels") or {}), dict(metadata.get("annotations") or {})
        self.spec = template.get("spec", {})
        self.owner, self.revision, self.ordinal = owner, revision, ordinal
        self.uid, self.hostname = str(uuid.uuid4()), self.spec.get("hostname", name)
        self.node, self.node_ip, self.ip, self.netns, self.fixed_ip = None, None, None, None, None
        self.containers = [ContainerState(container) for container in self.spec.get("containers", [])]
        self.inits = [ContainerState(container, True) for container in self.spec.get("initContainers", [])]
        self.phase, self.ready_since, self.created = "Pending", None, time.monotonic()
        self.terminating, self.gone, self.is_lost = threading.Event(), threading.Event(), False
        self.is_frozen, self.is_forced, self.volumes = False, False, None
        self._deadline = None

    def __str__(self):
        return f"{self.namespace}/{self.name}"

    @property
    def netns_path(self):
        return Network.path(self.netns)

    @property
    def is_ready(self):
        """Whether it is an endpoint: it runs, every container is ready, and nobody ended it."""
        return self.ready_since is not None and not self.terminating.is_set() and not self.is_lost

    def is_available(self, min_ready_seconds):
        return self.is_ready and time.monotonic() - self.ready_since >= min_ready_seconds

    @property
    def restarts(self):
        return sum(state.restarts for state in self.containers + self.inits)

    def named_ports(self):
        return {
            port["name"]: (port.get("protocol", "TCP"), port["containerPort"])
            for container in all_containers(self.spec) for port in container.get("ports", []) if "name" in port
        }

    def state(self, container=None):
        states = self.inits + self.containers
        found = next((state for state in states if state.name == container), None) if container else (self.containers or [None])[0]
        if found is None:
            raise Refused(f"pod {self} has no container {container or ''}")
        return found

    def status(self):
        """One word, as `kubectl get pods` shows it."""
        if self.terminating.is_set():
            return "Terminating"
        if self.node is None:
            return "Pending: no node takes it"
        waiting = [state.reason for state in self.inits + self.containers if state.reason not in ("Running", "Completed")]
        return waiting[0] if waiting and self.phase in ("Pending", "Running") else self.phase

    def end(self, grace=None):
        """Asks for the end of the pod, with its own grace or a shorter one."""
        grace = self.spec.get("terminationGracePeriodSeconds", 30) if grace is None else grace
        deadline = time.monotonic() + grace
        self._deadline = min(deadline, self._deadline or deadline)
        self.terminating.set()
        self.is_forced = grace == 0
        if self.is_forced:
            self._kill_all()

    def place(self, node, node_ip):
        """Starts the pod on a node."""
        self.node, self.node_ip = node, node_ip
        threading.Thread(target=self._run, name=f"pod {self}", daemon=True).start()

    def cut_off(self):
        """Its node is gone: nothing runs, nothing restarts it, and nobody knows yet."""
        self.is_frozen = True
        self._kill_all()

    def refresh_volumes(self):
        if self.volumes and not self.terminating.is_set():
            self.volumes.refresh()

    # What follows runs in the thread of the pod.

    def _run(self):
        runners = []
        try:
            if not self._set_up():
                return
            self.phase = "Running" if not self.inits else "Pending"
            for state in self.inits:
                if state.is_sidecar:
                    runners.append(self._spawn(state, "Always"))
                    self._wait_until(lambda state=state: state.started)
                elif not self._run_to_completion(state):
                    self.phase = "Pending" if self.terminating.is_set() else "Failed"
                    break
            else:
                self.phase = "Running"
                runners += [self._spawn(state, self.spec.get("restartPolicy", "Always")) for state in self.containers]
            self._update_ready()
            self._wait_until(lambda: self.containers and all(state.finished.is_set() for state in self.containers))
            self._finish()
        except Refused as error:
            self.phase = "Failed"
            self.cluster.report(f"pod {self}: {error}")
            self.terminating.wait()
        finally:
            self._kill_all()
            for runner in runners:
                runner.join()
            if self.volumes:
                self.volumes.tear_down()
            if self.netns:
                self.cluster.network.detach(self.netns)
            self.gone.set()
            self.cluster.wake()

    def _wait_until(self, holds):
        while not self.terminating.wait(0.1):
            if holds():
                return

    def _set_up(self):
        lookup = functools.partial(self.cluster.lookup, namespace=self.namespace)
        self.volumes = Volumes(self, self.cluster.state / "volumes" / self.uid, self.cluster.claims, lookup)
        self.netns, self.ip = self.cluster.network.attach(self.fixed_ip)
        self.cluster.wake()
        while not self.terminating.is_set():
            try:
                self.volumes.set_up()
                return True
            except Missing as missing:
                self._set_reason(f"FailedMount: {missing} is not there")
                self.terminating.wait(RETRY_SECONDS)
        return False

    def _set_reason(self, reason):
        for state in self.inits + self.containers:
            state.reason = reason

    def _finish(self):
        """Either all containers ended by themselves, or somebody asked for the end."""
        if not self.terminating.is_set():
            if self.containers:
                failed = any(state.exit_code != 0 for state in self.containers)
                self.phase = "Failed" if failed else "Succeeded"
            self._end_containers([state for state in self.inits if state.is_sidecar], self.spec.get("terminationGracePeriodSeconds", 30))
            self.ready_since = None
            self.cluster.wake()
            self.terminating.wait()
            return
        self._end_containers(self.containers)
        # Sidecars end after the containers that they serve, the last one first.
        for state in reversed([state for state in self.inits if state.is_sidecar]):
            self._end_containers([state])

    def _end_containers(self, states, grace=None):
        deadline = self._deadline if grace is None else time.monotonic() + grace
        threads = [threading.Thread(target=self._end_container, args=(state, deadline), daemon=True) for state in states]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _end_container(self, state, deadline):
        """preStop, SIGTERM, and SIGKILL when the grace is over."""
        run = state.run
        if run is None or not run.is_running():
            return
        hook = state.manifest.get("lifecycle", {}).get("preStop", {})
        left = max(deadline - time.monotonic(), 0)
        if "sleep" in hook:
            state.finished.wait(min(hook["sleep"]["seconds"], left))
        elif "exec" in hook and left:
            code, output = run.exec(hook["exec"]["command"], left)
            if code:
                self.cluster.report(f"pod {self}: preStop failed with {code}: {output.strip()[-200:]}")
        elif "httpGet" in hook and left:
            probes.attempt(hook | {"timeoutSeconds": left}, state.manifest, run, self.cluster.network.router_path, self.ip)
        run.signal(signal.SIGTERM)
        # A hook that took all of the grace leaves two seconds.
        deadline = max(deadline, time.monotonic() + 2) if hook else deadline
        while run.is_running() and time.monotonic() < deadline:
            time.sleep(0.05)
        if run.is_running():
            if not self.is_forced:
                self.cluster.report(f"pod {self}: {state.name} was killed after its grace")
            run.kill()

    def _kill_all(self):
        for state in self.inits + self.containers:
            if state.run is not None:
                state.run.kill()

    def _run_to_completion(self, state):
        policy = "Never" if self.spec.get("restartPolicy") == "Never" else "OnFailure"
        self._run_container(state, policy)
        return state.exit_code == 0

    def _spawn(self, state, policy):
        thread = threading.Thread(target=self._run_container, args=(state, policy), name=f"{self}/{state.name}", daemon=True)
        thread.start()
        return thread

    def _run_container(self, state, policy):
        """Runs a container again and again as its restart policy says."""
        while not self.terminating.is_set():
            try:
                run = self._start(state)
            except Missing as missing:
                state.reason = f"CreateContainerConfigError: {missing} is not there"
                self.terminating.wait(RETRY_SECONDS)
                continue
            except Refused as error:
                state.reason = "Refused"
                self.cluster.report(f"pod {self}: {error}")
                self.terminating.wait()
                break
            began, over = time.monotonic(), threading.Event()
            watchers = self._watch(state, run, over)
            state.exit_code = run.wait()
            over.set()
            if self.is_frozen:
                self.terminating.wait()
                break
            state.started = state.ready = False
            self._update_ready()
            if time.monotonic() - began > RESET_SECONDS:
                state.crashes = 0
            for watcher in watchers:
                watcher.join()
            if policy == "Never" or (policy == "OnFailure" and state.exit_code == 0) or self.terminating.is_set():
                break
            state.crashes += 1
            delay = restart_delay(state.crashes)
            state.reason = f"CrashLoopBackOff ({delay} s)" if delay else "Restarting"
            if self.terminating.wait(delay):
                break
            state.restarts += 1
        state.reason = "Completed" if state.exit_code == 0 else "Error"
        state.finished.set()
        self.cluster.wake()

    def _start(self, state):
        cluster, container = self.cluster, state.manifest
        image = cluster.images.get(container["image"])
        lookup = functools.partial(cluster.lookup, namespace=self.namespace)
        links = cluster.service_links(self.namespace) if self.spec.get("enableServiceLinks", True) else {}
        variables = manifests.environment(container, self, lookup, links)
        mounts = self.volumes.mounts(container, variables)
        number = len(state.logs)
        log = cluster.state / "logs" / self.namespace / f"{self.name}-{self.uid[:8]}-{state.name}-{number}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        run = Run(cluster.state, f"{self.uid[:8]}-{state.name}-{number}", image, log)
        files = self._kubelet_files()
        run.start(configuration(self, container, image, variables, mounts, files, f"{cluster.cgroup}/{run.id}"))
        state.logs.append(log)
        state.run, state.reason = run, "Running"
        return run

    def _kubelet_files(self):
        directory = self.volumes.directory / "..kubelet"
        directory.mkdir(parents=True, exist_ok=True)
        names = f"{self.hostname}.{self.spec['subdomain']}.{self.namespace}.svc.cluster.local " if "subdomain" in self.spec else ""
        contents = {
            "hosts": f"127.0.0.1 localhost\n::1 localhost\n{self.ip} {names}{self.hostname}\n",
            "hostname": f"{self.hostname}\n",
            "resolv.conf": self.cluster.resolv_conf(self.namespace),
        }
        for name, text in contents.items():
            (directory / name).write_text(text)
            (directory / name).chmod(0o644)
        return {directory / name: f"/etc/{name}" for name in contents}

    def _watch(self, state, run, over):
        """Starts the probes of a run, which end with it. Liveness and readiness begin when the container has started."""
        container = state.manifest

        def attempt(name):
            return lambda: probes.attempt(container[name], container, run, self.cluster.network.router_path, self.ip)

        def on_startup(succeeded, reason):
            if succeeded:
                state.started = True
            elif succeeded is False:
                self._restart(state, run, "startup", reason)
            return succeeded  # it is not probed again

        def on_liveness(succeeded, reason):
            if not succeeded:
                self._restart(state, run, "liveness", reason)

        def on_readiness(succeeded, reason):
            if state.ready and not succeeded and not self.terminating.is_set():
                self.cluster.report(f"pod {self}: not ready: {reason}")
            state.ready = bool(succeeded)
            self._update_ready()

        def after_start(watch):
            while not state.started:
                if over.wait(0.1):
                    return
            watch()

        def loop(name, on_state, initial):
            return functools.partial(probes.watch, container[name], attempt(name), over, on_state, initial)

        state.started = "startupProbe" not in container
        targets = [] if state.started else [loop("startupProbe", on_startup, None)]
        if "livenessProbe" in container:
            targets.append(functools.partial(after_start, loop("livenessProbe", on_liveness, True)))
        if "readinessProbe" in container:
            targets.append(functools.partial(after_start, loop("readinessProbe", on_readiness, False)))
        else:
            targets.append(functools.partial(after_start, lambda: on_readiness(True, "")))
        threads = [threading.Thread(target=target, daemon=True) for target in targets]
        for thread in threads:
            thread.start()
        return threads

    def _restart(self, state, run, probe, reason):
        if run.is_running() and not self.terminating.is_set() and self._deadline is None:
            self.cluster.report(f"pod {self}: {state.name} is restarted, since its {probe} probe failed: {reason}")
            grace = state.manifest[f"{probe}Probe"].get("terminationGracePeriodSeconds", self.spec.get("terminationGracePeriodSeconds", 30))
            self._end_container(state, time.monotonic() + grace)

    def _update_ready(self):
        if self.is_frozen:
            return
        sidecars = [state for state in self.inits if state.is_sidecar]
        ready = self.phase == "Running" and all(state.ready for state in self.containers + sidecars)
        if ready and self.ready_since is None:
            self.ready_since = time.monotonic()
        elif not ready:
            self.ready_since = None
        self.cluster.wake()
