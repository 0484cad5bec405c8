"""The Agents API of OpenAI, by the SDK of OpenAI."""

import threading

import openai

from .common import client, expect

NONE = {"type": "none"}
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
    ("openai agents: lists", lists),
    ("openai agents: errors", errors),
]
