"""A session: messages, events that survive lost connections, and turns."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any, Literal

from .api import AsyncApi
from .client_tool import ClientTool
from .errors import AiloopError, Conflict
from .event import Event
from .gates import GateCallbacks
from .responder import Responder
from .transport import is_retryable, pause
from .turn import AsyncTurn, TurnStart
from .types import CommandReply, SessionSummary

Content = str | list[dict[str, Any]]
Mode = Literal["queue", "steer", "interrupt"]


class AsyncSession:
    """A session of the fleet. Make one with `AsyncClient.start` or `AsyncClient.session`."""

    def __init__(
        self,
        api: AsyncApi,
        session_id: str,
        *,
        tools: Iterable[ClientTool] = (),
        callbacks: GateCallbacks,
        retry_seconds: float = 60.0,
        first_message: tuple[str, int | None] | None = None,
        is_new: bool = False,
    ) -> None:
        self.id = session_id
        self._api, self._tools, self._callbacks, self._retry_seconds = api, list(tools), callbacks, retry_seconds
        #: Id of the message with which the session was started, and its turn if it has begun.
        self._first_message = first_message
        #: The last `seq` that this program has read; unknown for a session that others have used.
        self._seq = 0 if is_new else None

    async def send(
        self, content: Content, *, mode: Mode = "queue", idempotency_key: str | None = None, wait: bool = True
    ) -> CommandReply:
        """Sends a message of the user, and does not wait for its turn.

        `queue` begins a turn of its own, `steer` is read in the turn that runs, and `interrupt` stops its model call.
        """
        return await self._api.session_send(self.id, content=content, mode=mode, command_id=idempotency_key, wait=wait)

    def turn(self, content: Content | None = None, *, mode: Mode = "queue", idempotency_key: str | None = None) -> AsyncTurn:
        """Sends a message and follows its turn. Calls of the client's tools are performed meanwhile.

        Without a message, it is the turn of the prompt with which the session was started, else the turn that runs, else
        the last one. With the same `idempotency_key`, a message is sent once, and its turn is found again after a crash.
        """
        responder = Responder(self._api, self.id, self._tools, self._callbacks)

        async def begin() -> TurnStart:
            if content is None:
                return await self._find_turn(responder)
            seq = await self._find_place(responder, idempotency_key is not None)
            key = idempotency_key or uuid.uuid4().hex
            reply = await self.send(content, mode=mode, idempotency_key=key)
            return TurnStart(seq, message_id=key, turn=reply.get("turn"))

        return AsyncTurn(begin, self.events, responder, self._go_on)

    async def events(self, from_seq: int = 1, *, chunks: bool = True) -> AsyncGenerator[Event, None]:
        """Yields the events from `from_seq` on, live, until the session ends.

        It connects again by itself. No event with a `seq` is lost or comes twice. Chunks of replies may be lost; after a
        new connection, a chunk with `is_snapshot` has all the text of the reply so far.
        """
        last, failures, deadline = from_seq - 1, 0, 0.0
        while True:
            error: AiloopError | None = None
            try:
                stream = self._api.session_watch(self.id, from_seq=last + 1, no_chunks=not chunks)
                async with aclosing(stream) as events:
                    async for event in events:
                        failures = 0
                        if event.seq is not None:
                            if event.seq <= last:
                                continue
                            if event.seq > last + 1:
                                break
                            last = event.seq
                        yield event
                        if event.topic == "session_ended":
                            return
            except AiloopError as raised:
                if not is_retryable(raised):
                    raise
                error = raised
            failures += 1
            deadline = time.monotonic() + self._retry_seconds if failures == 1 else deadline
            wait = pause(failures, error.retry_after if error else None)
            if time.monotonic() + wait > deadline:
                raise error or AiloopError(f"the events of session {self.id} end again and again", code="unavailable")
            await asyncio.sleep(wait)

    async def get(self) -> SessionSummary:
        """The summary: phase, agent, model, what was spent, and what waits."""
        return await self._api.session_get(self.id)

    async def pause(self, reason: str | None = None) -> CommandReply:
        """Pauses: no new call is opened until the session is resumed."""
        return await self._api.session_pause(self.id, reason=reason)

    async def resume(self, reason: str | None = None) -> CommandReply:
        """Resumes a paused session."""
        return await self._api.session_resume(self.id, reason=reason)

    async def cancel(self, reason: str | None = None) -> CommandReply:
        """Cancels the turn that runs. The session stays open, and messages that wait begin the next turn."""
        return await self._api.session_cancel_turn(self.id, reason=reason)

    async def stop(self, reason: str | None = None) -> CommandReply:
        """Cancels open calls, and ends the session."""
        return await self._api.session_stop(self.id, reason=reason)

    def _go_on(self, seq: int) -> None:
        self._seq = max(self._seq or 0, seq)

    async def _find_place(self, responder: Responder, may_be_repeated: bool) -> int:
        """After which `seq` to read, before a message is sent. One that may have been sent before can be anywhere."""
        if self._seq is not None and not may_be_repeated:
            return self._seq
        summary = await self.get()
        responder.skip_answered(summary)
        return summary["seq"] if summary["phase"] == "idle" and not may_be_repeated else 0

    async def _find_turn(self, responder: Responder) -> TurnStart:
        if self._first_message is not None:
            (message, turn), self._first_message = self._first_message, None
            if self._seq is None:
                responder.skip_answered(await self.get())
            return TurnStart(0, message_id=message, turn=turn)
        summary = await self.get()
        responder.skip_answered(summary)
        if summary["turn"] == 0:
            raise Conflict(f"session {self.id} has no turn yet: give a message", code="not_now")
        return TurnStart(0, turn=summary["turn"])
