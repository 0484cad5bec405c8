"""The Agents API of OpenAI, by the SDK of OpenAI."""

import threading
import time
import uuid

import openai

from .common import client, expect
from .fleet import Failed

NONE = {"type": "none"}
SLOW = "Take your time and say this slowly, word for word, so that there is time to kill the edge meanwhile"
DOWN_SECONDS = 1
WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def agents(fleet):
    sdk = client(fleet).beta.agents
    listed = [agent.id for agent in sdk.list()]
    expect({"e", "guarded", "helper"} <= set(listed), listed)
    return expect(sdk.retrieve("e").name == "Eamonn the Executioner", sdk.retrieve("e")) and listed


def create_and_stream(fleet):
    sessions = client(fleet).beta.agents.sessions
    with sessions.create(agent_id="e", environment=NONE, input="Hello", stream=True) as stream:
        events = list(stream)
    kinds = [event.type for event in events]
    expect(kinds[0] == "agent.session.created" and kinds[-1] == "agent.session.idle", kinds)
    session = events[0].session
    texts = []
    for text in ("Two", "Three slowly"):
        with sessions.stream(session.id, input=text) as stream:
            texts.append(stream.get_final_result().output_text.strip())
    expect(texts == ["Message 2 was: Two", "Message 3 was: Three slowly"], texts)
    found = sessions.retrieve(session.id)
    expect(found.status == "idle" and found.agent.id == "e" and found.usage.total_tokens > 0, found)
    items = list(sessions.items.list(session.id, order="asc", limit=2))
    expect([item.role for item in items] == ["user", "assistant"] * 3, items)
    turns = list(sessions.turns.list(session.id, order="asc"))
    expect([turn.status for turn in turns] == ["completed"] * 3, turns)
    expect(len(list(sessions.turns.items.list(turns[1].id, session_id=session.id))) == 2, "items of a turn")
    return texts


def stream_events(fleet):
    sessions = client(fleet).beta.agents.sessions
    session = wait(sessions, sessions.create(agent={"model": "e"}, environment=NONE, input="Hello").id, "idle")
    with sessions.stream(session.id, input="Say this slowly please") as stream:
        events = list(stream)
    ids = [event.event_id for event in events]
    expect(len(ids) == len(set(ids)), ids)
    pieces = [event.delta for event in events if event.type == "agent.session.turn.output_text.delta"]
    whole = [event.text for event in events if event.type == "agent.session.turn.output_text.done"]
    expect(len(pieces) > 3 and "".join(pieces) == whole[0], (pieces, whole))
    return f"{len(pieces)} pieces: {whole[0]}"


def own_tool(fleet):
    sessions = client(fleet).beta.agents.sessions
    agent = {"model": "e", "tools": [WEATHER]}
    session = wait(sessions, sessions.create(agent=agent, environment=NONE, input="Hello").id, "idle")
    seen = []

    def weather(arguments):
        seen.append(arguments)
        return "rain"

    with sessions.stream(session.id, input="What is the weather?", tool_handlers={"weather": weather}) as stream:
        result = stream.with_result_collection()
        result.until_done()
    expect(seen == [{"city": "Bonn"}], seen)
    # The session keeps its tools; without a handler the caller answers.
    sessions.events.create(session.id, events=[message("What is the weather now?")])
    action = wait(sessions, session.id, "requires_action").required_actions[0]
    expect(action.type == "function_call" and action.name == "weather", action)
    answer = {"type": "agent.session.input.tool_result", "turn_id": action.turn_id, "call_id": action.call_id}
    sessions.events.create(session.id, events=[answer | {"success": False, "error": "no satellite"}])
    wait(sessions, session.id, "idle")
    items = list(sessions.items.list(session.id))
    outputs = [item for item in items if item.type == "function_call_output"]
    expect([item.status for item in outputs] == ["failed", "completed"], outputs)
    return expect("no satellite" in items[0].output_text, items[0].output_text)


def approval(fleet):
    sessions = client(fleet, fleet.approver_key).beta.agents.sessions
    texts = []
    for decision in ("approve", "deny"):
        session = sessions.create(agent_id="guarded", environment=NONE, input="Please list files")
        action = wait(sessions, session.id, "requires_action").required_actions[0]
        expect(action.type == "mcp_approval_request" and action.request.name == "list_files", action)
        response = {"type": "mcp_tool_call", "decision": decision}
        kind = "agent.session.input.mcp_approval_request_result"
        event = {"type": kind, "request_id": action.request_id, "response": response}
        try:
            client(fleet).beta.agents.sessions.events.create(session.id, events=[event])
            expect(False, "a key without the scope `approve` may not allow a call")
        except openai.PermissionDeniedError:
            pass
        sessions.events.create(session.id, events=[event])
        wait(sessions, session.id, "idle")
        items = list(sessions.items.list(session.id, order="asc"))
        calls = [item for item in items if item.type == "mcp_call"]
        expect(len(calls) == 1 and (calls[0].status == "completed") == (decision == "approve"), calls)
        texts.append(items[-1].output_text)
    return expect("a person said no" in texts[1], texts) and texts[1]


def question(fleet):
    sessions = client(fleet, fleet.approver_key).beta.agents.sessions
    session = sessions.create(agent_id="helper", environment=NONE, input="Please ask me")
    action = wait(sessions, session.id, "requires_action").required_actions[0]
    expect("Which colour?" in action.request.message, action)
    sessions.events.create(session.id, events=[message("Green")])
    wait(sessions, session.id, "idle")
    return expect("Green" in next(iter(sessions.items.list(session.id))).output_text, "the answer")


def cancel(fleet):
    sessions = client(fleet).beta.agents.sessions
    session = wait(sessions, sessions.create(agent_id="e", environment=NONE, input="Hello").id, "idle")
    stop = [{"type": "agent.session.input.cancel"}]
    kinds = []
    with sessions.stream(session.id, input="Say this slowly " * 20) as stream:
        for event in stream:
            kinds.append(event.type)
            if kinds.count("agent.session.turn.output_text.delta") == 3 and event.type.endswith("delta"):
                threading.Thread(target=lambda: sessions.events.create(session.id, events=stop)).start()
    expect("agent.session.turn.cancelled" in kinds and kinds[-1] == "agent.session.idle", kinds)
    sessions.delete(session.id)
    try:
        with sessions.stream(session.id, input="Again"):
            expect(False, "a session that ended takes no message")
    except ValueError:
        pass
    return "cancelled, then deleted"


def read_until_killed(fleet, events):
    """Kills the edge after a few pieces of text, and starts it again later; returns the events until then."""
    seen = []
    try:
        for event in events:
            seen.append(event)
            if sum(is_piece(event) for event in seen) == 5:
                fleet.kill_edge()
    except Exception:  # pylint: disable=broad-exception-caught
        # Some of the text comes while there is no edge.
        time.sleep(DOWN_SECONDS)
        fleet.start_edge()
        return seen
    raise Failed(f"the stream did not break: {[event.type for event in seen]}")


class Texts:
    """The text of each message, as a client has it that shows pieces and connects again."""

    def __init__(self):
        self.by_item, self.done = {}, {}

    def push(self, event):
        """A message that was not complete comes again from its start, so `added` empties it."""
        if event.type == "agent.session.turn.item.added":
            self.by_item[event.item.id] = ""
        elif is_piece(event):
            self.by_item[event.item_id] += event.delta
        elif event.type == "agent.session.turn.output_text.done":
            self.done[event.item_id] = event.text


def edge_killed_in_a_turn(fleet):
    """The client repeats its message under the same key, and follows the session again; its turn runs once."""
    sessions, key, texts = client(fleet).beta.agents.sessions, str(uuid.uuid4()), Texts()
    session = wait(sessions, sessions.create(agent_id="e", environment=NONE, input="Hello").id, "idle")
    with sessions.stream(session.id, input=SLOW, idempotency_key=key) as stream:
        before = read_until_killed(fleet, stream)
    sessions.events.create(session.id, events=[message(SLOW)], idempotency_key=key)
    with sessions.events.stream(session.id) as stream:
        after = until_idle(stream)
    for event in [*before, *after]:
        texts.push(event)
    [(item, text)] = texts.done.items()
    expect(text.strip() == f"Message 2 was: {SLOW}" and texts.by_item[item] == text, texts.by_item)
    # The first piece after the loss has all the text so far: more than the pieces before it together.
    first = next(event for event in after if is_piece(event))
    shown = "".join(event.delta for event in before if is_piece(event))
    expect(first.delta.startswith(shown) and len(first.delta) > len(shown), (shown, first))
    turns = {event.turn_id for event in [*before, *after] if event.type.startswith("agent.session.turn.")}
    expect(len(turns) == 1, turns)
    # A client that comes when the turn has ended repeats its message too, and reads the items.
    sessions.events.create(session.id, events=[message(SLOW)], idempotency_key=key)
    with sessions.events.stream(session.id) as stream:
        expect([event.type for event in until_idle(stream)] == ["agent.session.idle"], "no turn runs")
    items = list(sessions.items.list(session.id, order="asc"))
    expect([item.role for item in items] == ["user", "assistant"] * 2 and items[-1].output_text == text, items)
    expect([turn.status for turn in sessions.turns.list(session.id)] == ["completed"] * 2, "two turns")
    return f"{len(before)} events, then {len(after)}: {text}"


def edge_killed_in_a_creation(fleet):
    """The client repeats its request under the same key, and gets the same session from its start."""
    sessions, before = client(fleet).beta.agents.sessions, fleet.count_sessions()
    request = {"agent_id": "e", "environment": NONE, "input": SLOW, "stream": True}
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    lost = read_until_killed(fleet, sessions.create(**request, extra_headers=headers))
    with sessions.create(**request, extra_headers=headers) as stream:
        whole = list(stream)
    more = fleet.count_sessions() - before
    expect(more == 1 and whole[0].session.id == lost[0].session.id, (more, whole[0], lost[0]))
    pieces = "".join(event.delta for event in whole if is_piece(event))
    expect(pieces.strip() == f"Message 1 was: {SLOW}", pieces)
    return f"{len(lost)} events, then all {len(whole)}"


def lists(fleet):
    sessions = client(fleet).beta.agents.sessions
    made = [sessions.create(agent_id="helper", environment=NONE, input="Hello").id for _ in range(3)]
    newest = [session.id for session in sessions.list(agent_id="helper", limit=2)]
    oldest = [session.id for session in sessions.list(agent_id="helper", limit=2, order="asc")]
    expect(newest == oldest[::-1] and set(made) <= set(newest), (newest, oldest))
    return f"{len(newest)} sessions"


def errors(fleet):
    sessions = client(fleet, retries=0).beta.agents.sessions
    for call, kind in [
        (lambda: sessions.retrieve("nobody"), openai.NotFoundError),
        (lambda: sessions.create(agent_id="nobody", environment=NONE, input="x"), openai.NotFoundError),
        (lambda: sessions.create(agent_id="e", environment={"type": "openai_hosted"}, input="x"), openai.BadRequestError),
    ]:
        try:
            call()
            expect(False, kind)
        except kind:
            pass
    observer = client(fleet, fleet.observer_key, retries=0).beta.agents.sessions
    try:
        observer.create(agent_id="e", environment=NONE, input="x")
        expect(False, "an observer starts nothing")
    except openai.PermissionDeniedError:
        return "errors by their class"


def message(text):
    content = [{"type": "input_text", "text": text}]
    return {"type": "agent.session.input.message", "input": [{"role": "user", "content": content}]}


def is_piece(event):
    """Whether an event is a piece of a text."""
    return event.type == "agent.session.turn.output_text.delta"


def until_idle(stream):
    """The events until the session waits for a message."""
    seen = []
    for event in stream:
        seen.append(event)
        if event.type == "agent.session.idle":
            return seen
    raise Failed(f"the stream ended: {[event.type for event in seen]}")


def wait(sessions, session, status):
    """Follows a session until it has a status."""
    with sessions.events.stream(session) as stream:
        for event in stream:
            if event.type == f"agent.session.{status}":
                return event.session
    return expect(False, f"{session} never was {status}")


CHECKS = [
    ("openai agents: agents", agents),
    ("openai agents: create and stream", create_and_stream),
    ("openai agents: events", stream_events),
    ("openai agents: own tool", own_tool),
    ("openai agents: approval", approval),
    ("openai agents: question", question),
    ("openai agents: cancel", cancel),
    ("openai agents: edge killed in a turn", edge_killed_in_a_turn),
    ("openai agents: edge killed in a creation", edge_killed_in_a_creation),
    ("openai agents: lists", lists),
    ("openai agents: errors", errors),
]
