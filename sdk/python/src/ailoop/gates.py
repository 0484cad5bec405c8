"""Gates: places where a session waits for the decision of a person."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from .event import Event


@dataclass(frozen=True)
class Gate:
    """A gate that waits."""

    session_id: str
    gate: str
    #: `approval` of a call, `question`, or an object with `limit` or `error`.
    kind: Any
    arguments_sha256: str
    expires: str
    tool: str | None
    arguments: dict[str, Any]

    @property
    def is_question(self) -> bool:
        """Whether the model asks a question, so that a text is the answer."""
        return bool(self.kind == "question")

    @classmethod
    def of_event(cls, event: Event) -> "Gate":
        """Reads the event `gate.opened`."""
        data = event.data
        return cls(
            event.session_id, data["gate"], data["kind"], data["arguments_sha256"], data["expires"], data.get("tool"),
            data.get("arguments") or {},
        )


@dataclass(frozen=True)
class Decision:
    """The answer to a gate."""

    decision: Literal["approve", "deny", "answer"]
    #: Arguments in place of the model's, with `approve`.
    arguments: dict[str, Any] | None = None
    #: The answer to a question, with `answer`.
    content: str | None = None
    #: Reason of a denial, which the model reads.
    note: str | None = None


#: What a callback returns: `True` approves, `False` denies, a text answers a question, `None` leaves the gate open.
GateAnswer = Decision | bool | str | None
OnGate = Callable[[Gate], GateAnswer | Awaitable[GateAnswer]]


def to_decision(answer: GateAnswer) -> Decision | None:
    """The decision that a callback means."""
    if answer is None or isinstance(answer, Decision):
        return answer
    if isinstance(answer, bool):
        return Decision("approve" if answer else "deny")
    return Decision("answer", content=answer)
