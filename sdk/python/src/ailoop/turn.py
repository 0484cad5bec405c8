"""One turn of a session: its text as it streams, and its result."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from .errors import Conflict, TurnFailed
from .event import Event
from .reply_text import ReplyText
from .responder import Responder
from .turn_tracker import TurnTracker
from .types import Spent, StopReason


@dataclass(frozen=True)
class TurnResult:
    """How a turn ended."""

    session_id: str
    turn: int
    #: The answer for the user.
    text: str
    #: `completed`, or the limit at which the turn ended.
    stop_reason: StopReason
    iterations: int
    #: Tokens and money that the turn used, with what it delegated.
    spent: Spent

    @property
    def is_complete(self) -> bool:
        """Whether the model finished its work, and no limit cut the turn short."""
        return self.stop_reason == "completed"


@dataclass
class TurnStart:
    """Where to read from, and which turn it is."""

    tracker: TurnTracker
    #: Id of the message whose turn it is. Without one, it is the first turn from here on.
    message_id: str | None = None
    #: Number of the turn, if the message has begun it. A message that waits has no turn yet.
    turn: int | None = None


_TEXT_TOPICS = ("message.ai_chunk_received", "message.ai_full_received")
Begin = Callable[[], Coroutine[Any, Any, TurnStart]]
Follow = Callable[[int], AsyncGenerator[Event, None]]


class AsyncTurn:
    """A turn. Iterate over it for its text as it streams, or await it for its result alone.

    Nothing is sent before. A turn goes on in the fleet if this object is dropped.
    """

    def __init__(self, begin: Begin, follow: Follow, responder: Responder, on_end: Callable[[TurnTracker], None]) -> None:
        self._begin, self._follow, self._responder, self._on_end = begin, follow, responder, on_end
        self._result: TurnResult | None = None
        self._failure: TurnFailed | None = None
        self._texts: AsyncIterator[str] | None = None

    def __aiter__(self) -> AsyncIterator[str]:
        if self._texts is None:
            self._texts = self._run()
        return self._texts

    def __await__(self) -> Generator[Any, None, TurnResult]:
        return self.result().__await__()

    async def result(self) -> TurnResult:
        """Waits for the end of the turn. Raises `TurnFailed` if it could not go on."""
        if self._result is None and self._failure is None:
            async for _ in self:
                pass
        if self._failure is not None:
            raise self._failure
        if self._result is None:
            raise Conflict("this turn was given up before its end: send the prompt again with its key", code="not_now")
        return self._result

    async def _run(self) -> AsyncIterator[str]:
        start = await self._begin()
        try:
            async with aclosing(self._read(start)) as texts:
                async for text in texts:
                    yield text
        finally:
            await self._responder.close()

    async def _read(self, start: TurnStart) -> AsyncGenerator[str, None]:
        tracker, ends_left = start.tracker, 0 if start.message_id else 1
        replies: dict[int, ReplyText] = {}
        has_text, last_error = False, None
        async with aclosing(_or_failure(self._follow(tracker.seq + 1), self._responder)) as events:
            async for event in events:
                self._responder.push(event)
                is_ours = ends_left == 1 if start.turn is None else event.data.get("turn") == start.turn
                if event.seq is not None:
                    ends = tracker.push(event)
                    if ends and event.data["message_id"] == start.message_id:
                        ends_left = ends
                if event.topic in _TEXT_TOPICS and is_ours:
                    text, has_text = _text_of(event, replies, has_text)
                    if text:
                        yield text
                elif event.topic == "error" and event.seq is not None:
                    last_error = event.data
                elif event.topic == "session_ended" or (event.topic == "turn.completed" and is_ours):
                    self._on_end(tracker)
                    self._end(event, last_error)
                    return
                elif event.topic == "turn.completed" and ends_left > 1:
                    ends_left -= 1

    def _end(self, event: Event, last_error: dict[str, Any] | None) -> None:
        data = event.data
        reason: StopReason = data.get("stop_reason") or "stopped"
        if reason == "error":
            failure = last_error or {"code": "internal", "message": "the turn ended with an error"}
            self._failure = TurnFailed(failure["message"], code=failure["code"])
            raise self._failure
        self._result = TurnResult(
            event.session_id, data.get("turn", 0), data.get("final_response", ""), reason, data.get("iterations", 0),
            data["spent"],
        )


def _text_of(event: Event, replies: dict[int, ReplyText], has_text: bool) -> tuple[str, bool]:
    """The text that an event adds, and whether the turn has text now. An empty line stands between two steps."""
    step = event.data["step"]
    is_first = step not in replies or not replies[step].is_begun
    reply = replies.setdefault(step, ReplyText())
    text = reply.push(event) if event.topic == "message.ai_chunk_received" else reply.finish(event.data["text"])
    if text and is_first and has_text:
        text = f"\n\n{text.lstrip()}"
    return text, has_text or bool(text)


async def _or_failure(events: AsyncGenerator[Event, None], responder: Responder) -> AsyncGenerator[Event, None]:
    """The events, until an answer to a call or gate fails."""
    failure = asyncio.create_task(responder.wait_for_failure())
    try:
        while True:
            following = asyncio.ensure_future(anext(events, None))
            try:
                await asyncio.wait({following, failure}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not following.done():
                    following.cancel()
                    await asyncio.gather(following, return_exceptions=True)
            if failure.done():
                failure.result()
            event = following.result()
            if event is None:
                return
            yield event
    finally:
        failure.cancel()
        await events.aclose()
