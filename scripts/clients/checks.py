"""What each client does with an agent. A check returns what it saw, and raises where that is wrong."""

import asyncio
import json
import pathlib
import subprocess
import sys
import threading
import time

import openai
from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from . import mcp, responses
from .common import client, expect, run_javascript

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def ask(text):
    return [{"role": "user", "content": text}]


def models(fleet):
    names = sorted(model.id for model in client(fleet).models.list())
    return expect(names == ["e", "guarded", "helper"], names)


def completion(fleet):
    answer = client(fleet).chat.completions.create(model="e", messages=ask("Hello"))
    expect(answer.choices[0].finish_reason == "stop" and answer.usage.total_tokens > 0, answer)
    return expect("was: Hello" in (text := answer.choices[0].message.content), text)


def stream(fleet):
    with client(fleet).chat.completions.stream(
        model="e", messages=ask("Hello slowly"), stream_options={"include_usage": True}
    ) as events:
        pieces = [event.delta for event in events if event.type == "content.delta"]
        final = events.get_final_completion()
    expect(len(pieces) > 3 and final.usage.total_tokens > 0, pieces)
    return f"{len(pieces)} pieces: {expect('Hello slowly' in ''.join(pieces), pieces) and final.choices[0].message.content}"


def named_session(fleet):
    headers = {"X-Ailoop-Session": "a chat"}
    answers = [
        client(fleet).chat.completions.create(model="e", messages=ask(text), extra_headers=headers)
        for text in ("One", "Two")
    ]
    text = answers[1].choices[0].message.content
    return expect(text.startswith("Message 2 was: Two"), text)


def own_tool(fleet):
    messages = ask("What is the weather?")
    first = client(fleet).chat.completions.create(model="e", messages=messages, tools=[WEATHER])
    expect(first.choices[0].finish_reason == "tool_calls", first)
    call = first.choices[0].message.tool_calls[0]
    expect(json.loads(call.function.arguments) == {"city": "Bonn"}, call)
    messages += [first.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    last = client(fleet).chat.completions.create(model="e", messages=messages, tools=[WEATHER])
    return expect("The tool says: rain" in (text := last.choices[0].message.content), text)


def errors(fleet):
    seen = []
    for key, model, wanted in [
        (None, "nobody", openai.NotFoundError),
        ("wrong", "e", openai.AuthenticationError),
        (fleet.observer_key, "e", openai.PermissionDeniedError),
    ]:
        try:
            client(fleet, key).chat.completions.create(model=model, messages=ask("Hello"))
        except openai.APIStatusError as error:
            expect(isinstance(error, wanted), error)
            seen.append(f"{type(error).__name__} {error.code}")
    return expect(len(seen) == 3, ", ".join(seen))


def edge_killed_in_a_request(fleet):
    """The SDK repeats the request by itself; its turn must not run twice."""
    before = fleet.count_sessions()

    def kill():
        time.sleep(1.5)
        fleet.kill_edge()
        fleet.start_edge()

    killer = threading.Thread(target=kill)
    killer.start()
    text = "Take your time and say this slowly, word for word, so that there is time to kill the edge meanwhile"
    answer = client(fleet, retries=8).chat.completions.create(model="e", messages=ask(text))
    killer.join()
    more = fleet.count_sessions() - before
    expect(text in answer.choices[0].message.content, answer)
    return expect(more == 1, f"{more} session for a request of which the edge was killed")


def langchain(fleet):
    model = ChatOpenAI(base_url=f"{fleet.url}/openai/v1", api_key=fleet.key, model="e")
    expect("was: Hello" in model.invoke("Hello").content, "invoke")
    expect("was: Hello" in "".join(chunk.content for chunk in model.stream("Hello")), "stream")

    @tool
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"rain in {city}"

    calling = model.bind_tools([weather])
    first = calling.invoke("What is the weather?")
    result = weather.invoke(first.tool_calls[0])
    return expect("rain in Bonn" in (text := calling.invoke([("user", "What?"), first, result]).content), text)


def pydantic_ai(fleet):
    provider = OpenAIProvider(base_url=f"{fleet.url}/openai/v1", api_key=fleet.key)
    agent = PydanticAgent(OpenAIChatModel("e", provider=provider))

    @agent.tool_plain
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"rain in {city}"

    return expect("rain in Bonn" in (text := agent.run_sync("What is the weather?").output), text)


def openai_agents(fleet):
    set_tracing_disabled(True)

    @function_tool
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"rain in {city}"

    async def run():
        async with AsyncOpenAI(base_url=f"{fleet.url}/openai/v1", api_key=fleet.key) as sdk:
            model = OpenAIChatCompletionsModel(model="e", openai_client=sdk)
            agent = Agent(name="Watcher", instructions="Be brief.", model=model, tools=[weather])
            return await Runner.run(agent, "What is the weather?")

    result = asyncio.run(run())
    return expect("rain in Bonn" in result.final_output, result.final_output)


def javascript(fleet):
    return run_javascript("openai-js", "driver.mjs", fleet.url, fleet.key)


def openapi_document(fleet):
    """Requests that the document allows and forbids. Rules that no schema can say may refuse a request that it allows."""
    tool_path = pathlib.Path(sys.executable).with_name("schemathesis")
    command = [
        tool_path, "run", f"{fleet.open_url}/v1/openapi.json", "--checks", "all",
        "--exclude-checks", "positive_data_acceptance", "--max-examples", "15", "--request-timeout", "40",
        # A stream does not end.
        "--exclude-path", "/v1/sessions/{session_id}/events", "--continue-on-failure", "--no-color",
    ]
    result = subprocess.run(command, capture_output=True, text=True, cwd=fleet.directory, check=False)
    # What failed, before the hints that follow it.
    failures = result.stdout[max(result.stdout.find("= FAILURES"), 0):]
    expect(result.returncode == 0, failures[:3000] + result.stderr[-500:])
    return next(line.strip() for line in result.stdout.splitlines() if "generated," in line)


ALL = [
    ("openai: models", models),
    ("openai: completion", completion),
    ("openai: stream", stream),
    ("openai: named session", named_session),
    ("openai: own tool", own_tool),
    ("openai: errors", errors),
    ("openai: edge killed in a request", edge_killed_in_a_request),
    ("langchain-openai: invoke, stream, tools", langchain),
    ("pydantic-ai: tools", pydantic_ai),
    ("openai-agents: tools", openai_agents),
    *responses.CHECKS,
    ("npm openai: chat, tools, responses, conversations, errors", javascript),
    ("schemathesis: the OpenAPI document", openapi_document),
    *mcp.CHECKS,
]
