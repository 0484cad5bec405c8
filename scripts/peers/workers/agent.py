"""The agent of every peer in Python: what it asks the model, how it reads a reply, and the tool, which counts words."""

import json

PROMPT = "Count the words of each part, then say that you are done."
# Replies of a session: four that call the tool, and one that ends.
STEPS = 5
TOOLS = [{
    "type": "function",
    "function": {
        "name": "word_count",
        "description": "Counts the words of a text.",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string"}, "part": {"type": "integer"}},
            "required": ["text"],
        },
    },
}]


def first_messages(prompt):
    """The transcript of a session that begins."""
    return [{"role": "user", "content": prompt}]


def request(messages):
    """The body of a request. Workers send it themselves, so that no client library is measured."""
    return json.dumps({"model": "bench", "stream": True, "messages": messages, "tools": TOOLS}).encode()


def read_reply(body):
    """The message of a streamed reply."""
    content, calls = "", {}
    for line in body.splitlines():
        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            delta = choice["delta"]
            content += delta.get("content") or ""
            for part in delta.get("tool_calls") or ():
                _add(calls, part)
    message = {"role": "assistant", "content": content}
    return message | ({"tool_calls": list(calls.values())} if calls else {})


def _add(calls, part):
    """Adds a part of a call, of which the first has its id and name."""
    call = calls.setdefault(part["index"], {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
    call["id"] += part.get("id") or ""
    for field in ("name", "arguments"):
        call["function"][field] += part["function"].get(field) or ""


def run_tool(call):
    """The tool's result as a message."""
    arguments = json.loads(call["function"]["arguments"])
    result = {"words": len(arguments["text"].split())}
    return {"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)}
