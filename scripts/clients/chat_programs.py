"""Requests as chat programs send them, and what these programs read of the answers. The programs are too large to install."""

import json
import urllib.error
import urllib.request

from .common import expect

TOOL = {"type": "function", "function": {"name": "read_file", "description": "Reads.", "parameters": {"type": "object"}}}


# One of those that Open WebUI adds to every request; the loop has a tool of this name too.
ASK_USER = {"type": "function", "function": {"name": "ask_user", "description": "Asks.", "parameters": {"type": "object"}}}


def send(fleet, body, headers=()):
    """Sends a request for a completion; returns the status, the headers and the text."""
    request = urllib.request.Request(
        f"{fleet.url}/openai/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {fleet.key}", **dict(headers)},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.headers, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def frames(text):
    """The chunks of a stream, as line readers find them. The last line says that it is over."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    expect(lines[-1] == "[DONE]", lines)
    return [json.loads(line) for line in lines[:-1]]


def text_of(chunks):
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


def open_webui(fleet):
    """Whole history, streamed, with the ids of chat and user as headers; tasks are requests to the same model."""
    headers = {
        "X-OpenWebUI-Chat-Id": "4a5bd3e2-7a1b-4f0e-9c51-3b1fdb0a7c11",
        "X-OpenWebUI-User-Id": "u1", "X-OpenWebUI-User-Email": "ann@example.com", "X-OpenWebUI-User-Role": "user",
    }
    one = {"role": "user", "content": "One"}
    body = {"stream": True, "model": "e", "messages": [one], "stream_options": {"include_usage": True}}
    body["tools"] = [TOOL, ASK_USER]
    title = {"model": "e", "messages": [{"role": "user", "content": "### Task:\nGenerate a title"}], "stream": False}
    status, _, answer = send(fleet, title, headers)
    expect(status == 200, answer)
    first = text_of(frames(send(fleet, body, headers)[2]))
    body["messages"] = [one, {"role": "assistant", "content": first}, {"role": "user", "content": "Two"}]
    _, answered, text = send(fleet, body, headers)
    expect(answered["content-type"].startswith("text/event-stream"), answered)
    chunks = frames(text)
    expect(text_of(chunks).strip() == "Message 2 was: Two" and chunks[-1]["usage"]["total_tokens"] > 0, chunks)
    status, _, answer = send(fleet, title, headers)
    expect(status == 200, answer)
    body["messages"] += [{"role": "assistant", "content": text_of(chunks)}, {"role": "user", "content": "Three"}]
    third = text_of(frames(send(fleet, body, headers)[2]))
    expect(third.strip() == "Message 3 was: Three", f"a title is no turn of the chat: {third}")
    status, _, refusal = send(fleet, title | {"max_completion_tokens": 1000}, headers | {"X-Ailoop-Task": "title_generation"})
    detail = json.loads(refusal)["error"]["message"]
    return expect(status == 400 and "tasks" in detail, f"{text_of(chunks).strip()}; a title: {detail}")


def libre_chat(fleet):
    """LangChain's client, with the conversation in a header of `librechat.yaml`."""
    body = {
        "model": "e", "user": "65f2", "stream": True, "stream_options": {"include_usage": True}, "temperature": 1,
        "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0, "n": 1,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
    }
    chunks = frames(send(fleet, body, {"X-Ailoop-Session": "b7c1a9d0-conversation"})[2])
    expect(chunks[0]["choices"][0]["delta"]["role"] == "assistant", chunks[0])
    title = body | {"stream": False, "messages": [{"role": "user", "content": "Write a concise title"}]}
    title.pop("stream_options")
    answer = json.loads(send(fleet, title)[2])
    expect(answer["choices"][0]["message"]["content"], answer)
    return expect("Hello" in text_of(chunks), text_of(chunks))


def continue_dev(fleet):
    """Its own reader of lines; the key goes in two headers."""
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}], "model": "e",
            "max_tokens": 4096, "stream": True}
    chunks = frames(send(fleet, body, {"api-key": fleet.key})[2])
    expect(chunks[-1]["choices"][0]["finish_reason"] == "stop", chunks[-1])
    with urllib.request.urlopen(
        urllib.request.Request(f"{fleet.url}/openai/v1/models", headers={"Authorization": f"Bearer {fleet.key}"})
    ) as response:
        expect([model["id"] for model in json.load(response)["data"]][0] == "e", "models")
    return expect("Hello" in text_of(chunks), text_of(chunks))


def cline(fleet):
    """Always streamed, with usage and tools of its own; it adds up the pieces of calls."""
    weather = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    body = {
        "model": "e", "temperature": 0, "stream": True, "stream_options": {"include_usage": True},
        "tools": [TOOL, weather], "tool_choice": "auto", "parallel_tool_calls": False,
        "messages": [
            {"role": "system", "content": "You are Cline."},
            {"role": "user", "content": [{"type": "text", "text": "<task>What is the weather?</task>"},
                                         {"type": "text", "text": "<environment_details>none</environment_details>"}]},
        ],
    }
    chunks = frames(send(fleet, body)[2])
    calls = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            for piece in choice["delta"].get("tool_calls") or []:
                call = calls.setdefault(piece["index"], {"id": "", "name": "", "arguments": ""})
                call["id"] += piece.get("id") or ""
                call["name"] += piece["function"].get("name") or ""
                call["arguments"] += piece["function"].get("arguments") or ""
    expect(len(calls) == 1 and calls[0]["name"] == "weather", calls)
    expect(chunks[-1]["usage"]["prompt_tokens"] >= 0, chunks[-1])
    body["messages"] += [
        {"role": "assistant", "content": "Let me look.", "tool_calls": [
            {"id": calls[0]["id"], "type": "function",
             "function": {"name": "weather", "arguments": calls[0]["arguments"]}}]},
        {"role": "tool", "tool_call_id": calls[0]["id"], "content": "rain"},
    ]
    return expect("The tool says: rain" in (text := text_of(frames(send(fleet, body)[2]))), text)


CHECKS = [
    ("chat programs: requests of Open WebUI", open_webui),
    ("chat programs: requests of LibreChat", libre_chat),
    ("chat programs: requests of Continue", continue_dev),
    ("chat programs: requests of Cline", cline),
]
