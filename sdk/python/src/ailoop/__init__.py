"""Client of ailoop, which runs sessions of AI agents as services.

`AsyncClient` and `Client` start sessions and follow them. `ailoop.tool` serves tools for the agents of a fleet.
"""

from . import types
from .api import Api, AsyncApi
from .client import AsyncClient
from .client_tool import ClientTool, client_tool
from .errors import (
    AccessDenied,
    AiloopError,
    BadRequest,
    Conflict,
    ConnectionFailed,
    CursorLost,
    NotFound,
    Overloaded,
    TurnFailed,
    Unavailable,
)
from .event import Event
from .gates import Decision, Gate
from .session import AsyncSession
from .sync import Client, Session, Turn
from .turn import AsyncTurn, TurnResult

__all__ = [
    "AccessDenied",
    "AiloopError",
    "Api",
    "AsyncApi",
    "AsyncClient",
    "AsyncSession",
    "AsyncTurn",
    "BadRequest",
    "Client",
    "ClientTool",
    "Conflict",
    "ConnectionFailed",
    "CursorLost",
    "Decision",
    "Event",
    "Gate",
    "NotFound",
    "Overloaded",
    "Session",
    "Turn",
    "TurnFailed",
    "TurnResult",
    "Unavailable",
    "client_tool",
    "types",
]
