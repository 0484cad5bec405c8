"""Tools of the client, and gates."""

import asyncio
import unittest
from typing import Annotated, Any

import ailoop
from ailoop import Decision, Gate, client_tool
from support import FleetCase, weather


class ClientTools(FleetCase):
    async def test_function_is_called_and_its_result_is_read(self) -> None:
        for tool in (weather, client_tool(effect="pure", timeout=20)(weather)):
            result = await self.client.run("e", "What is the weather?", tools=[tool])
            self.assertIn("rain in Bonn", result.text)

    async def test_async_function_with_objects_is_called(self) -> None:
        async def refund_order(order: str, euros: Annotated[float, "The amount."]) -> dict[str, Any]:
            """Pays back money."""
            await asyncio.sleep(0)
            return {"refunded": euros, "order": order}

        result = await self.client.run("e", "Please refund it", tools=[refund_order], on_approval=lambda gate: True)
        self.assertIn('{"refunded": 40.0, "order": "A-17"}', result.text)

    async def test_exception_and_wrong_arguments_are_read_by_the_model(self) -> None:
        def weather(city: str) -> str:
            raise RuntimeError("no sensor")

        result = await self.client.run("e", "What is the weather?", tools=[weather])
        self.assertIn("RuntimeError: no sensor", result.text)
        result = await self.client.run("e", "wrong arguments", tools=[weather])
        self.assertIn("`city` is missing", result.text)

    async def test_two_followers_of_a_turn_answer_a_call_once(self) -> None:
        session = await self.client.start("e", "What is the weather?", tools=[weather])
        other = self.client.session(session.id, tools=[weather])
        results = await asyncio.gather(session.turn(), other.turn())
        self.assertEqual(results[0], results[1])

    async def test_open_call_is_performed_by_restarted_client(self) -> None:
        for effect, wanted in (("pure", "rain in Bonn"), ("at_most_once", "may have performed this call before")):
            tool = ailoop.ClientTool("weather", "", {"type": "object"}, weather, effect)  # type: ignore[arg-type]
            session = await self.client.start("e", "What is the weather?", tools=[tool])
            async for event in session.events():
                if event.topic == "tool_call.waiting":
                    break
            text = (await self.client.session(session.id, tools=[tool]).turn()).text
            self.assertIn(wanted, text)


class Gates(FleetCase):
    async def follow(self, session: Any) -> str:
        return (await session.turn()).text

    async def refund(self, on_approval: Any) -> str:
        def refund_order(order: str, euros: float) -> str:
            return f"refunded {euros:g} for {order}"

        return (await self.client.run("e", "Please refund it", tools=[refund_order], on_approval=on_approval)).text

    async def test_gate_is_approved_and_denied(self) -> None:
        seen: list[Gate] = []

        def approve(gate: Gate) -> bool:
            seen.append(gate)
            return True

        async def deny(gate: Gate) -> Decision:
            return Decision("deny", note="not on a Friday")

        self.assertIn("refunded 40 for A-17", await self.refund(approve))
        self.assertEqual((seen[0].tool, seen[0].kind, seen[0].arguments["euros"]), ("refund_order", "approval", 40))
        self.assertIn("not on a Friday", await self.refund(deny))
        self.assertNotIn("refunded", await self.refund(lambda gate: False))

    async def test_approved_arguments_are_those_of_the_person(self) -> None:
        text = await self.refund(lambda gate: Decision("approve", arguments={**gate.arguments, "euros": 5}))
        self.assertIn("refunded 5 for A-17", text)

    async def test_question_is_answered(self) -> None:
        result = await self.client.run("e", "ask me", on_question=lambda gate: "blue")
        self.assertIn("blue", result.text)

    async def test_question_to_a_program_that_only_approves_stays_open_and_the_turn_goes_on(self) -> None:
        session = await self.client.start("e", "ask me", on_approval=lambda gate: True)
        with self.assertLogs("ailoop") as logs:
            turn = asyncio.create_task(self.follow(session))
            while not logs.output:
                self.assertFalse(turn.done(), turn)
                await asyncio.sleep(0.05)
        gate = (await session.get())["gates"][0]
        self.assertIn(f"waits for a question, and there is no on_question: the gate {gate['gate']}", logs.output[0])
        answer = {"arguments_sha256": gate["arguments_sha256"], "decision": "answer", "content": "green"}
        await self.client.api.session_answer(session.id, gate["gate"], **answer)
        self.assertIn("green", await turn)

    async def test_text_for_an_approval_is_refused_before_it_is_sent(self) -> None:
        with self.assertRaisesRegex(TypeError, "on_approval returned 'y' for the gate .*: return True or False"):
            await self.refund(lambda gate: "y")

    async def test_failing_callback_ends_the_turn_with_its_exception(self) -> None:
        def fail(gate: Gate) -> bool:
            raise ZeroDivisionError

        with self.assertRaises(ZeroDivisionError):
            await self.refund(fail)


if __name__ == "__main__":
    unittest.main()
