"""The network of a cluster: a router namespace, and a namespace with an address of its own for each pod.

Each pod has a veth pair to the router, as with a routing network plugin, so that all traffic between pods passes the
router's rules. No interface leads out: the only addresses that a pod can reach are those of this run.
"""

import contextlib
import ctypes
import ipaddress
import os
import socket
import subprocess
import threading

PODS = ipaddress.ip_network("10.244.0.0/16")
SERVICES = ipaddress.ip_network("10.96.0.0/16")
NODE = "10.244.0.1"
GATEWAY = "169.254.1.1"
CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def run(*command, stdin=None):
    done = subprocess.run(command, input=stdin, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


@contextlib.contextmanager
def inside(path):
    """This thread is in another network namespace meanwhile. Sockets made there stay there."""
    here, there = os.open("/proc/thread-self/ns/net", os.O_RDONLY), os.open(path, os.O_RDONLY)
    try:
        if _libc.setns(there, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {path}")
        try:
            yield
        finally:
            if _libc.setns(here, CLONE_NEWNET) != 0:
                os.abort()  # a thread in the wrong namespace must not go on
    finally:
        os.close(here)
        os.close(there)


def new_socket(path, kind=socket.SOCK_STREAM):
    with inside(path):
        return socket.socket(socket.AF_INET, kind)


def connect(path, address, timeout):
    """A TCP connection from a network namespace."""
    connection = new_socket(path)
    try:
        connection.settimeout(timeout)
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


class Network:
    """Namespaces, addresses and links of one run."""

    def __init__(self, run_id):
        self.prefix = f"pods-{run_id}-"
        self._lock = threading.Lock()
        self._count = 0
        self._rules = None
        self.router = self._add_namespace("router")
        commands = [f"addr add {NODE}/32 dev lo", "link set lo up"]
        self._ip(self.router, commands)
        with inside(self.path(self.router)):
            self._sysctl({"net/ipv4/ip_forward": 1, "net/ipv4/conf/all/rp_filter": 0})

    @staticmethod
    def path(namespace):
        return f"/run/netns/{namespace}"

    @property
    def router_path(self):
        return self.path(self.router)

    def _add_namespace(self, name):
        namespace = self.prefix + name
        run("ip", "netns", "add", namespace)
        return namespace

    @staticmethod
    def _ip(namespace, commands):
        run("ip", "-n", namespace, "-batch", "-", stdin="\n".join(commands) + "\n")

    @staticmethod
    def _sysctl(values):
        # /proc/sys/net shows the namespace of the thread that opens it.
        for name, value in values.items():
            with open(f"/proc/sys/{name}", "w") as file:
                file.write(str(value))

    def add_host(self):
        """A namespace that has only its loopback: the machine of the person who operates the cluster."""
        namespace = self._add_namespace("operator")
        self._ip(namespace, ["link set lo up"])
        return namespace

    def attach(self, address=None):
        """Makes a namespace with an address that no pod of this run had before."""
        with self._lock:
            self._count += 1
            index = self._count
        address = address or str(PODS[index + 10])
        namespace, link = self._add_namespace(f"{index}"), f"pod{index}"
        self._ip(self.router, [
            f"link add {link} type veth peer name eth0 netns {namespace}",
            f"addr add {GATEWAY}/32 dev {link} scope link",
            f"link set {link} up",
            f"route add {address}/32 dev {link} src {NODE}",
        ])
        self._ip(namespace, [
            "link set lo up", f"addr add {address}/32 dev eth0", "link set eth0 up",
            f"route add {GATEWAY}/32 dev eth0 scope link", f"route add default via {GATEWAY} dev eth0",
        ])
        with inside(self.path(namespace)):
            self._sysctl({"net/ipv4/ip_unprivileged_port_start": 0})  # as containerd sets it
        return namespace, address

    def detach(self, namespace):
        subprocess.run(["ip", "netns", "del", namespace], capture_output=True)

    def set_rules(self, text):
        """Replaces all rules of the router at once."""
        with self._lock:
            if text != self._rules:
                run("ip", "netns", "exec", self.router, "nft", "-f", "-", stdin=text)
                self._rules = text

    def close(self):
        remove_namespaces(self.prefix)


def remove_namespaces(prefix):
    for name in os.listdir("/run/netns") if os.path.isdir("/run/netns") else []:
        if name.startswith(prefix):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
