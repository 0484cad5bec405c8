"""Tools that a client brings to a session, and performs itself."""

import asyncio
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, overload

from . import schema

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)
#: Outcome and content.
Answer = tuple[Literal["ok", "error"], str]
Effect = Literal["pure", "idempotent", "at_most_once"]
_MARK = "__ailoop_client_tool__"
#: Bytes of a result. The server refuses more than 1 MiB.
CONTENT_BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class ClientTool:
    """A function that an agent may call."""

    name: str
    description: str
    parameters: dict[str, Any]
    function: Function
    effect: Effect = "at_most_once"
    timeout: float | None = None
    max_output: int | None = None

    def describe(self) -> dict[str, Any]:
        """What a session gets of it, as an entry of `client_tools`."""
        entry: dict[str, Any] = {"name": self.name, "description": self.description, "parameters": self.parameters}
        entry["effect"] = self.effect
        if self.timeout is not None:
            entry["timeout_ms"] = int(self.timeout * 1000)
        if self.max_output is not None:
            entry["max_output"] = self.max_output
        return entry

    async def perform(self, arguments: Any) -> Answer:
        """Runs the function, and returns outcome and content of the answer. A plain function runs in a thread."""
        try:
            values = schema.bind(self.function, arguments)
        except schema.InvalidArguments as error:
            return "error", f"invalid arguments: {error}"
        try:
            if inspect.iscoroutinefunction(self.function):
                result = await self.function(**values)
            else:
                result = await asyncio.to_thread(self.function, **values)
            content = to_content(result)
        except Exception as error:  # the model reads the reason
            return "error", f"{type(error).__name__}: {error}"[:CONTENT_BYTES_MAX // 4]
        if len(content.encode()) > CONTENT_BYTES_MAX:
            return "error", f"the tool ran; its result has more than {CONTENT_BYTES_MAX} bytes, which is too long to be read"
        return "ok", content


def to_content(result: Any) -> str:
    """What the model reads of a result: a text as it is, anything else as JSON."""
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


@overload
def client_tool(function: F) -> F: ...


@overload
def client_tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "at_most_once",
    timeout: float | None = None,
    max_output: int | None = None,
) -> Callable[[F], F]: ...


def client_tool(function: F | None = None, **settings: Any) -> Any:
    """Describes a function as a tool of the client.

    The schema comes from the type hints, and the description from the docstring. A function without this decorator may
    be a tool too, with the defaults: it is performed at most once, and has an hour for its answer.
    """

    def mark(function: F) -> F:
        setattr(function, _MARK, _describe(function, **settings))
        return function

    return mark if function is None else mark(function)


def to_client_tool(tool: Function | ClientTool) -> ClientTool:
    """The tool of a function, with or without the decorator."""
    if isinstance(tool, ClientTool):
        return tool
    marked = getattr(tool, _MARK, None)
    return marked if isinstance(marked, ClientTool) else _describe(tool)


def _describe(function: Function, **settings: Any) -> ClientTool:
    name = settings.pop("name", None) or function.__name__
    description = settings.pop("description", None) or inspect.getdoc(function) or ""
    return ClientTool(name, description, schema.of_function(function), function, **settings)
