"""Sessions, turns, events and errors against a fleet."""

import asyncio
import os
import threading
import unittest

import httpx

import ailoop
from ailoop import AsyncClient, Client
from support import FleetCase, LostResponses, kill_edge, weather

SLOW = "Take your time and say this slowly, word for word, so that there is time to kill the edge in the middle of it"


class Turns(FleetCase):
    async def test_run_returns_answer_and_usage(self) -> None:
        result = await self.client.run("e", "Hello")
        self.assertEqual((result.text.strip(), result.stop_reason), ("Message 1 was: Hello", "completed"))
        self.assertTrue(result.is_complete and result.spent["usage"]["input"] > 0)

    async def test_turn_streams_text_that_is_the_answer(self) -> None:
        session = await self.client.start("e", "Say this slowly")
        pieces = [text async for text in session.turn()]
        self.assertGreater(len(pieces), 3)
        turn = session.turn("Two")
        self.assertEqual("".join(pieces).strip(), "Message 1 was: Say this slowly")
        self.assertEqual((await turn).turn, 2)
        self.assertEqual((await turn).text.strip(), "Message 2 was: Two")

    async def test_queued_message_gets_result_of_its_own_turn(self) -> None:
        session = await self.client.start("e", "First, slowly")
        results = await asyncio.gather(session.turn(), session.turn("Second, slowly"), session.turn("Third"))
        self.assertEqual([result.turn for result in results[:1]], [1])
        texts = {result.turn: result.text for result in results}
        self.assertEqual(sorted(texts), [1, 2, 3])
        self.assertIn("Second", next(text for text in texts.values() if "slowly" in text and "First" not in text))
        self.assertIn("Third", results[2].text)

    async def test_turn_of_session_that_exists_is_its_last_one(self) -> None:
        started = await self.client.start("e", "One")
        await started.turn()
        await started.turn("Two")
        texts = [text async for text in self.client.session(started.id).turn()]
        self.assertEqual("".join(texts).strip(), "Message 2 was: Two")

    async def test_turn_that_others_began_is_followed_from_its_begin(self) -> None:
        started = await self.client.start("e", SLOW)
        await asyncio.sleep(0.8)
        texts = [text async for text in self.client.session(started.id).turn()]
        self.assertEqual("".join(texts).strip(), f"Message 1 was: {SLOW}")

    async def test_cancelled_turn_is_stopped_and_its_session_goes_on(self) -> None:
        session = await self.client.start("e", SLOW)
        texts = []
        async for text in (turn := session.turn()):
            texts += [text]
            if len(texts) == 1:
                await session.cancel("enough")
        self.assertEqual((await turn).stop_reason, "stopped")
        self.assertEqual((await session.turn("Two")).turn, 2)

    async def test_session_without_turn_is_a_conflict(self) -> None:
        session = await self.client.start("e")
        with self.assertRaises(ailoop.Conflict):
            await self.client.session(session.id).turn()

    def test_sync_client_does_the_same(self) -> None:
        client = self.sync_client()
        session = client.start("e", "What is the weather?", tools=[weather])
        self.assertIn("rain in Bonn", "".join(session.turn()))
        turn = session.turn("Say this slowly")
        for _ in turn:
            break
        self.assertEqual(turn.result().text.strip(), "Message 2 was: Say this slowly")
        session.stop()
        topics = [event.topic for event in session.events(chunks=False)]
        self.assertEqual((topics[0], topics[-1]), ("session_started", "session_ended"))
        self.assertIn("e", [agent["id"] for agent in client.api.agents_list()["agents"]])


class Faults(FleetCase):
    async def test_events_survive_killed_edge_and_each_comes_once(self) -> None:
        session = await self.client.start("e", SLOW)
        killer = asyncio.create_task(asyncio.to_thread(lambda: [kill_edge() for _ in range(4)]))
        seen = []
        async for event in session.events():
            seen += [event.seq] if event.seq else []
            if event.topic == "turn.completed":
                if killer.done():
                    break
                await session.send("Say this slowly")
        whole = [event.seq async for event in _until(session, seen[-1])]
        self.assertEqual(seen, list(range(1, seen[-1] + 1)))
        self.assertEqual(seen, whole)

    async def test_text_of_turn_is_whole_though_edge_is_killed(self) -> None:
        for _ in range(3):
            session = await self.client.start("e", SLOW)
            killer = asyncio.create_task(asyncio.to_thread(kill_edge))
            text = "".join([text async for text in session.turn()])
            self.assertEqual(text.strip(), f"Message 1 was: {SLOW}")
            await killer

    async def test_commands_while_edge_is_killed_make_one_turn_each(self) -> None:
        killer = threading.Thread(target=kill_edge)
        killer.start()
        sessions = [await self.client.start("e", f"Number {number}") for number in range(20)]
        killer.join()
        for session in sessions:
            await session.turn()
            self.assertEqual((await session.get())["turn"], 1)
        self.assertEqual(len({session.id for session in sessions}), 20)

    async def test_command_whose_response_is_lost_is_sent_once(self) -> None:
        transport = LostResponses(2)
        async with AsyncClient(http=httpx.AsyncClient(transport=transport)) as client:
            session = await client.start("e", "Hello")
            await session.turn()
            transport.left = 2
            await session.turn("Again")
        self.assertEqual(transport.paths.count("/v1/sessions"), 3)
        self.assertEqual(transport.paths.count(f"/v1/sessions/{session.id}/messages"), 3)
        self.assertEqual((await session_of(self.client, session.id))["turn"], 2)

    async def test_start_by_route_whose_response_is_lost_starts_one_session(self) -> None:
        title = f"Only once {os.urandom(6).hex()}"
        async with AsyncClient(http=httpx.AsyncClient(transport=LostResponses(2))) as client:
            session = (await client.api.session_start(prompt=title))["session_id"]
        found = (await self.client.api.session_list(limit=1000))["sessions"]
        self.assertEqual([one["session_id"] for one in found if one["title"] == title], [session])

    async def test_same_key_means_same_run_and_same_turn(self) -> None:
        key = f"night-{os.urandom(6).hex()}"
        first = await self.client.run("e", "Once", idempotency_key=key)
        self.assertEqual(await self.client.run("e", "Once", idempotency_key=key), first)
        session = await self.client.start("e")
        turns = [await self.client.session(session.id).turn("Once", idempotency_key="m1") for _ in range(2)]
        self.assertEqual((turns[0], turns[0].turn), (turns[1], 1))

    async def test_server_that_is_not_there_is_unreachable(self) -> None:
        async with AsyncClient("http://127.0.0.1:9", retry_seconds=0.5) as client:
            with self.assertRaises(ailoop.ConnectionFailed) as raised:
                await client.run("e", "Hello")
        self.assertEqual(raised.exception.code, "unreachable")


class Errors(FleetCase):
    async def test_errors_have_codes_and_classes(self) -> None:
        session = await self.client.start("e", "Hello", interactive=False)
        await session.turn()
        observer = AsyncClient(api_key=os.environ["AILOOP_OBSERVER_KEY"])
        stranger = AsyncClient(api_key="wrong")
        for code, status, kind, request in [
            ("unknown_agent", 404, ailoop.NotFound, self.client.run("nobody", "x")),
            ("unknown_session", 404, ailoop.NotFound, self.client.api.session_get("nothing")),
            ("session_ended", 409, ailoop.Conflict, session.send("Two")),
            ("bad_request", 400, ailoop.BadRequest, self.client.run("e", "x", continuation={"colour": 1})),
            ("forbidden", 403, ailoop.AccessDenied, observer.run("e", "x")),
            ("unauthorized", 401, ailoop.AccessDenied, stranger.run("e", "x")),
            ("resync", 410, ailoop.CursorLost, anext(session.events(99))),
        ]:
            with self.subTest(code), self.assertRaises(kind) as raised:
                await request
            self.assertEqual((raised.exception.code, raised.exception.status), (code, status))
        await observer.close()
        await stranger.close()


async def _until(session: ailoop.AsyncSession, last: int):  # type: ignore[no-untyped-def]
    async for event in session.events(chunks=False):
        yield event
        if event.seq == last:
            return


async def session_of(client: AsyncClient, session_id: str) -> ailoop.types.SessionSummary:
    return await client.api.session_get(session_id)


if __name__ == "__main__":
    unittest.main()
