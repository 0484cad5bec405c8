"""What another agent does over A2A, by the client of the Python package a2a-sdk and by that of the npm package @a2a-js/sdk."""

import asyncio
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.helpers import get_artifact_text, get_data_parts, new_data_message, new_text_message
from a2a.types import a2a_pb2 as types
from a2a.utils import errors as sdk_errors
from google.protobuf.json_format import MessageToDict

from .common import ASKING, asking_fleet, expect, run_javascript
from .fleet import Failed

BINDINGS = ["JSONRPC", "HTTP+JSON"]
WAIT_SECONDS_MAX = 60
SLOW = "Take your time and say this slowly, word for word, so that there is time to break something meanwhile"
USER = types.Role.ROLE_USER


class Peer:
    """A client of the SDK over one binding."""

    def __init__(self, fleet, binding, streaming, key=None):
        headers = {"Authorization": f"Bearer {key or fleet.key}"}
        self.fleet, self.binding, self.streaming = fleet, binding, streaming
        self.http = httpx.AsyncClient(headers=headers, timeout=WAIT_SECONDS_MAX, trust_env=False)
        self.client = None

    async def __aenter__(self):
        card = await A2ACardResolver(self.http, self.fleet.url).get_agent_card()
        config = ClientConfig(
            streaming=self.streaming, httpx_client=self.http, supported_protocol_bindings=[self.binding],
            use_client_preference=True,
        )
        self.client = ClientFactory(config).create(card)
        return self

    async def __aexit__(self, *_):
        await self.http.aclose()

    async def send(self, message):
        """Sends a message, and returns the events that answer it."""
        return [event async for event in self.client.send_message(types.SendMessageRequest(message=message))]

    async def get(self, task):
        """Gets a task anew."""
        return await self.client.get_task(types.GetTaskRequest(id=task.id))


def text(words, **more):
    return new_text_message(words, role=USER, **more)


def state(task):
    return types.TaskState.Name(task.status.state)


def answer_of(task):
    return "\n\n".join(get_artifact_text(artifact) for artifact in task.artifacts)


def text_of_stream(events):
    """What the artifacts of a stream come to, as the specification has it."""
    artifacts = {}
    for event in events:
        if event.HasField("task"):
            artifacts = {artifact.artifact_id: get_artifact_text(artifact) for artifact in event.task.artifacts}
        if event.HasField("artifact_update"):
            update = event.artifact_update
            before = artifacts.get(update.artifact.artifact_id, "") if update.append else ""
            artifacts[update.artifact.artifact_id] = before + get_artifact_text(update.artifact)
    return "\n\n".join(artifacts.values())


def in_both(check):
    """Runs a check over both bindings, on a fleet of its own."""

    async def run(fleet):
        return [f"{binding}: {await check(fleet, binding)}" for binding in BINDINGS]

    return lambda fleet: ", ".join(asyncio.run(run(asking_fleet(fleet))))


async def card(fleet, binding):
    async with Peer(fleet, binding, streaming=False) as peer:
        extended = await peer.client.get_extended_agent_card(types.GetExtendedAgentCardRequest())
        own = await A2ACardResolver(peer.http, f"{fleet.url}/a2a/agents/e").get_agent_card()
    expect(own.name == extended.name == ASKING["name"], own)
    expect("scripted-model" in extended.description or extended.skills[0].id == "e", extended)
    return own.supported_interfaces[0].tenant


async def send(fleet, binding):
    async with Peer(fleet, binding, streaming=False) as peer:
        [first] = await peer.send(text("Hello"))
        expect("was: Hello" in answer_of(first.task) and state(first.task) == "TASK_STATE_COMPLETED", first)
        [second] = await peer.send(text("Again", context_id=first.task.context_id))
        expect("Message 2 was: Again" in answer_of(second.task), second)
        expect(second.task.context_id == first.task.context_id and second.task.id != first.task.id, second)
        got = await peer.get(second.task)
        expect(answer_of(got) == answer_of(second.task), got)
        listed = await peer.client.list_tasks(types.ListTasksRequest(context_id=first.task.context_id))
        expect([task.id for task in listed.tasks] == [second.task.id, first.task.id], listed)
        return state(got)


async def repeated_message(fleet, binding):
    async with Peer(fleet, binding, streaming=False) as peer:
        message = text("Once")
        [first], [second] = await peer.send(message), await peer.send(message)
        expect(first.task.id == second.task.id and answer_of(first.task) == answer_of(second.task), second)
        return "one task"


async def stream(fleet, binding):
    async with Peer(fleet, binding, streaming=True) as peer:
        events = await peer.send(text("Hello slowly"))
        updates = [event for event in events if event.HasField("artifact_update")]
        expect(events[0].HasField("task") and len(updates) > 3, events)
        expect(state(events[-1].status_update) == "TASK_STATE_COMPLETED", events)
        got = await peer.get(events[0].task)
        expect(text_of_stream(events).strip() == answer_of(got).strip() and "Hello slowly" in answer_of(got), got)
        return f"{len(updates)} updates"


async def input_required(fleet, binding):
    async with Peer(fleet, binding, streaming=False) as peer:
        [asked] = await peer.send(text("Please ask me"))
        expect(state(asked.task) == "TASK_STATE_INPUT_REQUIRED", asked)
        [data] = get_data_parts(asked.task.status.message.parts)
        expect(data["kind"] == "question" and data["arguments"]["question"] == "Which colour?", data)
        [done] = await peer.send(text("Blue", task_id=asked.task.id, context_id=asked.task.context_id))
        expect("The tool says: Blue" in answer_of(done.task), done)

        [asked] = await peer.send(text("Now write a file"))
        [data] = get_data_parts(asked.task.status.message.parts)
        expect((data["kind"], data["tool"], len(data["arguments_sha256"])) == ("approval", "write_file", 64), data)
        decision = {"approved": False, "gate": data["gate"], "arguments_sha256": data["arguments_sha256"], "note": "no"}
        denial = new_data_message(decision, task_id=asked.task.id, context_id=asked.task.context_id, role=USER)
        [done] = await peer.send(denial)
        expect(state(done.task) == "TASK_STATE_COMPLETED" and done.task.id == asked.task.id, done)
        [again] = await peer.send(denial)
        expect(answer_of(again.task) == answer_of(done.task), again)
        return state(done.task)


async def cancel(fleet, binding):
    async with Peer(fleet, binding, streaming=True) as peer:
        sent = peer.client.send_message(types.SendMessageRequest(message=text(SLOW)))
        task = (await anext(sent)).task
        cancelled = await peer.client.cancel_task(types.CancelTaskRequest(id=task.id))
        expect(state(cancelled) == "TASK_STATE_CANCELED", cancelled)
        rest = [event async for event in sent]
        expect(state(rest[-1].status_update) == "TASK_STATE_CANCELED", rest)
        return state(cancelled)


async def errors(fleet, binding):
    seen = []
    async with Peer(fleet, binding, streaming=False) as peer, Peer(fleet, binding, False, fleet.observer_key) as observer:
        [done] = await peer.send(text("Hello"))
        config = types.TaskPushNotificationConfig(task_id=done.task.id, url="https://example.org/")
        unknown = types.GetTaskRequest(id="nothing.0")
        calls = [
            (sdk_errors.TaskNotFoundError, peer.client.get_task(unknown)),
            (sdk_errors.TaskNotFoundError, peer.send(text("Hi", task_id="nothing.0"))),
            (sdk_errors.UnsupportedOperationError, peer.send(text("Hi", task_id=done.task.id))),
            (sdk_errors.TaskNotCancelableError, peer.client.cancel_task(types.CancelTaskRequest(id=done.task.id))),
            (sdk_errors.PushNotificationNotSupportedError, peer.client.create_task_push_notification_config(config)),
            (sdk_errors.InvalidParamsError, peer.send(types.Message(message_id=str(uuid.uuid4()), role=USER))),
            (sdk_errors.A2AError, observer.send(text("Hi"))),
        ]
        for wanted, call in calls:
            try:
                await call
            except sdk_errors.A2AError as error:
                expect(isinstance(error, wanted), repr(error))
                seen.append(type(error).__name__)
    async with Peer(fleet, binding, streaming=True) as peer:
        try:
            await anext(peer.client.subscribe(types.SubscribeToTaskRequest(id=done.task.id)))
        except sdk_errors.UnsupportedOperationError as error:
            seen.append(type(error).__name__)
    return expect(len(seen) == len(calls) + 1, f"{len(seen)} errors")


async def edge_killed_in_a_stream(fleet, binding):
    """The client subscribes again, and gets what came meanwhile; the turn runs once."""
    async with Peer(fleet, binding, streaming=True) as peer:
        message, events = text(SLOW), []
        try:
            async for event in peer.client.send_message(types.SendMessageRequest(message=message)):
                events.append(event)
                if len(events) == 4:
                    fleet.kill_edge()
        except sdk_errors.A2AError as error:
            lost = type(error).__name__
        else:
            raise Failed(f"the stream did not break: {events}")
        task = events[0].task
        fleet.start_edge()
        resumed = [event async for event in peer.client.subscribe(types.SubscribeToTaskRequest(id=task.id))]
        expect(resumed[0].task.id == task.id and state(resumed[-1].status_update) == "TASK_STATE_COMPLETED", resumed)
        got = await peer.get(task)
        expect(SLOW in answer_of(got) and text_of_stream(resumed).strip() == answer_of(got).strip(), resumed)
        again = await peer.send(message)
        expect(again[0].task.id == task.id and answer_of(again[0].task) == answer_of(got), again)
        expect(MessageToDict(got)["status"]["state"] == "TASK_STATE_COMPLETED", got)
        return f"{lost}, then {len(resumed)} events"


def javascript(fleet):
    """The driver of the npm package prints what it saw as JSON."""
    return run_javascript("a2a-js", "driver.mjs", asking_fleet(fleet).url, asking_fleet(fleet).key)


CHECKS = [
    ("a2a-sdk: card", in_both(card)),
    ("a2a-sdk: send, get, list", in_both(send)),
    ("a2a-sdk: repeated message", in_both(repeated_message)),
    ("a2a-sdk: stream", in_both(stream)),
    ("a2a-sdk: input required", in_both(input_required)),
    ("a2a-sdk: cancel", in_both(cancel)),
    ("a2a-sdk: errors", in_both(errors)),
    ("a2a-sdk: edge killed in a stream", in_both(edge_killed_in_a_stream)),
    ("@a2a-js/sdk: send, stream, input required, errors", javascript),
]
