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


#: What the callback of approvals returns: `True` approves, `False` denies, `None` leaves the gate open.
ApprovalAnswer = Decision | bool | None
OnApproval = Callable[[Gate], ApprovalAnswer | Awaitable[ApprovalAnswer]]
#: What the callback of questions returns: a text is the answer, `None` leaves the gate open.
QuestionAnswer = Decision | str | None
OnQuestion = Callable[[Gate], QuestionAnswer | Awaitable[QuestionAnswer]]


@dataclass(frozen=True)
class GateCallbacks:
    """The callbacks of a program, each for its kind of gate."""

    on_approval: OnApproval | None = None
    on_question: OnQuestion | None = None

    def of(self, gate: Gate) -> OnApproval | OnQuestion | None:
        """The callback that answers a gate."""
        return self.on_question if gate.is_question else self.on_approval


def to_decision(gate: Gate, answer: ApprovalAnswer | QuestionAnswer) -> Decision | None:
    """The decision that a callback means."""
    if answer is None or isinstance(answer, Decision):
        return answer
    if gate.is_question and isinstance(answer, str):
        return Decision("answer", content=answer)
    if not gate.is_question and isinstance(answer, bool):
        return Decision("approve" if answer else "deny")
    callback, wanted = ("on_question", "a text") if gate.is_question else ("on_approval", "True or False")
    raise TypeError(f"{callback} returned {answer!r} for the gate {gate.gate}: return {wanted}, a Decision, or None")
