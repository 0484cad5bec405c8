"""The DNS server of a cluster: Services, headless Services and pods of them, from a table that the cluster keeps.

A server, not files of hosts: only so do search domains, names that do not exist and addresses that change behave as
they do in a pod. Answers are not kept for others, so that a change is seen at the next question; CoreDNS may repeat an
older answer for up to 30 s.
"""

import contextlib
import socket
import struct
import threading

from .network import connect, new_socket

A, SRV, AAAA = 1, 33, 28
NO_SUCH_NAME = 3
DOMAIN = "cluster.local"
TTL_SECONDS = 5


def encode_name(name):
    return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".") if part) + b"\0"


def decode_name(packet, offset):
    parts = []
    while packet[offset]:
        length = packet[offset]
        if length >= 0xC0:  # a pointer to an earlier name
            rest, _ = decode_name(packet, struct.unpack_from("!H", packet, offset)[0] & 0x3FFF)
            return ".".join([*parts, rest]), offset + 2
        parts.append(packet[offset + 1:offset + 1 + length].decode("ascii", "replace"))
        offset += 1 + length
    return ".".join(parts), offset + 1


def answer(packet, table, ports):
    """The reply to a question. `table` has the addresses of each name, `ports` the SRV records."""
    query_id, flags, questions = struct.unpack_from("!HHH", packet)
    name, end = decode_name(packet, 12)
    kind = struct.unpack_from("!H", packet, end)[0]
    known, records = name.lower(), []
    if kind == A:
        records = [(A, socket.inet_aton(address)) for address in table.get(known, ())]
    elif kind == SRV:
        records = [(SRV, struct.pack("!HHH", 0, 100, port) + encode_name(target)) for target, port in ports.get(known, ())]
    exists = known in table or known in ports
    header = struct.pack("!HHHHHH", query_id, 0x8580 | (flags & 0x100) | (0 if exists else NO_SUCH_NAME), 1, len(records), 0, 0)
    body = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", of, 1, TTL_SECONDS, len(data)) + data for of, data in records)
    return header + packet[12:end + 4] + body


class DnsServer:
    """Answers on port 53 of a pod's namespace, over UDP and TCP."""

    def __init__(self, namespace_path):
        self.table, self.ports = {}, {}
        self._udp = new_socket(namespace_path, socket.SOCK_DGRAM)
        self._udp.bind(("0.0.0.0", 53))
        self._tcp = new_socket(namespace_path)
        self._tcp.bind(("0.0.0.0", 53))
        self._tcp.listen(64)
        for serve in (self._serve_udp, self._serve_tcp):
            threading.Thread(target=serve, name="dns", daemon=True).start()

    def _serve_udp(self):
        while True:
            try:
                packet, client = self._udp.recvfrom(4096)
                self._udp.sendto(answer(packet, self.table, self.ports), client)
            except (IndexError, struct.error):
                continue  # not a question
            except OSError:
                return

    def _serve_tcp(self):
        while True:
            try:
                client, _ = self._tcp.accept()
            except OSError:
                return
            with client:
                client.settimeout(2)
                try:
                    length = struct.unpack("!H", client.recv(2))[0]
                    reply = answer(client.recv(length), self.table, self.ports)
                    client.sendall(struct.pack("!H", len(reply)) + reply)
                except (OSError, IndexError, struct.error):
                    continue

    def close(self):
        for listener in (self._udp, self._tcp):
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for it
            listener.close()


def resolv_conf(server, namespace):
    """What the kubelet writes for `dnsPolicy: ClusterFirst`."""
    return f"search {namespace}.svc.{DOMAIN} svc.{DOMAIN} {DOMAIN}\nnameserver {server}\noptions ndots:5\n"


def resolve(namespace_path, server, name, namespace, timeout=3):
    """The addresses of a name as a pod of this namespace finds them, over TCP."""
    search = [f"{namespace}.svc.{DOMAIN}", f"svc.{DOMAIN}", DOMAIN]
    for candidate in ([] if name.endswith(".") else [f"{name}.{domain}" for domain in search]) + [name]:
        query = struct.pack("!HHHHHH", 7, 0x100, 1, 0, 0, 0) + encode_name(candidate) + struct.pack("!HH", A, 1)
        with connect(namespace_path, (server, 53), timeout) as connection:
            connection.sendall(struct.pack("!H", len(query)) + query)
            reply = connection.recv(65536)[2:]
        count, offset, found = struct.unpack_from("!H", reply, 6)[0], len(query), []
        for _ in range(count):
            _, offset = decode_name(reply, offset)
            length = struct.unpack_from("!H", reply, offset + 8)[0]
            found.append(socket.inet_ntoa(reply[offset + 10:offset + 10 + length]))
            offset += 10 + length
        if found:
            return found
    return []
