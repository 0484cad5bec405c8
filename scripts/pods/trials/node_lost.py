"""A node loses its power under the overlay `prod`: sessions go on with what is left, and pods are replaced."""

import time

from . import expect, session, started

with started("prod") as cluster:
    client = cluster.client("clients")
    node = cluster.find("nats-0").node
    cluster.lose_node(node, notice_after=10, evict_after=20)
    for attempt in range(1, 21):
        code, output = session(cluster, client, "run", "--model", "rehearsal", "--timeout", "60s", f"attempt {attempt}")
        if code == 0:
            break
        print(f"    {output.strip().splitlines()[0]}")
    expect(code == 0, f"a session is answered while a node is away, at attempt {attempt}")
    time.sleep(25)
    waiting = cluster.not_ready("ailoop")
    expect(len(waiting) == 1 and "StatefulSet nats" in waiting[0], "only the nats-server waits, for somebody who removes the node")
    cluster.remove_node(node)
    cluster.wait_ready("ailoop", 120)
    expect(session(cluster, client, "run", "--model", "rehearsal", "after it")[0] == 0, "and after its pods were replaced")
