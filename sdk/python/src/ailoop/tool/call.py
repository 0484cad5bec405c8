"""One call of a tool, as its function sees it."""

import asyncio
import datetime
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ..schema import InvalidArguments

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

T = TypeVar("T")
#: A call may have a thousand replies, and one of them is the result.
PROGRESS_MAX, PROGRESS_UNPACED_MAX = 990, 500
#: After that many, one is sent in this part of the timeout.
PROGRESS_PER_TIMEOUT = 4


class ToolError(Exception):
    """An error that the model reads. `is_unknown` says that the call may have taken effect all the same."""

    def __init__(self, message: str, *, is_unknown: bool = False) -> None:
        super().__init__(message)
        self.is_unknown = is_unknown


class Call:
    """One call. A caller without an executor may leave out every header; the texts are empty then."""

    def __init__(self, client: "Client", message: "Msg", instance: str, timeout: float) -> None:
        headers = message.headers or {}
        #: Id of the call, unique in the fleet: an `idempotent` tool takes effect once per id.
        self.id = headers.get("Ailoop-Call", "")
        self.session_id = headers.get("Ailoop-Session", "")
        self.session_started = headers.get("Ailoop-Session-Started", "")
        self.agent = headers.get("Ailoop-Agent", "")
        #: `<attempt>.<delivery>`: differs between two tries of the same call.
        self.attempt = headers.get("Ailoop-Attempt", "")
        self.traceparent = headers.get("traceparent", "")
        #: When nobody waits for the answer any more, in seconds since 1970; `None` if no deadline was given.
        self.deadline = _parse_time(headers.get("Ailoop-Deadline"))
        #: Whether the function began, so that the call may have taken effect.
        self.has_begun = False
        self.reply = message.reply
        self._client, self._body, self._instance, self._timeout = client, message.data, instance, timeout
        self._loop = asyncio.get_running_loop()
        self._progress_count, self._progress_at = 0, 0.0

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments object. An empty body counts as `{}`."""
        try:
            arguments = json.loads(self._body or b"{}")
        except ValueError as error:
            raise InvalidArguments(f"the arguments are not JSON: {error}") from error
        if not isinstance(arguments, dict):
            raise InvalidArguments("the arguments are not a JSON object")
        return arguments

    @property
    def time_left(self) -> float:
        """Seconds until the deadline."""
        return float("inf") if self.deadline is None else self.deadline - time.time()

    async def progress(self, text: str) -> None:
        """Reports progress: people read it, and the call gets its whole timeout again. Best effort."""
        now = time.monotonic()
        is_paced = now - self._progress_at >= self._timeout / PROGRESS_PER_TIMEOUT
        if self._progress_count >= PROGRESS_MAX or (self._progress_count >= PROGRESS_UNPACED_MAX and not is_paced):
            return
        self._progress_count, self._progress_at = self._progress_count + 1, now
        if self.deadline is not None:
            self.deadline = max(self.deadline, time.time() + self._timeout)
        await self.send_progress(text)

    def progress_from_thread(self, text: str) -> None:
        """The same for plain functions, which run in a thread."""
        asyncio.run_coroutine_threadsafe(self.progress(text), self._loop).result(5)

    async def send_progress(self, text: str) -> None:
        """Sends a reply that is not the last. It says which replica works on the call, so that its loss is noticed."""
        if self.reply:
            headers = {"Ailoop-Progress": "1", "Ailoop-Instance": self._instance}
            await self._client.publish(self.reply, text.encode(), headers=headers)

    async def run_in_thread(self, work: Callable[[], T]) -> T:
        """Runs a plain function."""
        return await asyncio.to_thread(work)


def _parse_time(text: str | None) -> float | None:
    if not text:
        return None
    try:
        return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
