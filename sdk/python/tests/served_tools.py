"""The tools of test_served_tools.py, in a process of their own."""

import asyncio
import os
import threading
from typing import Annotated

from ailoop.tool import Call, ToolError, serve, tool

done: dict[str, str] = {}


@tool(effect="pure")
def py_words(text: Annotated[str, "The text to count in."]) -> dict[str, int]:
    """Counts the words of a text."""
    return {"words": len(text.split())}


@tool(effect="idempotent")
async def py_keep(text: str, call: Call) -> str:
    """Keeps a note once per call."""
    return done.setdefault(call.id, f"kept {text}")


@tool(effect="at_most_once", timeout=10)
async def py_ring(seconds: Annotated[float, {"minimum": 0, "maximum": 60}], call: Call) -> str:
    """Rings, after some seconds."""
    for left in range(int(seconds * 10), 0, -1):
        await call.progress(f"rings in {left / 10} s")
        await asyncio.sleep(0.1)
    return "rang"


@tool(effect="pure", timeout=10)
def py_block(seconds: float, call: Call) -> str:
    """Blocks a thread."""
    call.progress_from_thread("begins")
    threading.Event().wait(seconds)
    return "x" * int(os.environ.get("BLOCK_BYTES", "10"))


def probe_payment(euros: float, call: Call) -> str | None:
    """Finds a payment."""
    return done.get(call.id)


@tool(effect="reconcilable", probe=probe_payment)
async def py_pay(euros: float, call: Call) -> str:
    """Pays."""
    if euros < 0:
        raise ToolError("the bank does not answer", is_unknown=True)
    done[call.id] = f"paid {euros:g}"
    return done[call.id]


serve(py_words, py_keep, py_ring, py_block, py_pay)
