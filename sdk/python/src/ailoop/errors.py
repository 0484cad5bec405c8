"""Errors of the API. Each has the stable code of the server, and programs decide by it."""

from typing import Any


class AiloopError(Exception):
    """A request that failed, or a turn that could not go on."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "internal",
        status: int | None = None,
        retry_after: float | None = None,
        seq: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        #: Stable code, such as `unknown_agent`. docs/reference/errors.md lists them.
        self.code = code
        #: Status of HTTP; `None` if no response came.
        self.status = status
        #: Seconds after which a retry may succeed.
        self.retry_after = retry_after
        #: The last `seq` of the session, for errors about a cursor.
        self.seq = seq

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"


class ConnectionFailed(AiloopError):
    """No response came: the server is not reached, or the connection broke. The code is `unreachable`."""


class BadRequest(AiloopError):
    """The request is wrong, and a retry fails again."""


class AccessDenied(AiloopError):
    """The credential is missing or wrong (`unauthorized`), or does not grant this (`forbidden`)."""


class NotFound(AiloopError):
    """A session, agent, model, call or mail does not exist."""


class Conflict(AiloopError):
    """The request does not fit the state: `session_ended`, `not_now`, `gate_closed` and the like."""


class CursorLost(AiloopError):
    """Events at this place do not exist (any more): `resync` or `history_lost`. `seq` says where to begin."""


class Overloaded(AiloopError):
    """A limit is reached. The same request may succeed after `retry_after` seconds."""


class Unavailable(AiloopError):
    """A part of the fleet does not answer. The same request may succeed later."""


class TurnFailed(AiloopError):
    """A turn ended with the stop reason `error`. The code is that of the failure, such as `model_auth`."""


_BY_STATUS: dict[int, type[AiloopError]] = {
    400: BadRequest,
    401: AccessDenied,
    403: AccessDenied,
    404: NotFound,
    405: BadRequest,
    409: Conflict,
    410: CursorLost,
    413: BadRequest,
    429: Overloaded,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def from_problem(problem: Any, status: int, retry_after: float | None = None) -> AiloopError:
    """Makes the error of problem details, or of the response of a proxy that has none."""
    fields = problem if isinstance(problem, dict) else {}
    status = status if status else int(fields.get("status", 500))
    after_ms = fields.get("retry_after_ms")
    kind = _BY_STATUS.get(status, AiloopError)
    return kind(
        str(fields.get("detail") or f"the server answered with the status {status}"),
        code=str(fields.get("code") or ("unavailable" if status in (502, 503, 504) else "internal")),
        status=status,
        retry_after=after_ms / 1000 if isinstance(after_ms, (int, float)) else retry_after,
        seq=fields.get("seq"),
    )
