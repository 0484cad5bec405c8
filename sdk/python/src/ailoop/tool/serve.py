"""Serves tools until the process gets SIGTERM or SIGINT."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from typing import Any

from .. import local_fleet
from .definition import Tool, to_tool
from .server import Server, announcement

log = logging.getLogger("ailoop.tool")
#: Subject of the message by which executors look for tools at once.
ANNOUNCE = "ai_rpc.tool.announce"
CONCURRENCY = 16
#: Seconds for running calls after a signal.
DRAIN_SECONDS = 10.0
FLUSH_SECONDS = 2.0
RECONNECT_SECONDS = 2.0


def serve(
    *tools: Callable[..., Any] | Tool,
    url: str | None = None,
    credentials: str | None = None,
    tenant: str = "default",
    concurrency: int = CONCURRENCY,
) -> None:
    """Serves tools, and returns after SIGTERM or SIGINT, when the running calls have ended.

    `url` and `credentials` are those of `NATS_URL` and `NATS_CREDENTIALS` if they are not given, else `url` is that of
    the fleet that `ailoop up` runs in this directory or in one above it. Credentials are the file that `ailoop nats-auth
    user add` makes; without them, a user and a password may stand in the address (`nats://user:password@host:4222`). Of each tool, `concurrency` calls run at the same time.
    """
    stop = asyncio.Event()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await serve_async(
            *tools, url=url, credentials=credentials, tenant=tenant, concurrency=concurrency, stop=stop
        )

    asyncio.run(run())


async def serve_async(
    *tools: Callable[..., Any] | Tool,
    url: str | None = None,
    credentials: str | None = None,
    tenant: str = "default",
    concurrency: int = CONCURRENCY,
    drain_seconds: float = DRAIN_SECONDS,
    stop: asyncio.Event | None = None,
) -> None:
    """The same in a running event loop, until `stop` is set or the task is cancelled."""
    served = [to_tool(tool) for tool in tools]
    if not served:
        raise ValueError("there is no tool to serve")
    address = url or os.environ.get("NATS_URL")
    file = credentials or os.environ.get("NATS_CREDENTIALS")
    stop = stop or asyncio.Event()
    while not stop.is_set():
        # nats-py closes its connection for good when a credential is revoked: connect again, with a new file perhaps.
        await _serve_connection(served, address or _local_address(), file, tenant, max(concurrency, 1), drain_seconds, stop)
        if not stop.is_set():
            log.warning("the connection to NATS was closed; connecting again in %s s", RECONNECT_SECONDS)
            await _wait(stop, RECONNECT_SECONDS)


def _local_address() -> str:
    # At each connect: a fleet that was restarted has another port.
    address: str = (local_fleet.find() or {}).get("nats", "nats://127.0.0.1:4222")
    return address


async def _serve_connection(
    tools: list[Tool],
    url: str,
    credentials: str | None,
    tenant: str,
    concurrency: int,
    drain_seconds: float,
    stop: asyncio.Event,
) -> None:
    try:
        import nats
    except ImportError as error:
        raise ImportError('tools need nats-py: pip install "nats-py[nkeys]"') from error
    closed = asyncio.Event()

    async def on_closed() -> None:
        closed.set()

    async def on_error(error: Exception) -> None:
        log.warning("NATS: %s", error)

    client = await nats.connect(
        url.split(","),
        name="ailoop-tool",
        user_credentials=credentials,
        max_reconnect_attempts=-1,
        closed_cb=on_closed,
        error_cb=on_error,
    )
    servers = [Server(client, tool, tenant, concurrency) for tool in tools]
    try:
        for server in servers:
            await server.start()
        await client.publish(ANNOUNCE, announcement(tenant, "up"))
        waits = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(closed.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
    finally:
        try:
            # While NATS is away, the process must end all the same.
            await asyncio.wait_for(_end(client, servers, tenant, drain_seconds), drain_seconds + FLUSH_SECONDS)
        except Exception as error:
            log.warning("the last replies may be lost: %r", error)


async def _end(client: Any, servers: list[Server], tenant: str, drain_seconds: float) -> None:
    # A connection that is not there has no calls to drain, and its replies reach nobody.
    if client.is_connected:
        await asyncio.gather(*(server.drain(drain_seconds) for server in servers))
        await client.publish(ANNOUNCE, announcement(tenant, "down"))
        await client.flush(FLUSH_SECONDS)
    await client.close()


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except asyncio.TimeoutError:
        pass
