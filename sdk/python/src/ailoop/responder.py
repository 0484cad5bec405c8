"""Performs the calls of client tools and answers gates, while a turn is followed."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from .api import AsyncApi
from .client_tool import Answer, ClientTool
from .errors import Conflict, NotFound
from .event import Event
from .gates import Gate, GateCallbacks, OnApproval, OnQuestion, to_decision
from .types import SessionSummary

log = logging.getLogger("ailoop")

#: Calls and callbacks of one turn that run at the same time. Further ones wait.
RUNNING_MAX = 32
_UNCERTAIN = (
    "The client was restarted, and may have performed this call before. Its outcome is unknown: find out what happened"
    " before you call again."
)


class Responder:
    """Answers what waits for the client. Each answer carries the id of its call or gate, so it counts once."""

    def __init__(self, api: AsyncApi, session_id: str, tools: Iterable[ClientTool], callbacks: GateCallbacks) -> None:
        self._api, self._session_id, self._callbacks = api, session_id, callbacks
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
        elif event.topic == "gate.opened":
            if not is_old or data["gate"] in self._open:
                self._open_gate(Gate.of_event(event))
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

    def _open_gate(self, gate: Gate) -> None:
        callback = self._callbacks.of(gate)
        if callback:
            self._begin(gate.gate, lambda: self._decide(gate, callback))
        elif self._callbacks != GateCallbacks():
            what, missing = ("a question", "on_question") if gate.is_question else ("an approval", "on_approval")
            log.warning(
                "session %s waits for %s, and there is no %s: the gate %s stays open until %s; give the callback, or"
                " answer with `ailoop approvals` or in the console",
                gate.session_id, what, missing, gate.gate, gate.expires,
            )

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

    async def _decide(self, gate: Gate, callback: OnApproval | OnQuestion) -> None:
        if inspect.iscoroutinefunction(callback):
            answer: Any = callback(gate)
        else:
            answer = await asyncio.to_thread(callback, gate)
        decision = to_decision(gate, await answer if inspect.isawaitable(answer) else answer)
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
