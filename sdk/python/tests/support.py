"""What the tests share: the fleet of the environment, and connections that break."""

import asyncio
import os
import unittest
import urllib.request

import httpx

from ailoop import AsyncClient, Client


def kill_edge() -> None:
    """Kills the edge, and returns when it listens again."""
    with urllib.request.urlopen(f"{os.environ['AILOOP_TEST_CONTROL']}/kill", data=b"", timeout=60):
        pass


def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


class LostResponses(httpx.AsyncBaseTransport):
    """Performs requests, and loses the responses to the first POSTs."""

    def __init__(self, count: int) -> None:
        self.left, self.paths = count, list[str]()
        self._inner = httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        if request.method == "POST":
            self.paths.append(request.url.path)
            if self.left:
                self.left -= 1
                await response.aread()
                raise httpx.ReadError("the connection was reset", request=request)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class FleetCase(unittest.IsolatedAsyncioTestCase):
    """A test with a client."""

    async def asyncSetUp(self) -> None:
        # A client reads the certificates of the machine, which takes a tenth of a second.
        asyncio.get_running_loop().slow_callback_duration = 1.0
        self.client = AsyncClient()
        self.addAsyncCleanup(self.client.close)

    def sync_client(self) -> Client:
        client = Client()
        self.addCleanup(client.close)
        return client
