"""What front ends do over AG-UI, by two versions of the npm package @ag-ui/client and by the core of CopilotKit; and whether
the models of the PyPI package ag-ui-protocol take every event."""

import json
import threading
import time
import urllib.error
import urllib.request
import uuid

from ag_ui.core import Event, RunAgentInput, UserMessage
from ag_ui.core.types import ResumeEntry
from pydantic import TypeAdapter

from .common import asking_fleet, expect, run_javascript

SECONDS_MAX = 120
SLOW = "Take your time and say this slowly, word for word, so that there is time to kill the edge meanwhile"
EVENTS = TypeAdapter(Event)


def request(fleet, path, body=None):
    """A request with the key of the fleet."""
    headers = {"Authorization": f"Bearer {fleet.key}", "Content-Type": "application/json"}
    return urllib.request.Request(f"{fleet.url}{path}", data=body, headers=headers)


def run(fleet, text, thread, run_id=None, resume=None):
    """Runs the agent, and returns the events, each as the model of the package that it is."""
    user = UserMessage(id="m1", content=text)
    given = RunAgentInput(
        thread_id=thread, run_id=run_id or str(uuid.uuid4()), protocol_version="1.0", messages=[user], resume=resume,
    )
    body = given.model_dump_json(by_alias=True, exclude_none=True).encode()
    with urllib.request.urlopen(request(fleet, "/ag-ui/e", body), timeout=SECONDS_MAX) as response:
        lines = [line.decode().strip() for line in response]
    return [EVENTS.validate_json(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


def names(events):
    return [event.type.value for event in events]


def text_of(events):
    return "".join(event.delta for event in events if event.type.value == "TEXT_MESSAGE_CONTENT")


def models_of_events(given):
    fleet, thread, seen = asking_fleet(given), str(uuid.uuid4()), set()
    for text in ("Hello", "list the files", "write a file"):
        events = run(fleet, text, thread)
        seen.update(names(events))
    interrupt = events[-1].outcome.interrupts[0]
    resume = [ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload={"approved": False, "note": "not now"})]
    events = run(fleet, "write a file", thread, resume=resume)
    expect("TOOL_CALL_RESULT" in names(events) and events[-1].usage, events)
    seen.update(names(events))
    return expect(len(seen) >= 14, f"{len(seen)} kinds of events: {', '.join(sorted(seen))}")


def edge_killed_in_a_run(given):
    """The client repeats the run; its turn must not run twice."""
    fleet, thread, run_id = asking_fleet(given), str(uuid.uuid4()), str(uuid.uuid4())

    def kill():
        time.sleep(1.5)
        fleet.kill_edge()
        fleet.start_edge()

    killer = threading.Thread(target=kill)
    killer.start()
    tries = 0
    while True:
        tries += 1
        expect(tries < 60, "no answer")
        try:
            events = run(fleet, SLOW, thread, run_id)
        except (urllib.error.URLError, ConnectionError, OSError):
            time.sleep(0.5)
            continue
        if events and events[-1].type.value == "RUN_FINISHED":
            break
    killer.join()
    session = events[1].value["sessionId"]
    with urllib.request.urlopen(request(fleet, f"/v1/sessions/{session}")) as response:
        turns = json.load(response)["turn"]
    expect(tries > 1 and turns == 1 and SLOW in text_of(events), (tries, turns, text_of(events)))
    return f"{tries} tries, {turns} turn, the whole text"


def javascript(script, *arguments):
    """Runs a script of the npm packages, which prints what it saw."""

    def check(given):
        fleet = asking_fleet(given)
        return run_javascript("ag-ui-js", script, *arguments, fleet.url, fleet.key).replace("\n", "; ")

    return check


CHECKS = [
    ("ag-ui-protocol: every event has its model", models_of_events),
    ("ag-ui-protocol: edge killed in a run", edge_killed_in_a_run),
    ("@ag-ui/client 1.0.0: text, tools, interrupts, errors, stop", javascript("driver.mjs", "ag-ui-client-1")),
    ("@ag-ui/client 0.0.59: text, tools, interrupts, errors, stop", javascript("driver.mjs", "ag-ui-client-0")),
    ("@copilotkit/core: run, tools, connect, stop", javascript("copilotkit.mjs")),
]
