"""Server-sent events, without a fleet."""

import json
import unittest
from typing import Any

import httpx
from ailoop import AiloopError
from ailoop.event import Event, read_events


def frame(topic: str, data: dict[str, Any]) -> str:
    return f"event: {topic}\ndata: {json.dumps(data)}\n\n"


class Streams(unittest.IsolatedAsyncioTestCase):
    async def test_failed_watch_is_no_event_of_the_log(self) -> None:
        failure = {"code": "model_auth", "message": "no key", "retryable": False, "during": "model"}
        event = {"session_id": "s", "seq": 2, "time": "2026-01-01T00:00:00.000Z", "data": failure}
        problem = {"status": 503, "title": "draining", "detail": "connect again", "code": "draining"}
        response = httpx.Response(200, text=frame("error", event) + frame("watch.failed", problem))
        seen: list[Event] = []
        with self.assertRaises(AiloopError) as raised:
            async for one in read_events(response):
                seen.append(one)
        self.assertEqual([(one.topic, one.seq, one.data) for one in seen], [("error", 2, failure)])
        self.assertEqual((raised.exception.code, raised.exception.message), ("draining", "connect again"))


if __name__ == "__main__":
    unittest.main()
