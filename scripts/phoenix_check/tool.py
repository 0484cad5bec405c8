"""The tool `look_up`: slow, and idempotent. It prints a line when a call begins and when it ends. Needs nats-py."""

import asyncio
import json
import os

import nats
from nats.micro import add_service

NAME = "look_up"
# Long enough to kill an executor while calls of several sessions run.
SECONDS = 8
SCHEMA = {
    "type": "object",
    "properties": {"about": {"type": "string", "description": "What to look up."}},
    "required": ["about"],
    "additionalProperties": False,
}
METADATA = {
    "ailoop.tool": NAME,
    "ailoop.description": "Looks something up in a slow index.",
    "ailoop.parameters": json.dumps(SCHEMA),
    "ailoop.effect": "idempotent",
    "ailoop.timeout": "60",
}


async def look_up(request):
    """Each call is a task of its own: nats-py hands out the next message when a handler has returned."""
    asyncio.create_task(answer(request))


async def answer(request):
    """Waits, as an index would that is busy."""
    print("begin", flush=True)
    await asyncio.sleep(SECONDS)
    await request.respond(b'{"found": 3}')
    print("end", flush=True)


async def main():
    """Serves the tool until the process is ended."""
    client = await nats.connect(os.environ["NATS_URL"])
    service = await add_service(client, name=NAME, version="1.0.0")
    await service.add_endpoint(
        name=NAME, subject=f"ai_tool.default.{NAME}", queue_group="tools", metadata=METADATA, handler=look_up
    )
    await client.publish("ai_rpc.tool.announce", b"{}")
    print("serving", flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
