"""Performs the calls of client tools and answers gates, while a turn is followed."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from .api import AsyncApi
from .client_tool import Answer, ClientTool
from .errors import Conflict, NotFound
from .event import Event
from .gates import Gate, OnGate, to_decision
from .types import SessionSummary

#: Calls and callbacks of one turn that run at the same time. Further ones wait.
RUNNING_MAX = 32
_UNCERTAIN = (
    "The client was restarted, and may have performed this call before. Its outcome is unknown: find out what happened"
    " before you call again."
)


class Responder:
    """Answers what waits for the client. Each answer carries the id of its call or gate, so it counts once."""

    def __init__(self, api: AsyncApi, session_id: str, tools: Iterable[ClientTool], on_gate: OnGate | None) -> None:
        self._api, self._session_id, self._on_gate = api, session_id, on_gate
        self._tools = {tool.name: tool for tool in tools}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._permits = asyncio.Semaphore(RUNNING_MAX)
        self._failures: asyncio.Queue[BaseException] = asyncio.Queue()
        self._old_seq, self._open = 0, frozenset[str]()

    def skip_answered(self, summary: SessionSummary) -> None:
        """Tells what was open when this client took up the session: of the events before, only that is answered."""
        gates = {gate["gate"] for gate in summary.get("gates", [])}
        calls = {call["call"] for call in summary.get("client_calls", [])}
        self._old_seq, self._open = summary["seq"], frozenset(gates | calls)

    def push(self, event: Event) -> None:
        """Takes an event: begins what it asks for, and cancels what has ended."""
        data = event.data
        is_old = event.seq is not None and event.seq <= self._old_seq
        if event.topic == "tool_call.waiting" and data["tool"] in self._tools:
            if not is_old or data["call"] in self._open:
                self._begin(data["call"], lambda: self._perform(data, is_old))
        elif event.topic == "gate.opened" and self._on_gate:
            if not is_old or data["gate"] in self._open:
                self._begin(data["gate"], lambda: self._decide(Gate.of_event(event)))
        elif event.topic in ("tool_call.result_processed", "gate.closed"):
            task = self._tasks.pop(str(data.get("call") or data.get("gate")), None)
            if task:
                task.cancel()

    def raise_failure(self) -> None:
        """Raises the first failure of an answer."""
        if not self._failures.empty():
            raise self._failures.get_nowait()

    async def wait_for_failure(self) -> None:
        """Waits until an answer fails, and raises its failure."""
        raise await self._failures.get()

    async def close(self) -> None:
        """Cancels what runs."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(self._run(name, work))

    async def _run(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            async with self._permits:
                await work()
        except (Conflict, NotFound):
            pass  # another answer counts, or the call has ended meanwhile
        except Exception as error:
            self._failures.put_nowait(error)

    async def _perform(self, data: dict[str, Any], is_old: bool) -> None:
        tool = self._tools[data["tool"]]
        if is_old and tool.effect == "at_most_once":
            answer: Answer = ("error", _UNCERTAIN)
        else:
            answer = await tool.perform(data["arguments"])
        await self._api.session_answer_call(
            self._session_id, data["call"], outcome=answer[0], content=answer[1], command_id=data["call"]
        )

    async def _decide(self, gate: Gate) -> None:
        assert self._on_gate is not None
        if inspect.iscoroutinefunction(self._on_gate):
            answer: Any = self._on_gate(gate)
        else:
            answer = await asyncio.to_thread(self._on_gate, gate)
        decision = to_decision(await answer if inspect.isawaitable(answer) else answer)
        if decision:
            await self._api.session_answer(
                self._session_id,
                gate.gate,
                arguments_sha256=gate.arguments_sha256,
                decision=decision.decision,
                arguments=decision.arguments,
                content=decision.content,
                note=decision.note,
            )
