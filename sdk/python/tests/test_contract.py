"""What the SDKs are generated from, against the API that a fleet serves."""

import asyncio
import json
import os
import pathlib
import subprocess
import sys
import unittest
import urllib.request
from typing import Any

from support import FleetCase, weather

SDK = pathlib.Path(__file__).parents[2]
WORDS = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "object": dict}


class Shapes:
    """Compares values with results.json."""

    def __init__(self) -> None:
        shapes = json.loads((SDK / "results.json").read_text())
        self.types, self.results, self.events = shapes["types"], shapes["results"], shapes["events"]
        self.problems: list[str] = []

    def compare(self, value: Any, kind: str, place: str) -> None:
        if kind == "any":
            return
        if kind.startswith("="):
            self.expect(value in kind[1:].split("|"), place, value)
        elif kind.endswith("[]"):
            for index, item in enumerate(value):
                self.compare(item, kind[:-2], f"{place}[{index}]")
        elif kind.startswith("map<"):
            for name, item in value.items():
                self.compare(item, kind[4:-1], f"{place}.{name}")
        elif kind in WORDS:
            self.expect(isinstance(value, WORDS[kind]), place, value)  # type: ignore[arg-type]
        elif isinstance(self.types[kind], str):
            self.compare(value, self.types[kind], place)
        else:
            self.compare_fields(value, self.types[kind], place)

    def compare_fields(self, value: dict[str, Any], fields: dict[str, str], place: str) -> None:
        for name, kind in fields.items():
            if name.rstrip("?") in value:
                self.compare(value[name.rstrip("?")], kind, f"{place}.{name}")
            else:
                self.expect(name.endswith("?"), f"{place}.{name}", "missing")
        known = {name.rstrip("?") for name in fields}
        self.expect(not set(value) - known, place, sorted(set(value) - known))

    def expect(self, holds: bool, place: str, value: Any) -> None:
        if not holds:
            self.problems.append(f"{place}: {value!r}")


class Contract(FleetCase):
    def test_document_is_that_of_the_server(self) -> None:
        with urllib.request.urlopen(f"{os.environ['AILOOP_OPEN_URL']}/v1/openapi.json") as response:
            served = json.load(response)
        self.assertEqual(served, json.loads((SDK / "openapi.json").read_text()), "write sdk/openapi.json again")

    def test_generated_files_are_current(self) -> None:
        subprocess.run([sys.executable, SDK / "generate.py", "--check"], check=True)

    async def test_results_and_events_have_their_shapes(self) -> None:
        shapes, api = Shapes(), self.client.api
        await api.mail_send(to="user", subject="A", text="B")
        running = await self.client.start("e", "What is the weather?", tools=[weather])
        gated = await self.client.start("e", "Please refund it", tools=[refund_order])
        async for event in gated.events():
            if event.topic == "gate.opened":
                break
        await running.turn()
        waiting = await self.client.start("e", "What is the weather?", tools=[weather])
        async for event in waiting.events():
            if event.topic == "tool_call.waiting":
                break
        mail = (await api.mail_list())["mails"][0]
        # The index, from which lists come, follows a moment later.
        for _ in range(50):
            calls = await api.calls_list_all()
            if calls["calls"] and (await api.gates_list_all())["gates"]:
                break
            await asyncio.sleep(0.1)
        self.assertTrue(calls["calls"])
        for name, result in {
            "agents_list": await api.agents_list(),
            "calls_list": await api.calls_list(waiting.id),
            "calls_list_all": calls,
            "gates_list": await api.gates_list(gated.id),
            "gates_list_all": await api.gates_list_all(),
            "mail_list": await api.mail_list(),
            "mail_reply": await api.mail_reply(mail["id"], text=""),
            "mail_send": await api.mail_send(to="user", subject="A", text="B"),
            "models_list": await api.models_list(),
            "session_get": await api.session_get(gated.id),
            "session_history": await api.session_history(running.id),
            "session_list": await api.session_list(limit=2),
            "session_transcript": await api.session_transcript(running.id),
            "tools_list": await api.tools_list(),
        }.items():
            shapes.compare(result, shapes.results[name], name)
        for session in (running, gated, waiting):
            await session.stop("done")
            async for event in session.events():
                if event.topic in shapes.events:
                    shapes.compare(event.data, shapes.events[event.topic], event.topic)
        self.assertEqual(shapes.problems, [])


def refund_order(order: str, euros: float) -> str:
    """Pays back money."""
    return "refunded"


if __name__ == "__main__":
    unittest.main()
