"""An event of a session, and the parser of server-sent events."""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import httpx

from .errors import AiloopError, from_problem

#: Bytes of one event. The server's own limits are lower.
EVENT_BYTES_MAX = 32 << 20


@dataclass(frozen=True)
class Event:
    """An event of a session. docs/reference/protocol.md lists the topics and their data."""

    topic: str
    session_id: str
    #: Number in the session, from 1 without gaps. Chunks of replies and other transient events have none.
    seq: int | None
    #: When it happened, as RFC 3339 has it.
    time: str
    data: dict[str, Any]
    id: str = ""
    trace_id: str = ""

    @property
    def is_snapshot(self) -> bool:
        """Whether it is a chunk with all the text of a reply so far, for a client that came late."""
        return self.id.startswith(f"{self.session_id}-view-")


@dataclass
class _Frame:
    topic: str = ""
    data: list[str] = field(default_factory=list)
    size: int = 0


async def read_events(response: httpx.Response) -> AsyncGenerator[Event, None]:
    """Reads the events of a response. Raises the error with which the server ends a stream."""
    frame = _Frame()
    async for line in _read_lines(response):
        if not line:
            if frame.data:
                yield _to_event(frame.topic, "\n".join(frame.data))
            frame = _Frame()
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        frame.size += len(line)
        if frame.size > EVENT_BYTES_MAX:
            raise AiloopError(f"an event has more than {EVENT_BYTES_MAX} bytes", code="too_large")
        if name == "event":
            frame.topic = value
        elif name == "data":
            frame.data.append(value)


async def _read_lines(response: httpx.Response) -> AsyncGenerator[str, None]:
    """Splits at line ends only: `aiter_lines` of httpx splits at other characters too, which JSON may have."""
    rest = bytearray()
    async for part in response.aiter_bytes():
        rest += part
        if b"\n" in part:
            *lines, last = rest.split(b"\n")
            rest = bytearray(last)
            for line in lines:
                yield line.rstrip(b"\r").decode()
        elif len(rest) > EVENT_BYTES_MAX:
            raise AiloopError(f"an event has more than {EVENT_BYTES_MAX} bytes", code="too_large")


def _to_event(topic: str, text: str) -> Event:
    try:
        fields = json.loads(text)
        # A failed stream ends with problem details.
        if topic == "watch.failed":
            raise from_problem(fields, 0)
        # `continuation.progress` has a form of its own: its fields stand where others have `data`.
        return Event(
            topic=topic,
            session_id=fields["session_id"],
            seq=fields.get("seq"),
            time=fields.get("time") or fields.get("timestamp") or "",
            data=fields.get("data", fields),
            id=fields.get("id", ""),
            trace_id=fields.get("trace_id", ""),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AiloopError(f"the event {topic!r} cannot be read: {error!r}", code="internal") from error
