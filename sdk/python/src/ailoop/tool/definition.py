"""What a tool is: a function with the description that agents read."""

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from .. import schema
from .call import Call

F = TypeVar("F", bound=Callable[..., Any])
Effect = Literal["pure", "idempotent", "at_most_once", "reconcilable"]
_MARK = "__ailoop_tool__"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Tool:
    """A function that the fleet may call."""

    name: str
    description: str
    parameters: dict[str, Any]
    function: Callable[..., Any]
    effect: Effect = "at_most_once"
    approval: Literal["never", "always"] = "never"
    #: Seconds without a reply or progress after which a call is given up.
    timeout: int = 60
    max_output: int | None = None
    instructions: str | None = None
    version: str = "1.0.0"
    #: For `reconcilable`: takes what the function takes, and returns its result, or `None` if the call took no effect.
    probe: Callable[..., Any] | None = None

    def metadata(self) -> dict[str, str]:
        """What the endpoint says about the tool."""
        found: dict[str, Any] = {
            "ailoop.tool": self.name,
            "ailoop.description": self.description,
            "ailoop.parameters": json.dumps(self.parameters),
            "ailoop.effect": self.effect,
            "ailoop.approval": self.approval,
            "ailoop.timeout": self.timeout,
            "ailoop.max_output": self.max_output,
            "ailoop.instructions": self.instructions,
        }
        return {key: str(value) for key, value in found.items() if value is not None}

    async def run(self, call: Call) -> Any:
        """Calls the function with the arguments of a call."""
        return await _invoke(self.function, call)

    async def run_probe(self, call: Call) -> Any:
        """Asks for the outcome of a lost call."""
        assert self.probe is not None
        return await _invoke(self.probe, call)


async def _invoke(function: Callable[..., Any], call: Call) -> Any:
    values = schema.bind(function, call.arguments, skip=Call)
    values |= dict.fromkeys(schema.names_with(function, Call), call)
    if inspect.iscoroutinefunction(function):
        return await function(**values)
    return await call.run_in_thread(lambda: function(**values))


def tool(
    *,
    effect: Effect,
    name: str | None = None,
    description: str | None = None,
    approval: Literal["never", "always"] = "never",
    timeout: int = 60,
    max_output: int | None = None,
    instructions: str | None = None,
    version: str = "1.0.0",
    probe: Callable[..., Any] | None = None,
) -> Callable[[F], F]:
    """Makes a tool of a function. The schema comes from the type hints, and the description from the docstring.

    A parameter with the type `Call` gets the call. A plain function runs in a thread, an `async` one in the event loop.
    Only the author knows the effect class, so it has no default here.
    """

    def mark(function: F) -> F:
        own_name = name or function.__name__
        if not _NAME.fullmatch(own_name):
            raise ValueError(f"a tool cannot be named {own_name!r}: use up to 64 letters, digits, `_` and `-`")
        if (effect == "reconcilable") != (probe is not None):
            raise ValueError(f"{own_name}: `probe` is for the effect class `reconcilable`, which needs it")
        if not 1 <= timeout <= 3600:
            raise ValueError(f"{own_name}: the timeout is {timeout} s, it must be 1 to 3600")
        parameters = schema.of_function(function, skip=Call)
        about = description or inspect.getdoc(function) or ""
        made = Tool(
            own_name, about, parameters, function, effect, approval, timeout, max_output, instructions, version, probe
        )
        setattr(function, _MARK, made)
        return function

    return mark


def to_tool(function: Callable[..., Any] | Tool) -> Tool:
    """The tool of a decorated function."""
    if isinstance(function, Tool):
        return function
    marked = getattr(function, _MARK, None)
    if not isinstance(marked, Tool):
        raise TypeError(f"{function!r} is no tool: decorate it with @tool(effect=…)")
    return marked
