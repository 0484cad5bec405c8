"""Network policies: who reaches what, from other namespaces and outside."""

from . import can_reach, expect, started

with started("local") as cluster:
    nats, edge, gateway = (cluster.find(name) for name in ("nats", "ailoop-edge", "ailoop-gateway"))
    clients, monitoring = cluster.client("clients"), cluster.client("monitoring")
    outside = cluster.client("internet", address="203.0.113.10")
    private = cluster.client("intranet", address="172.16.0.10")
    tool = cluster.client("ailoop", {"app.kubernetes.io/component": "tool"}, "tool")
    stranger = cluster.client("ailoop", {"app": "stranger"}, "stranger")

    expect(can_reach(clients, edge.ip, 7071), "a client reaches the edge")
    expect(not can_reach(clients, nats.ip, 4222), "a client does not reach nats-server")
    expect(not can_reach(clients, gateway.ip, 9090), "a client does not reach metrics")
    expect(can_reach(monitoring, nats.ip, 8222), "monitoring reaches the monitor of nats-server")
    expect(can_reach(monitoring, gateway.ip, 9090), "monitoring reaches metrics")
    expect(not can_reach(monitoring, nats.ip, 4222), "monitoring does not reach clients' port of nats-server")
    expect(can_reach(tool, nats.ip, 4222), "a pod with the label of a tool reaches nats-server")
    expect(not can_reach(stranger, nats.ip, 4222), "a pod without a label of ours does not reach nats-server")
    expect(can_reach(gateway, outside.ip, 443), "the gateway reaches the internet by port 443")
    expect(not can_reach(gateway, outside.ip, 80), "the gateway does not reach the internet by port 80")
    expect(not can_reach(gateway, private.ip, 443), "the gateway does not reach private networks")
    expect(not can_reach(edge, outside.ip, 443), "the edge does not reach the internet")
    expect(not can_reach(clients, stranger.ip, 80), "nobody reaches a pod without a label of ours")
