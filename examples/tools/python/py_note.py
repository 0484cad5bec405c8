"""A tool that takes effect once per call: keeps notes. Needs `pip install nats-py`; then `python py_note.py`.

It says that it is idempotent, so a call whose replica or executor died is made again under the same id, perhaps while
the first try still runs. All replicas share NOTES_DIR, and a note is there under its call's id or not at all.
"""
import asyncio, json, os, re, uuid

import nats
from nats.micro import add_service
from nats.micro.request import ServiceError

NOTES = os.environ.get("NOTES_DIR", "notes")
SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string", "description": "What to keep."}},
    "required": ["text"],
    "additionalProperties": False,
}
METADATA = {
    "ailoop.tool": "py_note",
    "ailoop.description": "Keeps a note for later.",
    "ailoop.parameters": json.dumps(SCHEMA),
    "ailoop.effect": "idempotent",  # called again with the same id, it takes effect once
}


async def note(request):
    text = json.loads(request.data).get("text")
    if not isinstance(text, str):
        raise ServiceError("400", "py_note needs a text")
    call = (request.headers or {}).get("Ailoop-Call", "")
    if not re.fullmatch("[A-Za-z0-9_-]+", call):  # it becomes a file's name, and whoever calls by hand may send anything
        raise ServiceError("400", "py_note needs the header Ailoop-Call: letters, digits, - and _")
    keep(call, text)
    await request.respond(b'{"kept": true}')  # a repeated call gets the same answer as the first one


def keep(call, text):
    os.makedirs(NOTES, exist_ok=True)
    # 1. Write all of it where nobody looks. Whoever is killed here leaves a draft and no effect.
    draft = os.path.join(NOTES, f".{uuid.uuid4()}")
    with open(draft, "x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    try:
        # 2. Effect and mark in one step: of all tries of this call one makes the link, whoever dies when.
        os.link(draft, os.path.join(NOTES, f"{call}.txt"))
        witness("py_note", call)
    except FileExistsError:
        pass  # an earlier try did it: say so again
    finally:
        os.unlink(draft)


def witness(tool, call):
    """For tests: a line for each effect, added in one write."""
    if path := os.environ.get("EFFECTS_FILE"):
        line = json.dumps({"tool": tool, "call": call, "pid": os.getpid()}) + "\n"
        with open(path, "ab", buffering=0) as file:
            file.write(line.encode())


async def main():
    url = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")
    credentials = os.environ.get("NATS_CREDENTIALS")  # a file of `ailoop nats-auth user add`, where NATS has users
    closed = asyncio.Event()  # nats-py closes for good when the credential is revoked

    async def on_closed():
        closed.set()

    client = await nats.connect(url, user_credentials=credentials, max_reconnect_attempts=-1, closed_cb=on_closed)
    service = await add_service(client, name="py_note", version="1.0.0")
    await service.add_endpoint(name="py_note", subject="ai_tool.default.py_note", queue_group="tools",
                               metadata=METADATA, handler=note)
    await client.publish("ai_rpc.tool.announce", b"{}")
    await closed.wait()


while True:  # until Ctrl-C
    asyncio.run(main())
