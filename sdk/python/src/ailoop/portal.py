"""Runs the asynchronous client for programs without an event loop, in a thread of its own."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class Portal:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ailoop", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine, and returns its result. An interrupt of the caller cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Yields the items one by one. Nothing is read ahead."""
        end = object()

        async def following() -> Any:
            return await anext(items, end)

        async def close() -> None:
            await items.aclose()  # type: ignore[attr-defined]

        try:
            while (item := self.call(following())) is not end:
                yield item
        finally:
            if hasattr(items, "aclose") and self._loop.is_running():
                self.call(close())

    def close(self) -> None:
        """Ends the loop and its thread."""
        if self._loop.is_running():
            self.call(self._loop.shutdown_asyncgens())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5)
            self._loop.close()
