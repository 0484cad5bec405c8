"""One turn of a session: its text as it streams, and its result."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from .errors import AiloopError, Conflict, TurnFailed
from .event import Event
from .reply_text import ReplyText
from .responder import Responder
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

    #: The last `seq` before the events to read.
    seq: int
    #: Id of the message whose turn it is.
    message_id: str | None = None
    #: Number of the turn, once it is known: an event says with which messages a turn begins.
    turn: int | None = None
    #: Whether the message is in the log, and its turn is not known.
    is_waiting: bool = False
    #: The turn that runs.
    running: int | None = None
    #: Turns that ended meanwhile without a start that was seen. One had started before the message came.
    unseen_turns: int = 0

    def push(self, event: Event) -> None:
        """Takes an event, which may say which turn it is."""
        self.seq = event.seq or self.seq
        if event.topic == "message.user_processed" and event.data["message_id"] == self.message_id:
            if event.data.get("mode") != "queue" and self.turn is None:
                # The turn that runs reads it.
                self.turn = self.running
            self.is_waiting = self.turn is None
        elif event.topic == "turn.started":
            self.running = event.data["turn"]
            if self.message_id in event.data["messages"]:
                self.turn, self.is_waiting = self.running, False
        elif event.topic == "turn.completed":
            self.unseen_turns += self.is_waiting and self.running is None
            self.running = None
            if self.unseen_turns > 1:
                turn = event.data["turn"]
                raise AiloopError(
                    f"no event said with which messages turn {turn} began: upgrade the fleet", code="internal"
                )


_TEXT_TOPICS = ("message.ai_chunk_received", "message.ai_full_received")
Begin = Callable[[], Coroutine[Any, Any, TurnStart]]
Follow = Callable[[int], AsyncGenerator[Event, None]]


class AsyncTurn:
    """A turn. Iterate over it for its text as it streams, or await it for its result alone.

    Nothing is sent before. A turn goes on in the fleet if this object is dropped.
    """

    def __init__(self, begin: Begin, follow: Follow, responder: Responder, on_end: Callable[[int], None]) -> None:
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
        replies: dict[int, ReplyText] = {}
        has_text, last_error = False, None
        async with aclosing(_or_failure(self._follow(start.seq + 1), self._responder)) as events:
            async for event in events:
                self._responder.push(event)
                start.push(event)
                is_ours = start.turn is not None and event.data.get("turn") == start.turn
                if event.topic in _TEXT_TOPICS and is_ours:
                    text, has_text = _text_of(event, replies, has_text)
                    if text:
                        yield text
                elif event.topic == "error" and event.seq is not None:
                    last_error = event.data
                elif event.topic == "session_ended" or (event.topic == "turn.completed" and is_ours):
                    self._on_end(start.seq)
                    self._end(event, last_error)
                    return

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
