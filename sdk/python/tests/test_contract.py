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

from jsonschema import Draft202012Validator

from ailoop import AsyncClient
from support import FleetCase, weather

SDK = pathlib.Path(__file__).parents[2]
DOCUMENT = json.loads((SDK / "openapi.json").read_text())


class Shapes:
    """Compares values with the schemas of the document. A field that its schema does not have is a problem too."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.results, self.events = dict[str, Any](), dict[str, Any]()
        for operation in (one for operations in DOCUMENT["paths"].values() for one in operations.values()):
            responses = operation["responses"]
            content = responses.get("200", responses.get("201"))["content"]
            self.results[operation["operationId"]] = content.get("application/json", {}).get("schema")
            self.events |= content.get("text/event-stream", {}).get("x-event-data", {})
        self._schemas = {
            name: {**schema, "additionalProperties": False} if "properties" in schema else schema
            for name, schema in DOCUMENT["components"]["schemas"].items()
        }

    def compare(self, value: Any, schema: dict[str, Any], place: str) -> None:
        root = {**schema, "components": {"schemas": self._schemas}}
        for error in Draft202012Validator(root).iter_errors(value):
            self.problems.append(f"{place}{error.json_path[1:]}: {error.message[:300]}")


class Contract(FleetCase):
    def test_document_is_that_of_the_server(self) -> None:
        with urllib.request.urlopen(f"{os.environ['AILOOP_OPEN_URL']}/v1/openapi.json") as response:
            served = json.load(response)
        self.assertEqual(served, DOCUMENT, "write sdk/openapi.json again")

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
        # Without keys, this edge lets everybody look at the fleet.
        async with AsyncClient(os.environ["AILOOP_OPEN_URL"]) as open_client:
            fleet = open_client.api
            of_fleet = {
                "budgets_list": await fleet.budgets_list(),
                "dead_list": await fleet.dead_list(),
                "fleet_queues": await fleet.fleet_queues(),
                "fleet_status": await fleet.fleet_status(),
                "session_repair": await fleet.session_repair(running.id),
            }
        for name, result in (of_fleet | {
            "agents_list": await api.agents_list(),
            "calls_list": await api.calls_list(waiting.id),
            "calls_list_all": calls,
            "gates_list": await api.gates_list(gated.id),
            "gates_list_all": await api.gates_list_all(),
            "mail_list": await api.mail_list(),
            "mail_reply": await api.mail_reply(mail["id"], text=""),
            "mail_send": await api.mail_send(to="user", subject="A", text="B"),
            "models_list": await api.models_list(),
            "session_describe": await api.session_describe(waiting.id),
            "session_get": await api.session_get(gated.id),
            "session_history": await api.session_history(running.id),
            "session_list": await api.session_list(limit=2),
            "session_replay": await api.session_replay(running.id),
            "session_start": await api.session_start(agent="e", interactive=True),
            "session_stats": await api.session_stats(),
            "session_trace": await api.session_trace(running.id),
            "session_transcript": await api.session_transcript(running.id),
            "tools_list": await api.tools_list(),
        }).items():
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
