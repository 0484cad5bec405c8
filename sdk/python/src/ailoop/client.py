"""The asynchronous client."""

import uuid
from collections.abc import Iterable
from types import TracebackType
from typing import Any

import httpx

from .api import AsyncApi
from .client_tool import ClientTool, Function, to_client_tool
from .gates import GateCallbacks, OnApproval, OnQuestion
from .session import AsyncSession, Content
from .transport import Transport
from .turn import TurnResult


class AsyncClient:
    """A client of one edge, or of several behind one address.

    `url` and `api_key` are those of `AILOOP_URL` and `AILOOP_API_KEY` if they are not given, else those of the fleet
    that `ailoop up` runs in this directory or in one above it. Requests that may be repeated are, for `retry_seconds`,
    after a connection that broke and when the server asks for it. A key is sent over `http://` to another machine only
    with `plaintext`.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        retry_seconds: float = 60.0,
        http: httpx.AsyncClient | None = None,
        headers: dict[str, str] | None = None,
        plaintext: bool = False,
    ) -> None:
        self.transport = Transport(
            url, api_key, retry_seconds=retry_seconds, http=http, headers=headers, plaintext=plaintext
        )
        #: Every route of the API as a method.
        self.api = AsyncApi(self.transport)

    async def run(
        self,
        agent: str | None,
        prompt: Content,
        *,
        tools: Iterable[Function | ClientTool] = (),
        on_approval: OnApproval | None = None,
        on_question: OnQuestion | None = None,
        session_id: str | None = None,
        idempotency_key: str | None = None,
        **settings: Any,
    ) -> TurnResult:
        """Runs a task in a session of its own, and returns its result. `None` is the default agent.

        With an `idempotency_key`, a task that was started before is not started again: its result is returned.
        """
        session = await self.start(
            agent, prompt, tools=tools, on_approval=on_approval, on_question=on_question, session_id=session_id,
            idempotency_key=idempotency_key, interactive=False, **settings,
        )
        return await session.turn()

    async def start(
        self,
        agent: str | None = None,
        prompt: Content | None = None,
        *,
        tools: Iterable[Function | ClientTool] = (),
        on_approval: OnApproval | None = None,
        on_question: OnQuestion | None = None,
        session_id: str | None = None,
        idempotency_key: str | None = None,
        interactive: bool = True,
        fleet_tools: list[str] | None = None,
        **settings: Any,
    ) -> AsyncSession:
        """Starts a session. `session.turn()` follows the turn of `prompt`.

        `tools` are functions of this program that the agent may call. `fleet_tools` restricts it to some of its own.
        `settings` are the other parameters of `api.session_start`, such as `model` or `continuation`. Without a
        `session_id`, the `idempotency_key` is the id, so that the same key means the same session.
        """
        brought = [to_client_tool(tool) for tool in tools]
        key = idempotency_key or uuid.uuid4().hex
        reply = await self.api.session_start(
            agent=agent,
            prompt=prompt,
            interactive=interactive,
            session_id=session_id or key,
            command_id=key,
            client_tools=[tool.describe() for tool in brought] or None,
            tools=fleet_tools,
            **settings,
        )
        message = (key, reply.get("turn")) if prompt is not None else None
        # A session that was started with this key before has events of its own.
        callbacks = GateCallbacks(on_approval, on_question)
        return self._session(reply["session_id"], brought, callbacks, message, is_new=idempotency_key is None)

    def session(
        self,
        session_id: str,
        *,
        tools: Iterable[Function | ClientTool] = (),
        on_approval: OnApproval | None = None,
        on_question: OnQuestion | None = None,
    ) -> AsyncSession:
        """A session that exists. `tools` are functions for the tools with which it was started."""
        callbacks = GateCallbacks(on_approval, on_question)
        return self._session(session_id, [to_client_tool(tool) for tool in tools], callbacks, None, is_new=False)

    def _session(
        self,
        session_id: str,
        tools: list[ClientTool],
        callbacks: GateCallbacks,
        message: tuple[str, int | None] | None,
        *,
        is_new: bool,
    ) -> AsyncSession:
        seconds = self.transport.retry_seconds
        return AsyncSession(
            self.api, session_id, tools=tools, callbacks=callbacks, retry_seconds=seconds, first_message=message,
            is_new=is_new,
        )

    async def close(self) -> None:
        """Closes the connections."""
        await self.transport.close()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
