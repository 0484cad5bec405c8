"""The synchronous client: the same as the asynchronous one, which runs in a thread of its own."""

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

from .api import Api
from .client import AsyncClient
from .client_tool import ClientTool, Function
from .event import Event
from .gates import OnApproval, OnQuestion
from .portal import Portal
from .request import Request
from .session import AsyncSession, Content, Mode
from .turn import AsyncTurn, TurnResult
from .types import CommandReply, SessionSummary


class _PortalSender:
    def __init__(self, client: AsyncClient, portal: Portal) -> None:
        self._client, self._portal = client, portal

    def send(self, request: Request) -> dict[str, Any]:
        return self._portal.call(self._client.transport.send(request))

    def stream(self, request: Request) -> Iterator[Event]:
        return self._portal.iterate(self._client.transport.stream(request))


class Turn:
    """A turn. Iterate over it for its text as it streams; `result` waits for its end."""

    def __init__(self, turn: AsyncTurn, portal: Portal) -> None:
        self._turn, self._portal = turn, portal

    def __iter__(self) -> Iterator[str]:
        return self._portal.iterate(_Unclosed(self._turn))

    def result(self) -> TurnResult:
        """Waits for the end of the turn. Raises `TurnFailed` if it could not go on."""
        return self._portal.call(self._turn.result())


class _Unclosed:
    """The texts of a turn, which a loop that ends early does not close: `result` reads on."""

    def __init__(self, turn: AsyncTurn) -> None:
        self._texts = aiter(turn)

    def __aiter__(self) -> "_Unclosed":
        return self

    async def __anext__(self) -> str:
        return await anext(self._texts)


class Session:
    """A session of the fleet. Make one with `Client.start` or `Client.session`."""

    def __init__(self, session: AsyncSession, portal: Portal) -> None:
        self.id = session.id
        self._session, self._portal = session, portal

    def send(
        self, content: Content, *, mode: Mode = "queue", idempotency_key: str | None = None, wait: bool = True
    ) -> CommandReply:
        """Sends a message of the user, and does not wait for its turn. See `AsyncSession.send`."""
        return self._portal.call(self._session.send(content, mode=mode, idempotency_key=idempotency_key, wait=wait))

    def turn(self, content: Content | None = None, *, mode: Mode = "queue", idempotency_key: str | None = None) -> Turn:
        """Sends a message and follows its turn. See `AsyncSession.turn`."""
        return Turn(self._session.turn(content, mode=mode, idempotency_key=idempotency_key), self._portal)

    def events(self, from_seq: int = 1, *, chunks: bool = True) -> Iterator[Event]:
        """Yields the events from `from_seq` on, live, until the session ends. See `AsyncSession.events`."""
        return self._portal.iterate(self._session.events(from_seq, chunks=chunks))

    def get(self) -> SessionSummary:
        """The summary: phase, agent, model, what was spent, and what waits."""
        return self._portal.call(self._session.get())

    def pause(self, reason: str | None = None) -> CommandReply:
        """Pauses: no new call is opened until the session is resumed."""
        return self._portal.call(self._session.pause(reason))

    def resume(self, reason: str | None = None) -> CommandReply:
        """Resumes a paused session."""
        return self._portal.call(self._session.resume(reason))

    def cancel(self, reason: str | None = None) -> CommandReply:
        """Cancels the turn that runs. The session stays open, and messages that wait begin the next turn."""
        return self._portal.call(self._session.cancel(reason))

    def stop(self, reason: str | None = None) -> CommandReply:
        """Cancels open calls, and ends the session."""
        return self._portal.call(self._session.stop(reason))


class Client:
    """A client for programs without `async`. It takes what `AsyncClient` takes, and may be used by several threads."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        retry_seconds: float = 60.0,
        headers: dict[str, str] | None = None,
        plaintext: bool = False,
    ) -> None:
        # Before the portal, whose thread would stay.
        client = AsyncClient(url, api_key, retry_seconds=retry_seconds, headers=headers, plaintext=plaintext)
        self._portal, self._client = Portal(), client
        #: Every route of the API as a method.
        self.api = Api(_PortalSender(self._client, self._portal))

    def run(
        self,
        agent: str | None,
        prompt: Content,
        *,
        tools: Iterable[Function | ClientTool] = (),
        on_approval: OnApproval | None = None,
        on_question: OnQuestion | None = None,
        **settings: Any,
    ) -> TurnResult:
        """Runs a task in a session of its own, and returns its result. See `AsyncClient.run`."""
        running = self._client.run(
            agent, prompt, tools=tools, on_approval=on_approval, on_question=on_question, **settings
        )
        return self._portal.call(running)

    def start(
        self,
        agent: str | None = None,
        prompt: Content | None = None,
        *,
        tools: Iterable[Function | ClientTool] = (),
        on_approval: OnApproval | None = None,
        on_question: OnQuestion | None = None,
        **settings: Any,
    ) -> Session:
        """Starts a session. See `AsyncClient.start`."""
        starting = self._client.start(
            agent, prompt, tools=tools, on_approval=on_approval, on_question=on_question, **settings
        )
        return Session(self._portal.call(starting), self._portal)

    def session(
        self,
        session_id: str,
        *,
        tools: Iterable[Function | ClientTool] = (),
        on_approval: OnApproval | None = None,
        on_question: OnQuestion | None = None,
    ) -> Session:
        """A session that exists. `tools` are functions for the tools with which it was started."""
        session = self._client.session(session_id, tools=tools, on_approval=on_approval, on_question=on_question)
        return Session(session, self._portal)

    def close(self) -> None:
        """Closes the connections, and ends the thread."""
        self._portal.call(self._client.close())
        self._portal.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
