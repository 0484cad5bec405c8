"""Takes the calls of one tool: exactly one final reply to each."""

import asyncio
import json
import logging
import time
from typing import TYPE_CHECKING, Any

from ..client_tool import to_content
from ..schema import InvalidArguments
from .call import Call, ToolError
from .definition import Tool
from .service import QUEUE, Service

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

log = logging.getLogger("ailoop.tool")
#: Calls that wait for others to end. Further ones are answered with an error.
WAITING_MAX = 1024
#: Seconds after its deadline when a call is ended: the caller has given up by then.
OVERDUE_AFTER = 1.0
#: Seconds after which a call says which replica has it. Most are over by then.
RECEIPT_AFTER = 0.5
PROBE_SECONDS_MAX = 5.0
#: A header is one line. The body has the whole text.
ERROR_HEADER_CHARS_MAX = 200
#: Bytes for headers beside a body.
HEADERS_BYTES_MAX = 4096


class Server:
    """One tool on one connection."""

    def __init__(self, client: "Client", tool: Tool, tenant: str, concurrency: int) -> None:
        self._client, self._tool, self._tenant = client, tool, tenant
        self._permits = asyncio.Semaphore(concurrency)
        self._in_flight_max = concurrency + WAITING_MAX
        self._running: dict[asyncio.Task[None], str] = {}
        self._probes: set[asyncio.Task[None]] = set()
        self._service = Service(client, tool, tenant, lambda call: call in self._running.values())
        self._calls: "Subscription | None" = None

    async def start(self) -> None:
        """Subscribes. The description comes last, so that a replica that is found takes calls."""
        name = f"{self._tenant}.{self._tool.name}"
        await self._client.subscribe(f"ai_tool_cancel.{name}", cb=self._cancel)
        if self._tool.probe:
            await self._client.subscribe(f"ai_tool_probe.{name}", queue=QUEUE, cb=self._begin_probe)
        self._calls = await self._client.subscribe(f"ai_tool.{name}", queue=QUEUE, cb=self._begin)
        await self._service.subscribe()

    async def drain(self, seconds: float) -> None:
        """Takes no more calls, and gives those that run some time to end."""
        self._service.begin_drain()
        if self._calls:
            await self._calls.drain()  # type: ignore[no-untyped-call]
        if self._running:
            await asyncio.wait(list(self._running), timeout=seconds)
        for task in list(self._running):
            task.cancel("the tool was stopped")
        await asyncio.gather(*self._running, *self._probes, return_exceptions=True)

    async def _begin(self, message: "Msg") -> None:
        """Each call is a task: nats-py reads the next message only when this has returned."""
        call = Call(self._client, message, self._service.instance, self._tool.timeout)
        if len(self._running) >= self._in_flight_max:
            await self._respond_error(call, "too many calls wait for this tool: try again later", False)
            return
        task = asyncio.create_task(self._answer(call))
        self._running[task] = call.id

    async def _cancel(self, message: "Msg") -> None:
        wanted = (message.headers or {}).get("Ailoop-Call")
        for task in [task for task, call in self._running.items() if call == wanted and wanted]:
            task.cancel("cancelled")

    async def _answer(self, call: Call) -> None:
        began = time.monotonic_ns()
        error: str | None = None
        result, is_unknown = "", False
        try:
            result = to_content(await self._perform(call))
        except asyncio.CancelledError as cancelled:
            error, is_unknown = str(cancelled.args[0] if cancelled.args else "cancelled"), self._may_have_effect(call)
        except ToolError as failure:
            error, is_unknown = str(failure), failure.is_unknown
        except InvalidArguments as invalid:
            error = f"invalid arguments: {invalid}"
        except Exception as failure:  # the model reads it; the log has where it comes from
            log.exception("%s failed in the call %s", self._tool.name, call.id)
            error = f"{type(failure).__name__}: {failure}"
        # Before it answers: a cancel comes too late from here on.
        self._running.pop(asyncio.current_task(), None)  # type: ignore[arg-type]
        self._service.requests += 1
        self._service.nanoseconds += time.monotonic_ns() - began
        body = result.encode()
        if error is None and len(body) > self._client.max_payload:
            # After an error a model calls again, which could repeat the effect.
            error, is_unknown = f"the tool ran; its result has {len(body)} bytes, more than NATS carries", self._takes_effect
        if error is None:
            await self._publish(call, body, None)
        else:
            self._service.errors, self._service.last_error = self._service.errors + 1, error[:ERROR_HEADER_CHARS_MAX]
            await self._respond_error(call, error, is_unknown)

    async def _perform(self, call: Call) -> Any:
        """Runs the function, until it ends or its deadline has passed."""
        work = asyncio.ensure_future(self._work(call))
        receipt = asyncio.ensure_future(self._send_receipt(call))
        try:
            while not work.done():
                left = call.time_left + OVERDUE_AFTER
                if left <= 0:
                    work.cancel()
                    raise ToolError("the deadline has passed", is_unknown=self._may_have_effect(call))
                await asyncio.wait({work}, timeout=None if left == float("inf") else left)
            return work.result()
        finally:
            receipt.cancel()
            work.cancel()

    async def _work(self, call: Call) -> Any:
        async with self._permits:
            if call.time_left <= 0:
                raise ToolError("the deadline has passed: nobody waits for this call any more, so it was not begun")
            call.has_begun = True
            return await self._tool.run(call)

    @staticmethod
    async def _send_receipt(call: Call) -> None:
        await asyncio.sleep(RECEIPT_AFTER)
        await call.send_progress("")

    async def _begin_probe(self, message: "Msg") -> None:
        task = asyncio.create_task(self._answer_probe(message))
        self._probes.add(task)
        task.add_done_callback(self._probes.discard)

    async def _answer_probe(self, message: "Msg") -> None:
        """Says what became of a lost call: its result, that it took no effect, or that nobody knows."""
        call = Call(self._client, message, self._service.instance, self._tool.timeout)
        if call.id in self._running.values():
            await self._respond_error(call, "it still works on the call", True)
            return
        try:
            found = await asyncio.wait_for(self._tool.run_probe(call), PROBE_SECONDS_MAX)
        except Exception as failure:
            await self._respond_error(call, f"the probe failed: {failure!r}", True)
            return
        if found is None:
            await self._publish(call, b"", {"Ailoop-Outcome": "none"})
        else:
            await self._publish(call, to_content(found).encode(), None)

    @property
    def _takes_effect(self) -> bool:
        return self._tool.effect != "pure"

    def _may_have_effect(self, call: Call) -> bool:
        return call.has_begun and self._takes_effect

    async def _respond_error(self, call: Call, text: str, is_unknown: bool) -> None:
        line = " ".join(text.split())[:ERROR_HEADER_CHARS_MAX]
        headers = {"Ailoop-Error": line.encode("ascii", "replace").decode() or "error"}
        if is_unknown:
            headers["Ailoop-Outcome"] = "unknown"
        room = self._client.max_payload - HEADERS_BYTES_MAX
        await self._publish(call, text.encode()[:room].decode(errors="ignore").encode(), headers)

    async def _publish(self, call: Call, body: bytes, headers: dict[str, str] | None) -> None:
        if not call.reply:
            return
        try:
            await self._client.publish(call.reply, body, headers=headers)
        except Exception as error:
            log.warning("the answer to the call %s was not sent: %s", call.id, error)


def announcement(tenant: str, state: str) -> bytes:
    """The message by which executors look for tools at once."""
    return json.dumps({"tenant": tenant, "state": state}).encode()
