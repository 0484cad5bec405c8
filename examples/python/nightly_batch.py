"""Runs a task for each line of a file, eight at a time. Started again, it does only what is left.

The key of a task follows from the date and the line. A key that the fleet knows starts nothing: its result is returned.

    python nightly_batch.py tasks.txt > results.jsonl

Needs `pip install ./sdk/python` and a fleet (`ailoop up`).
"""

import asyncio
import datetime
import hashlib
import json
import sys

from ailoop import AiloopError, AsyncClient

AT_ONCE = 8


def key_of(task: str) -> str:
    """The same task on the same day has the same key."""
    today = datetime.date.today().isoformat()
    return f"batch-{today}-{hashlib.sha256(task.encode()).hexdigest()[:16]}"


async def run(client: AsyncClient, permits: asyncio.Semaphore, task: str) -> bool:
    async with permits:
        try:
            result = await client.run(None, task, idempotency_key=key_of(task))
        except AiloopError as error:  # the client has repeated what may be repeated
            print(f"{task[:60]}: {error}", file=sys.stderr)
            return False
    line = {"task": task, "answer": result.text, "stop_reason": result.stop_reason, "session": result.session_id}
    print(json.dumps(line, ensure_ascii=False), flush=True)
    return result.is_complete


async def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as file:
        tasks = [line.strip() for line in file if line.strip()]
    permits = asyncio.Semaphore(AT_ONCE)
    async with AsyncClient(retry_seconds=300) as client:
        done = await asyncio.gather(*(run(client, permits, task) for task in tasks))
    print(f"{sum(done)} of {len(tasks)} tasks are complete", file=sys.stderr)
    return 0 if all(done) else 1


sys.exit(asyncio.run(main()))
