"""Checks what the model's server gets at the second message of the user, from programs that keep the history themselves."""

import asyncio
import json
import os
import shutil
import subprocess
import uuid

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import ModelFamily
from autogen_ext.models.openai import OpenAIChatCompletionClient
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from .common import Skipped, client, expect, run_javascript
from .model import text_of

FIRST = "What is the weather?"
# The program has 185 MB, so it is not among the pinned packages.
OPENCODE = "opencode-ai 1.18.33"
PROGRAM_SECONDS_MAX = 240
CALL_IDS = ["call_of_another_server_1", "call_of_another_server_2"]


class Talk:
    """Texts of one check, which no other check has, so that its requests are found among those of the model's server."""

    def __init__(self):
        self.marker = f"marker-{uuid.uuid4().hex[:12]}"
        self.second = f"And what of {self.marker}-two?"

    def weather(self, city: str) -> str:
        """The weather of a city."""
        return f"{self.marker} in {city}"

    def check(self, fleet, first=FIRST, tool_name="weather", calls=1):
        """Fails unless the model's last request has message, call, result, answer and message, in this order."""
        mine = [request for request in fleet.model.requests if self.second in text_of_last_user(request)]
        expect(mine, "the second message reached no model")
        messages = [message for message in mine[-1]["messages"] if message["role"] != "system"]
        expect_valid(messages)
        seen = [step for message in messages for step in steps_of(message, tool_name, self.marker)]
        wanted = ["user", *["call"] * calls, *["result"] * calls, "answer", "user"]
        expect(seen == wanted, f"{' '.join(seen)}: {messages}")
        users = [text_of(message["content"]) for message in messages if message["role"] == "user"]
        expect(first in users[0] and self.second in users[1], users)
        return " ".join(seen)


def text_of_last_user(request):
    return [text_of(message["content"]) for message in request["messages"] if message["role"] == "user"][-1]


def steps_of(message, tool_name, marker):
    """Names what a message holds: user, calls of the client's tool, and a result or an answer that has the marker."""
    text = text_of(message.get("content") or "")
    if message["role"] == "user":
        return ["user"]
    if message["role"] == "tool":
        return ["result"] if marker in text else []
    names = [call["function"]["name"] for call in message.get("tool_calls") or []]
    return ["answer"] * (marker in text) + ["call"] * names.count(tool_name)


def expect_valid(messages):
    """Fails unless each call has arguments, an id of its own and one result, before any other message."""
    waiting, ids = [], set()
    for message in messages:
        if message["role"] == "tool":
            expect(message["tool_call_id"] in waiting, messages)
            waiting.remove(message["tool_call_id"])
            continue
        expect(not waiting, messages)
        calls = message.get("tool_calls") or []
        waiting = [call["id"] for call in calls]
        expect(all(json.loads(call["function"]["arguments"]) for call in calls), calls)
        expect(ids.isdisjoint(waiting) and len(set(waiting)) == len(waiting), messages)
        ids.update(waiting)
    expect(not waiting, messages)


def chat_of_another_server(fleet):
    """Two calls, made at once, with ids that no session here knows."""
    talk = Talk()
    cities = ["Bonn", "Cork"]
    calls = [
        {"id": call_id, "type": "function", "function": {"name": "weather", "arguments": json.dumps({"city": city})}}
        for call_id, city in zip(CALL_IDS, cities)
    ]
    messages = [
        {"role": "user", "content": FIRST},
        {"role": "assistant", "content": None, "tool_calls": calls},
        *({"role": "tool", "tool_call_id": call["id"], "content": talk.weather(city)} for call, city in zip(calls, cities)),
        {"role": "assistant", "content": f"It is {talk.marker}."},
        {"role": "user", "content": talk.second},
    ]
    client(fleet).chat.completions.create(model="e", messages=messages)
    return talk.check(fleet, calls=2)


def responses_of_another_server(fleet):
    """Two calls, made at once, with ids that no session here knows."""
    talk = Talk()
    cities = ["Bonn", "Cork"]
    items = [
        {"role": "user", "content": FIRST},
        *(
            {"type": "function_call", "call_id": call_id, "name": "weather", "arguments": json.dumps({"city": city})}
            for call_id, city in zip(CALL_IDS, cities)
        ),
        *(
            {"type": "function_call_output", "call_id": call_id, "output": talk.weather(city)}
            for call_id, city in zip(CALL_IDS, cities)
        ),
        {"role": "assistant", "content": f"It is {talk.marker}."},
        {"role": "user", "content": talk.second},
    ]
    client(fleet).responses.create(model="e", input=items)
    return talk.check(fleet, calls=2)


def langchain(fleet, **options):
    talk = Talk()
    model = ChatOpenAI(base_url=f"{fleet.url}/openai/v1", api_key=fleet.key, model="e", **options)
    weather = tool(talk.weather)
    calling = model.bind_tools([weather])
    messages = [("user", FIRST), calling.invoke([("user", FIRST)])]
    messages.append(weather.invoke(messages[-1].tool_calls[0]))
    messages.append(calling.invoke(messages))
    calling.invoke([*messages, ("user", talk.second)])
    return talk.check(fleet)


def langchain_responses(fleet):
    return langchain(fleet, use_responses_api=True)


def pydantic_ai(fleet):
    talk = Talk()
    provider = OpenAIProvider(base_url=f"{fleet.url}/openai/v1", api_key=fleet.key)
    agent = PydanticAgent(OpenAIChatModel("e", provider=provider), tools=[talk.weather])
    first = agent.run_sync(FIRST)
    agent.run_sync(talk.second, message_history=first.all_messages())
    return talk.check(fleet)


def openai_agents(fleet, model_kind):
    set_tracing_disabled(True)
    talk = Talk()

    async def run():
        async with AsyncOpenAI(base_url=f"{fleet.url}/openai/v1", api_key=fleet.key) as sdk:
            tools = [function_tool(talk.weather)]
            agent = Agent(name="Watcher", instructions="Be brief.", model=model_kind("e", sdk), tools=tools)
            first = await Runner.run(agent, FIRST)
            await Runner.run(agent, [*first.to_input_list(), {"role": "user", "content": talk.second}])

    asyncio.run(run())
    return talk.check(fleet)


def openai_agents_chat(fleet):
    return openai_agents(fleet, OpenAIChatCompletionsModel)


def openai_agents_responses(fleet):
    return openai_agents(fleet, OpenAIResponsesModel)


def autogen(fleet):
    talk = Talk()
    info = {"vision": False, "function_calling": True, "json_output": False, "structured_output": False,
            "family": ModelFamily.UNKNOWN}

    async def run():
        model = OpenAIChatCompletionClient(
            model="e", base_url=f"{fleet.url}/openai/v1", api_key=fleet.key, model_info=info
        )
        agent = AssistantAgent("watcher", model_client=model, tools=[talk.weather], reflect_on_tool_use=True)
        for text in (FIRST, talk.second):
            await agent.run(task=text)
        await model.close()

    asyncio.run(run())
    return talk.check(fleet)


def ai_sdk(fleet, api):
    talk = Talk()
    sent = run_javascript("ai-sdk-js", "history.mjs", fleet.url, fleet.key, api, talk.marker, FIRST, talk.second)
    expect(("item_reference" in sent) == (api == "responses"), sent)
    return talk.check(fleet)


def ai_sdk_chat(fleet):
    return ai_sdk(fleet, "chat")


def ai_sdk_responses(fleet):
    """Stored, which is the default: the SDK sends references to earlier items instead of the items."""
    return ai_sdk(fleet, "responses")


def ai_sdk_responses_unstored(fleet):
    return ai_sdk(fleet, "responses-unstored")


def opencode(fleet, package):
    """The program with a home of its own, where it reads a file with its own tool. `package` decides the API."""
    program = shutil.which("opencode")
    if not program:
        raise Skipped(f"opencode is not on PATH; npm has it as {OPENCODE}")
    talk, first = Talk(), "Please read marker.txt"
    home, work = fleet.directory / f"opencode-home-{talk.marker}", fleet.directory / f"opencode-work-{talk.marker}"
    home.mkdir()
    work.mkdir()
    (work / "marker.txt").write_text(f"{talk.marker}\n")
    provider = {
        "npm": package,
        "options": {"baseURL": f"{fleet.url}/openai/v1", "apiKey": fleet.key},
        "models": {"e": {"name": "Eamonn", "tool_call": True}},
    }
    config = {"provider": {"ailoop": provider}, "model": "ailoop/e", "autoupdate": False, "share": "disabled"}
    env = {
        "PATH": os.environ["PATH"], "HOME": str(home), "OPENCODE_CONFIG_CONTENT": json.dumps(config),
        "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1",
    }
    for arguments in ([first], ["--continue", talk.second]):
        ran = subprocess.run(
            [program, "run", *arguments], cwd=work, env=env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PROGRAM_SECONDS_MAX, check=False,
        )
        expect(ran.returncode == 0, ran.stdout[-1000:] + ran.stderr[-3000:])
    return talk.check(fleet, first, "read")


def opencode_chat(fleet):
    return opencode(fleet, "@ai-sdk/openai-compatible")


def opencode_responses(fleet):
    return opencode(fleet, "@ai-sdk/openai")


CHECKS = [
    ("history on the model's wire: chat completions of another server", chat_of_another_server),
    ("history on the model's wire: responses of another server", responses_of_another_server),
    ("history on the model's wire: langchain-openai, chat completions", langchain),
    ("history on the model's wire: langchain-openai, responses", langchain_responses),
    ("history on the model's wire: pydantic-ai", pydantic_ai),
    ("history on the model's wire: openai-agents, chat completions", openai_agents_chat),
    ("history on the model's wire: openai-agents, responses", openai_agents_responses),
    ("history on the model's wire: autogen", autogen),
    ("history on the model's wire: AI SDK, chat completions", ai_sdk_chat),
    ("history on the model's wire: AI SDK, responses, stored", ai_sdk_responses),
    ("history on the model's wire: AI SDK, responses, not stored", ai_sdk_responses_unstored),
    ("history on the model's wire: opencode, chat completions", opencode_chat),
    ("history on the model's wire: opencode, responses", opencode_responses),
]
