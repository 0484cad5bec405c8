"""Rotation of the edge's token: the old one works until the restart, then only the new one does."""

from . import expect, session, started

with started("local") as cluster:
    client = cluster.client("clients")
    old = session(cluster, client, "sessions")
    expect(old[0] == 0, "the first token is accepted")
    token = "pnew"
    cluster.apply({"kind": "Secret", "metadata": {"name": "ailoop-edge", "namespace": "ailoop"}, "stringData": {"token": token}})
    expect(session(cluster, client, "sessions", token=token)[0] != 0, "a changed Secret does not change a running edge")
    cluster.rollout_restart("Deployment", "ailoop", "ailoop-edge")
    cluster.wait_ready()
    expect(session(cluster, client, "sessions", token=token)[0] == 0, "after a rollout restart the new token is accepted")
    expect(session(cluster, client, "sessions", token="pold")[0] != 0, "another token is refused")
