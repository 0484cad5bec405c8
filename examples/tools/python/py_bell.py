"""A tool that must not run twice, and takes its time: rings a bell. Needs `pip install nats-py`; then `python py_bell.py`.

When its replica dies, nobody can tell whether the bell rang; it says so (at_most_once), and the model is told that the
outcome is unknown. It reports progress, looks at its deadline, and a cancel stops it before it rings.
"""
import asyncio, datetime, json, os

import nats
from nats.micro import add_service

SCHEMA = {
    "type": "object",
    "properties": {
        "seconds": {"type": "integer", "minimum": 0, "maximum": 600, "description": "How many seconds from now it rings."}
    },
    "required": ["seconds"],
    "additionalProperties": False,
}
METADATA = {
    "ailoop.tool": "py_bell",
    "ailoop.description": "Rings the bell, after some seconds.",
    "ailoop.parameters": json.dumps(SCHEMA),
    "ailoop.effect": "at_most_once",  # also what holds where nothing is said
    "ailoop.timeout": "10",  # seconds without a sign of progress
}
running = {}  # call id -> the task that works on it


async def bell(request, instance):
    """Each call is a task of its own: nats-py hands out the next message only when a handler has returned."""
    call = (request.headers or {}).get("Ailoop-Call", "")
    running[call] = asyncio.create_task(answer(request, call, instance))


async def answer(request, call, instance):
    """Exactly one last reply, whatever happens: without one the caller waits until the time-out."""
    try:
        reply, headers = await ring_later(request, call, instance), None
    except asyncio.CancelledError:
        reply, headers = b"", {"Ailoop-Error": "cancelled"}
    except Exception as error:  # the model reads this; a header is one line
        reply, headers = b"", {"Ailoop-Error": " ".join(str(error).split()) or "error"}
    running.pop(call, None)  # before it answers: a cancel comes too late from here on
    await request.respond(reply, headers=headers)


async def ring_later(request, call, instance):
    seconds = json.loads(request.data).get("seconds")
    if type(seconds) is not int or not 0 <= seconds <= 600:
        raise ValueError("py_bell needs seconds, from 0 to 600")
    # Nobody waits longer than the deadline: a call that comes too late is not begun.
    if deadline := (request.headers or {}).get("Ailoop-Deadline"):
        if datetime.datetime.fromisoformat(deadline.replace("Z", "+00:00")) <= datetime.datetime.now(datetime.timezone.utc):
            raise ValueError("nobody waits for the bell any more")
    for left in range(seconds, 0, -1):
        # People see it, and the deadline moves on: the time-out counts from here again. Ailoop-Instance says who works on
        # the call, so that its death is found within seconds.
        progress = {"Ailoop-Progress": "1", "Ailoop-Instance": instance}
        await request.respond(f"rings in {left} s".encode(), headers=progress)
        await asyncio.sleep(1)  # a cancel ends it here: then the bell does not ring
    ring(call)
    return b'{"rang": true}'


def ring(call):
    """The effect: a line in a file, added in one write. Whether it rang before is not asked: that is the executor's part."""
    line = json.dumps({"tool": "py_bell", "call": call, "pid": os.getpid()}) + "\n"
    with open(os.environ.get("EFFECTS_FILE", "bell.log"), "ab", buffering=0) as file:
        file.write(line.encode())


async def cancel(message):
    """Every replica hears every cancel; the one that has the call stops it."""
    if task := running.get((message.headers or {}).get("Ailoop-Call", "")):
        task.cancel()


async def main():
    url = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")
    credentials = os.environ.get("NATS_CREDENTIALS")  # a file of `ailoop nats-auth user add`, where NATS has users
    closed = asyncio.Event()  # nats-py closes for good when the credential is revoked

    async def on_closed():
        closed.set()

    client = await nats.connect(url, user_credentials=credentials, max_reconnect_attempts=-1, closed_cb=on_closed)
    await client.subscribe("ai_tool_cancel.default.py_bell", cb=cancel)
    service = await add_service(client, name="py_bell", version="1.0.0")
    await service.add_endpoint(name="py_bell", subject="ai_tool.default.py_bell", queue_group="tools", metadata=METADATA,
                               handler=lambda request: bell(request, f"py_bell.{service.id}"))
    await client.publish("ai_rpc.tool.announce", b"{}")
    await closed.wait()


while True:  # until Ctrl-C
    asyncio.run(main())
