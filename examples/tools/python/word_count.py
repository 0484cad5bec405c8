"""A tool for ailoop agents: counts words. Needs `pip install nats-py`; then `python word_count.py`."""
import asyncio, json, os

import nats
from nats.micro import add_service
from nats.micro.request import ServiceError

SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string", "description": "The text to count in."}},
    "required": ["text"],
}
METADATA = {
    "ailoop.tool": "word_count",
    "ailoop.description": "Counts the words of a text. Use it instead of counting yourself.",
    "ailoop.parameters": json.dumps(SCHEMA),
    "ailoop.effect": "pure",  # it changes nothing, so it may run twice
}


async def word_count(request):
    arguments = json.loads(request.data)
    if not isinstance(arguments.get("text"), str):
        raise ServiceError("400", "word_count needs a text")  # the model reads this
    await request.respond(json.dumps({"words": len(arguments["text"].split())}).encode())


async def main():
    url = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")
    credentials = os.environ.get("NATS_CREDENTIALS")  # a file of `ailoop nats-auth user add`, where NATS has users
    closed = asyncio.Event()  # nats-py closes for good when the credential is revoked

    async def on_closed():
        closed.set()

    client = await nats.connect(url, user_credentials=credentials, max_reconnect_attempts=-1, closed_cb=on_closed)
    service = await add_service(client, name="word_count", version="1.0.0")
    await service.add_endpoint(name="word_count", subject="ai_tool.default.word_count", queue_group="tools",
                               metadata=METADATA, handler=word_count)
    await client.publish("ai_rpc.tool.announce", b"{}")  # found at once; without it, by the next poll
    await closed.wait()


while True:  # until Ctrl-C
    asyncio.run(main())
