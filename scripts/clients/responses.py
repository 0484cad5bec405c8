"""Responses and conversations of OpenAI, by the SDKs of OpenAI."""

import asyncio
import threading
import time

import openai
from agents import Agent, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from .common import client, expect

WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def create(fleet):
    answer = client(fleet).responses.create(model="e", input="Hello")
    expect(answer.status == "completed" and answer.usage.total_tokens > 0, answer)
    again = client(fleet).responses.retrieve(answer.id)
    expect(again.output_text == answer.output_text and again.status == "completed", again)
    return expect("was: Hello" in answer.output_text, answer.output_text)


def stream(fleet):
    with client(fleet).responses.stream(model="e", input="Hello slowly") as events:
        seen = list(events)
        final = events.get_final_response()
    pieces = [event.delta for event in seen if event.type == "response.output_text.delta"]
    numbers = [event.sequence_number for event in seen]
    expect(numbers == sorted(set(numbers)) and len(pieces) > 3, numbers)
    expect("".join(pieces).strip() == final.output_text.strip(), pieces)
    return f"{len(pieces)} pieces: {final.output_text}"


def previous_response(fleet):
    sdk = client(fleet)
    one = sdk.responses.create(model="e", input="One")
    two = sdk.responses.create(model="e", input="Two", previous_response_id=one.id)
    three = sdk.responses.create(model="e", input="Three", previous_response_id=two.id)
    branch = sdk.responses.create(model="e", input="Other", previous_response_id=one.id)
    texts = [answer.output_text.strip() for answer in (two, three, branch)]
    return expect(texts == ["Message 2 was: Two", "Message 3 was: Three", "Message 2 was: Other"], texts)


def conversation(fleet):
    sdk = client(fleet)
    one = sdk.conversations.create(items=[{"role": "user", "content": "Before"}])
    texts = [sdk.responses.create(model="e", input=text, conversation=one.id).output_text for text in ("One", "Two")]
    items = list(sdk.conversations.items.list(one.id, order="asc"))
    expect([item.type for item in items] == ["message"] * 5 and items[0].content[0].text == "Before", items)
    expect(sdk.conversations.retrieve(one.id).id == one.id, "the conversation")
    expect(sdk.conversations.delete(one.id).deleted, "deleted")
    # It goes on in another session.
    texts.append(sdk.responses.create(model="e", input="Three", conversation=one.id).output_text)
    wanted = ["Message 2 was: One", "Message 3 was: Two", "Message 4 was: Three"]
    return expect([text.strip() for text in texts] == wanted, texts)


def own_tool(fleet):
    sdk = client(fleet)
    first = sdk.responses.create(model="e", input="What is the weather?", tools=[WEATHER])
    call = next(item for item in first.output if item.type == "function_call")
    expect(call.name == "weather" and '"Bonn"' in call.arguments, call)
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    last = sdk.responses.create(model="e", input=[result], previous_response_id=first.id, tools=[WEATHER])
    same = sdk.responses.create(model="e", input=[result], previous_response_id=first.id, tools=[WEATHER])
    expect(same.id == last.id, "a repeated answer changes nothing")
    return expect("The tool says: rain" in last.output_text, last.output_text)


def own_tool_streamed(fleet):
    with client(fleet).responses.stream(model="e", input="What is the weather?", tools=[WEATHER]) as events:
        final = events.get_final_response()
    calls = [item for item in final.output if item.type == "function_call"]
    return expect(len(calls) == 1 and '"Bonn"' in calls[0].arguments, calls) and calls[0].arguments


def fleet_tool(fleet):
    answer = client(fleet).responses.create(model="helper", input="Please list files")
    calls = [item for item in answer.output if item.type == "mcp_call"]
    expect(len(calls) == 1 and calls[0].name == "list_files" and calls[0].output, answer.output)
    return expect("The tool says:" in answer.output_text, calls[0].output)


def approval(fleet):
    sdk = client(fleet, fleet.approver_key)
    first = sdk.responses.create(model="guarded", input="Please list files")
    asked = first.output[-1]
    expect(asked.type == "mcp_approval_request" and asked.name == "list_files", first.output)
    try:
        client(fleet).responses.create(model="guarded", input=[decide(asked, True)], previous_response_id=first.id)
        expect(False, "a key without the scope `approve` may not allow a call")
    except openai.PermissionDeniedError:
        pass
    last = sdk.responses.create(model="guarded", input=[decide(asked, True)], previous_response_id=first.id)
    expect([item.type for item in last.output] == ["mcp_call", "message"], last.output)
    denied = sdk.responses.create(model="guarded", input="Please list files")
    last = sdk.responses.create(model="guarded", input=[decide(denied.output[-1], False)], previous_response_id=denied.id)
    return expect("a person said no" in last.output_text, last.output_text)


def decide(asked, approve):
    return {"type": "mcp_approval_response", "approval_request_id": asked.id, "approve": approve}


def question(fleet):
    sdk = client(fleet, fleet.approver_key)
    first = sdk.responses.create(model="helper", input="Please ask me")
    expect("Which colour?" in first.output_text, first.output)
    last = sdk.responses.create(model="helper", input="Green", previous_response_id=first.id)
    return expect("Green" in last.output_text, last.output_text)


def background(fleet):
    sdk = client(fleet)
    begun = sdk.responses.create(model="e", input="Say this slowly in the background", background=True)
    expect(begun.status in ("queued", "in_progress"), begun)
    deadline = time.monotonic() + 30
    while (found := sdk.responses.retrieve(begun.id)).status == "in_progress":
        expect(time.monotonic() < deadline, found)
        time.sleep(0.2)
    return expect(found.status == "completed", found.output_text)


def cancel(fleet):
    sdk = client(fleet)
    begun = sdk.responses.create(model="e", input="Say this slowly " * 20, background=True)
    expect(sdk.responses.cancel(begun.id).status == "cancelled", "cancelled")
    return expect(sdk.responses.cancel(begun.id).status, "twice is harmless")


def resumed_after_a_killed_edge(fleet):
    """The stream breaks off with the edge; another edge gives what is missing."""
    sdk, before = client(fleet), fleet.count_sessions()
    text = "Take your time and say this slowly, word for word, so that there is time to kill the edge meanwhile"
    pieces, last, response = [], None, None
    try:
        for event in sdk.responses.create(model="e", input=text, background=True, stream=True):
            last = event.sequence_number
            if event.type == "response.created":
                response = event.response.id
            if event.type == "response.output_text.delta":
                pieces.append(event.delta)
            if len(pieces) == 6:
                fleet.kill_edge()
    except (openai.APIError, Exception) as error:  # pylint: disable=broad-exception-caught
        broken = type(error).__name__
    fleet.start_edge()
    rest = list(sdk.responses.retrieve(response, stream=True, starting_after=last))
    expect(all(event.sequence_number > last for event in rest), [event.sequence_number for event in rest])
    pieces += [event.delta for event in rest if event.type == "response.output_text.delta"]
    final = rest[-1].response
    expect(final.status == "completed" and "".join(pieces).strip() == final.output_text.strip(), pieces)
    more = fleet.count_sessions() - before
    return expect(more == 1 and text in final.output_text, f"{broken}, then {len(rest)} events; {more} session")


def repeated_after_a_killed_edge(fleet):
    sdk, before = client(fleet, retries=8), fleet.count_sessions()

    def kill():
        time.sleep(1.5)
        fleet.kill_edge()
        fleet.start_edge()

    killer = threading.Thread(target=kill)
    killer.start()
    text = "Say all of this slowly, word for word, as the edge is going to be killed while it is written down"
    answer = sdk.responses.create(model="e", input=text)
    killer.join()
    more = fleet.count_sessions() - before
    return expect(text in answer.output_text and more == 1, f"{more} session")


def errors(fleet):
    seen = []
    sdk = client(fleet)
    for call, wanted in [
        (lambda: sdk.responses.create(model="nobody", input="Hello"), openai.NotFoundError),
        (lambda: sdk.responses.retrieve("resp_none_1"), openai.NotFoundError),
        (lambda: sdk.responses.create(model="e", input="x", previous_response_id="resp_none_1"), openai.NotFoundError),
        (lambda: sdk.responses.create(model="e", input="x", conversation="conv_1"), openai.NotFoundError),
        (lambda: sdk.responses.create(model="e", input=[{"role": "robot", "content": "x"}]), openai.BadRequestError),
        (lambda: client(fleet, fleet.observer_key).responses.create(model="e", input="x"), openai.PermissionDeniedError),
        (lambda: client(fleet, "wrong").responses.create(model="e", input="x"), openai.AuthenticationError),
    ]:
        try:
            expect(False, call())
        except openai.APIStatusError as error:
            expect(isinstance(error, wanted), error)
            seen.append(error.code)
    return ", ".join(seen)


def openai_agents(fleet):
    set_tracing_disabled(True)

    @function_tool
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"rain in {city}"

    async def run():
        async with AsyncOpenAI(base_url=f"{fleet.url}/openai/v1", api_key=fleet.key) as sdk:
            agent = Agent(name="Watcher", instructions="Be brief.", model=OpenAIResponsesModel("e", sdk), tools=[weather])
            one = await Runner.run(agent, "What is the weather?", auto_previous_response_id=True)
            conversation_id = (await sdk.conversations.create()).id
            streamed = Runner.run_streamed(agent, "What is the weather?", conversation_id=conversation_id)
            async for _ in streamed.stream_events():
                pass
            return one.final_output, streamed.final_output

    texts = asyncio.run(run())
    return expect(all("rain in Bonn" in text for text in texts), texts)


CHECKS = [
    ("responses: create and retrieve", create),
    ("responses: stream", stream),
    ("responses: previous response, and a branch", previous_response),
    ("responses: conversation", conversation),
    ("responses: own tool", own_tool),
    ("responses: own tool, streamed", own_tool_streamed),
    ("responses: tool of the fleet", fleet_tool),
    ("responses: approval", approval),
    ("responses: question", question),
    ("responses: background", background),
    ("responses: cancel", cancel),
    ("responses: resumed after a killed edge", resumed_after_a_killed_edge),
    ("responses: repeated after a killed edge", repeated_after_a_killed_edge),
    ("responses: errors", errors),
    ("openai-agents: responses, conversation", openai_agents),
]
