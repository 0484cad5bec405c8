"""What MCP clients do with an agent: the SDKs for Python and JavaScript, of both revisions of the protocol."""

import asyncio
import contextlib
import json
import threading
import time

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from .common import expect, run_javascript
from .fleet import Failed

KEY_FIELD = "ailoop/idempotency-key"
AGENTS = ["e", "guarded", "helper"]
TOOLS = [*AGENTS, "start_session", "session_status", "send_message", "answer_gate", "stop_session", "list_sessions"]
QUESTION = "Please ask me"


@contextlib.asynccontextmanager
async def connect(fleet, key=None, **options):
    """The SDK as its users make it, with a key."""
    headers = {"authorization": f"Bearer {key or fleet.approver_key}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http:
        async with Client(streamable_http_client(f"{fleet.url}/mcp", http_client=http), **options) as client:
            yield client


def run(fleet, body, **options):
    """Runs a check with a connected client."""

    async def connected():
        async with connect(fleet, **options) as client:
            return await body(client)

    return asyncio.run(asyncio.wait_for(connected(), 90))


def tools(fleet):
    async def body(client):
        listed = [tool.name for tool in (await client.list_tools()).tools]
        expect(listed == TOOLS, listed)
        return client.protocol_version

    versions = [run(fleet, body), run(fleet, body, mode="legacy")]
    return expect(versions == ["2026-07-28", "2025-11-25"], versions)


def call(fleet):
    async def body(client):
        seen = []

        async def progress(count, _total, message):
            seen.append((count, message))

        result = await client.call_tool("e", {"prompt": "Hello slowly"}, progress_callback=progress)
        session = result.structured_content["session_id"]
        expect(not result.is_error and "was: Hello slowly" in result.content[0].text, result)
        expect(len(seen) > 1 and seen[0][1] == f"session {session}", seen)
        again = await client.call_tool("e", {"prompt": "And now?", "session_id": session})
        return expect(again.structured_content["answer"].startswith("Message 2 was: And now?"), again)

    return [run(fleet, body, mode=mode).content[0].text for mode in ("auto", "legacy")]


def question(fleet):
    asked = []

    async def elicit(_context, params):
        asked.append(params.message)
        return ElicitResult(action="accept", content={"answer": "red"})

    async def body(client):
        result = await client.call_tool("helper", {"prompt": QUESTION})
        return expect(result.content[0].text.strip() == "The tool says: red.", result)

    for mode in ("auto", "legacy"):
        run(fleet, body, mode=mode, elicitation_callback=elicit)
    return expect(len(asked) == 2 and "Which colour?" in asked[0], asked)


def approval(fleet):
    decisions = iter(["approve", "deny"])

    async def elicit(_context, params):
        expect("`list_files` be called with" in params.message, params)
        return ElicitResult(action="accept", content={"decision": next(decisions), "note": "Not today."})

    async def body(client):
        result = await client.call_tool("guarded", {"prompt": "Please list files"})
        return expect(not result.is_error, result).content[0].text

    approved = run(fleet, body, elicitation_callback=elicit)
    denied = run(fleet, body, mode="legacy", elicitation_callback=elicit)
    expect("agents.yaml" in approved and "Not today." in denied, (approved, denied))

    async def waits(client):
        result = (await client.call_tool("guarded", {"prompt": "Please list files"})).structured_content
        return expect(result["state"] == "waiting", result)["gates"][0]["tool"]

    # A key that may not answer is not asked.
    return run(fleet, waits, key=fleet.key, elicitation_callback=elicit)


def question_without_forms(fleet):
    async def body(client):
        waiting = (await client.call_tool("helper", {"prompt": QUESTION})).structured_content
        expect(waiting["state"] == "waiting", waiting)
        gate = waiting["gates"][0]
        answer = {name: gate[name] for name in ("gate", "arguments_sha256")}
        answer |= {"session_id": waiting["session_id"], "decision": "answer", "content": "blue"}
        done = await client.call_tool("answer_gate", answer)
        return expect(done.content[0].text.strip() == "The tool says: blue.", done)

    return run(fleet, body).content[0].text


def tasks_by_tools(fleet):
    async def body(client):
        started = (await client.call_tool("start_session", {"prompt": "Hello slowly"})).structured_content
        wait = {"session_id": started["session_id"], "wait_seconds": 30}
        status = (await client.call_tool("session_status", wait)).structured_content
        expect(status["state"] == "idle" and "Hello slowly" in status["answer"], status)
        listed = (await client.call_tool("list_sessions", {"limit": 5})).structured_content["sessions"]
        expect(started["session_id"] in [session["session_id"] for session in listed], listed)
        stopped = await client.call_tool("stop_session", {"session_id": started["session_id"]})
        return expect(not stopped.is_error, stopped)

    return run(fleet, body).content[0].text


def errors(fleet):
    async def body(client):
        wrong = await client.call_tool("session_status", {"session_id": "nowhere"})
        expect(wrong.is_error and wrong.structured_content["code"] == "unknown_session", wrong)
        wrong = await client.call_tool("e", {"prompt": ""})
        expect(wrong.is_error and wrong.structured_content["code"] == "empty_message", wrong)
        try:
            unknown = await client.call_tool("nobody", {})
        except MCPError as error:
            return expect("there is no tool" in str(error), error)
        raise Failed(unknown)

    for mode in ("auto", "legacy"):
        run(fleet, body, mode=mode)

    async def observe(client):
        listed = [tool.name for tool in (await client.list_tools()).tools]
        return expect(listed == ["session_status", "list_sessions"], listed)

    return run(fleet, observe, key=fleet.observer_key)


def repeated(fleet):
    before = fleet.count_sessions()
    meta = {KEY_FIELD: f"once-{time.time_ns()}"}

    async def body(client):
        return await client.call_tool("e", {"prompt": "Hello so very slowly, edge"}, meta=meta)

    lost = []

    def first():
        try:
            lost.append(run(fleet, body))
        except BaseException as error:  # pylint: disable=broad-exception-caught
            lost.append(error)

    thread = threading.Thread(target=first)
    thread.start()
    deadline = time.monotonic() + 30
    while fleet.count_sessions() == before and time.monotonic() < deadline:
        time.sleep(0.05)
    fleet.kill_edge()
    thread.join(60)
    expect(isinstance(lost[0], BaseException), lost)
    fleet.start_edge()
    text = run(fleet, body).content[0].text
    expect(text.strip() == "Message 1 was: Hello so very slowly, edge", text)
    return expect(fleet.count_sessions() == before + 1, "one session")


def javascript(package):
    """A check with an SDK for JavaScript, which is brought by npm."""

    def check(fleet):
        printed = run_javascript("mcp-js", "client.mjs", package, f"{fleet.url}/mcp", fleet.approver_key)
        seen = json.loads(printed.strip().splitlines()[-1])
        expect(seen["tools"] == TOOLS and seen["progress"] > 1 and "Hello slowly" in seen["answer"], seen)
        expect(seen["asked"].strip() == "The tool says: green." and seen["error"] == "unknown_session", seen)
        return seen["version"]

    return check


CHECKS = [
    ("mcp: tools", tools),
    ("mcp: call with progress", call),
    ("mcp: question by a form", question),
    ("mcp: approval by a form", approval),
    ("mcp: question without forms", question_without_forms),
    ("mcp: start, status, stop", tasks_by_tools),
    ("mcp: errors", errors),
    ("mcp: call repeated after kill -9 of the edge", repeated),
    ("mcp: JavaScript SDK 2", javascript("@modelcontextprotocol/client")),
    ("mcp: JavaScript SDK 1", javascript("@modelcontextprotocol/sdk")),
]
