"""Sends requests over HTTP: credentials, retries and limits."""

import asyncio
import email.utils
import json
import os
import random
import time
import urllib.parse
from collections.abc import AsyncGenerator, Iterable
from typing import Any

import httpx

from . import local_fleet
from .errors import AccessDenied, AiloopError, ConnectionFailed, from_problem
from .event import Event, read_events
from .request import Request

URL_DEFAULT = "http://127.0.0.1:7070"
#: Seconds. A command waits up to 30 s for its commit, and an idle stream has a comment every 15 s.
TIMEOUT = httpx.Timeout(45.0, connect=5.0)
LIMITS = httpx.Limits(max_connections=512, max_keepalive_connections=32)
RESPONSE_BYTES_MAX = 64 << 20
#: Seconds between two tries: the first pause, and the longest one.
BACKOFF_FIRST, BACKOFF_MAX = 0.2, 5.0
#: Seconds that a client waits at most because a response says so.
RETRY_AFTER_MAX = 60.0
#: These codes pass by themselves. Another failure of a request stays as it is.
RETRYABLE = frozenset({"overloaded", "too_many_waiting", "unavailable", "nats_unreachable", "draining", "slow_client"})


def pause(failures: int, retry_after: float | None) -> float:
    """Seconds before the next try, after this many failures in a row."""
    backoff: float = min(BACKOFF_FIRST * 2 ** min(failures - 1, 10), BACKOFF_MAX)
    return max(backoff * random.uniform(0.5, 1.0), min(retry_after or 0.0, RETRY_AFTER_MAX))


def is_retryable(error: AiloopError) -> bool:
    """Whether the same request may succeed later."""
    return isinstance(error, ConnectionFailed) or error.code in RETRYABLE


def refuse_plaintext(url: str) -> None:
    """Refuses an address to which a key would travel in clear: http:// to another machine."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "http" and not local_fleet.is_loopback(url):
        message = f"the API key is not sent over http:// to {parts.hostname or ''}, where others could read it"
        remedy = "use an https:// address, or pass plaintext=True in a network that you trust"
        raise AccessDenied(f"{message}: {remedy}", code="unauthorized")


def find_target(url: str | None, api_key: str | None) -> tuple[str, str | None]:
    """The address and the key: those that are given, else of the environment, else of the fleet of this directory."""
    address = url or os.environ.get("AILOOP_URL")
    key = api_key if api_key is not None else os.environ.get("AILOOP_API_KEY")
    run = local_fleet.find() or {}
    base = (address or run.get("http") or URL_DEFAULT).rstrip("/").removesuffix("/v1")
    if key is None and base == run.get("http"):
        key = run.get("token")
    return base, key


class Transport:
    """Sends requests to one server. A request that may be repeated is, for `retry_seconds`."""

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
        self.url, key = find_target(url, api_key)
        if key and not plaintext:
            refuse_plaintext(self.url)
        self.retry_seconds = retry_seconds
        self._headers = dict(headers or {}) | ({"authorization": f"Bearer {key}"} if key else {})
        self._owns_http = http is None
        self._http = http or httpx.AsyncClient(timeout=TIMEOUT, limits=LIMITS)

    async def close(self) -> None:
        """Closes the connections, unless the HTTP client was given."""
        if self._owns_http:
            await self._http.aclose()

    async def send(self, request: Request) -> dict[str, Any]:
        """Sends a request, and returns the JSON object of the response."""
        request.prepare()
        deadline, failures = time.monotonic() + self.retry_seconds, 0
        while True:
            try:
                return await self._send_once(request)
            except AiloopError as error:
                failures += 1
                wait = pause(failures, error.retry_after)
                if not self._may_repeat(request, error) or time.monotonic() + wait > deadline:
                    raise
            await asyncio.sleep(wait)

    @staticmethod
    def _may_repeat(request: Request, error: AiloopError) -> bool:
        if isinstance(error, ConnectionFailed) and not request.is_repeatable:
            return isinstance(error.__cause__, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
        return is_retryable(error)

    async def _send_once(self, request: Request) -> dict[str, Any]:
        headers = dict(self._headers)
        content = None
        if request.method == "POST":
            headers["content-type"] = "application/json"
            body = dict(request.body)
            if request.has_key:
                headers["idempotency-key"] = body.pop("command_id")
            content = json.dumps(body).encode()
        try:
            async with self._http.stream(
                request.method, self.url + request.path, params=request.query, content=content, headers=headers
            ) as response:
                body_bytes = await _read_body(response)
                if response.status_code >= 300:
                    raise _to_error(response, body_bytes)
                return _to_object(body_bytes)
        except httpx.TransportError as error:
            raise _connection_failed(self.url, error) from error

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        """Reads a stream of events over one connection, which ends with the session or with an error."""
        request.prepare()
        headers = self._headers | {"accept": "text/event-stream"}
        try:
            async with self._http.stream(
                request.method, self.url + request.path, params=request.query, headers=headers
            ) as response:
                if response.status_code >= 300:
                    raise _to_error(response, await _read_body(response))
                async for event in read_events(response):
                    yield event
        except httpx.TransportError as error:
            raise _connection_failed(self.url, error) from error


def _connection_failed(url: str, error: httpx.TransportError) -> ConnectionFailed:
    detail = str(error) or type(error).__name__
    return ConnectionFailed(f"no response of {url}: {detail}; check the address and that an edge runs", code="unreachable")


async def _read_body(response: httpx.Response) -> bytes:
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > RESPONSE_BYTES_MAX:
            raise AiloopError(f"the response has more than {RESPONSE_BYTES_MAX} bytes", code="too_large")
    return bytes(body)


def _to_object(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except ValueError as error:
        raise AiloopError(f"the response is not JSON: {error}; is this address an edge of ailoop?") from error
    if not isinstance(fields, dict):
        raise AiloopError("the response is not a JSON object; is this address an edge of ailoop?")
    return fields


def _to_error(response: httpx.Response, body: bytes) -> AiloopError:
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    return from_problem(problem, response.status_code, _retry_after(response.headers.get_list("retry-after")))


def _retry_after(values: Iterable[str]) -> float | None:
    """Reads `Retry-After`: seconds, or a date, which proxies send."""
    for value in values:
        if value.strip().isdigit():
            return float(value)
        try:
            return max(email.utils.parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
        except (TypeError, ValueError):
            return None
    return None
