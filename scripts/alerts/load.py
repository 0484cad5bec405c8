"""Sessions that use everything that a healthy fleet uses: several turns, tools, a model that fails now and then."""

import itertools

from .client import Traffic

# The last turn makes the one before it count as ended too early.
PROMPTS = ("Hello", "call alerts_quick", "Hello again", "go on")


def of(fleet, threads=2):
    """Load on the fleet as long as its `with` block lasts."""
    models = itertools.cycle(["steady", "steady", "flaky"])

    def session(client):
        started = client.start(PROMPTS[0], model=next(models), interactive=True)
        client.wait_turn(started)
        for turn, prompt in enumerate(PROMPTS[1:], 2):
            client.call("session.send", session_id=started, text=prompt)
            while client.wait_turn(started)["turn"] < turn:
                pass
        client.call("session.stop", session_id=started)

    return Traffic(fleet.edge(), session, threads, pause=0.1)
