"""Asks one question, and shows the answer as it is written. Kill it in the middle and start it again: it goes on.

The session lives in the fleet. This program only has to remember its id, which is the key of the question. A command
that is sent again with its key is handled once, so nothing runs twice.

Needs `pip install ./sdk/python` and a fleet (`ailoop up`).
"""

import asyncio
import pathlib
import sys
import uuid

from ailoop import AsyncClient

STATE = pathlib.Path("question.key")


async def main() -> None:
    prompt = " ".join(sys.argv[1:]) or "Say slowly what a checkpoint is good for."
    if not STATE.exists():
        STATE.write_text(uuid.uuid4().hex)  # before anything is sent
    async with AsyncClient() as client:
        session = await client.start(None, prompt, idempotency_key=STATE.read_text(), interactive=False)
        turn = session.turn()
        async for text in turn:
            print(text, end="", flush=True)
        result = await turn
    STATE.unlink()
    print(f"\n({result.stop_reason} after {result.iterations} steps, {result.spent['usage']['output']} tokens)")


asyncio.run(main())
