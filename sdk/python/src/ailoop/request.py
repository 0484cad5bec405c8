"""A request of the API, and what the generated methods need to send one."""

import uuid
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from .event import Event


@dataclass
class Request:
    """A request before it is sent. Parameters that are `None` are left out."""

    method: str
    path: str
    query: dict[str, Any] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)
    #: Whether the route takes a `command_id`, by which a repeated request is handled once.
    has_key: bool = False

    def prepare(self) -> None:
        """Gives a command its idempotency key, and a new session its id: a repeated start needs both."""
        self.query = {name: _to_text(value) for name, value in self.query.items() if value is not None}
        self.body = {name: value for name, value in self.body.items() if value is not None}
        if self.has_key:
            key = self.body.setdefault("command_id", uuid.uuid4().hex)
            if self.method == "POST" and self.path == "/v1/sessions":
                self.body.setdefault("session_id", key)

    @property
    def is_repeatable(self) -> bool:
        """Whether it may be sent again after a connection that broke in the middle."""
        return self.has_key or self.method == "GET"


def _to_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Sender(Protocol):
    """What sends requests of asynchronous clients."""

    async def send(self, request: Request) -> dict[str, Any]: ...

    def stream(self, request: Request) -> AsyncGenerator[Event, None]: ...


class SyncSender(Protocol):
    """What sends requests of synchronous clients."""

    def send(self, request: Request) -> dict[str, Any]: ...

    def stream(self, request: Request) -> Iterator[Event]: ...


class AsyncApiBase:
    """Base of the generated asynchronous methods."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def _send(self, request: Request) -> Any:
        return await self._sender.send(request)

    def _stream(self, request: Request) -> AsyncGenerator[Event, None]:
        return self._sender.stream(request)


class ApiBase:
    """Base of the generated synchronous methods."""

    def __init__(self, sender: SyncSender) -> None:
        self._sender = sender

    def _send(self, request: Request) -> Any:
        return self._sender.send(request)

    def _stream(self, request: Request) -> Iterator[Event]:
        return self._sender.stream(request)
