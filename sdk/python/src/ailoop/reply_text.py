"""The text of one reply, for readers that cannot take text back."""

from .event import Event


class ReplyText:
    """Turns the chunks of a reply into text that is yielded once. A reply may be streamed by several attempts."""

    def __init__(self) -> None:
        self._attempt = (0, 0)
        self._index = -1
        self._streamed = ""
        #: Whether chunks were lost. The rest then comes with the whole reply.
        self._has_gap = False
        self._given = ""

    @property
    def is_begun(self) -> bool:
        """Whether some text was yielded."""
        return bool(self._given)

    def push(self, event: Event) -> str:
        """Takes a chunk, and returns the text that is new. A snapshot has all the text so far."""
        data = event.data
        attempt = _parse_attempt(data["attempt"])
        if attempt < self._attempt:
            return ""
        if attempt > self._attempt:
            self._attempt, self._index, self._streamed, self._has_gap = attempt, -1, "", False
        if data["index"] <= self._index:
            return ""
        if event.is_snapshot:
            self._streamed, self._has_gap = data["delta"], False
        elif data["index"] != self._index + 1:
            self._has_gap = True
        else:
            self._streamed += data["delta"] if data["channel"] == "text" else ""
        self._index = data["index"]
        if self._has_gap or not self._streamed.startswith(self._given):
            return ""
        new = self._streamed[len(self._given) :]
        self._given = self._streamed
        return new

    def finish(self, whole: str) -> str:
        """Takes the whole reply, and returns what was not yielded. A reply that differs is a paragraph of its own."""
        if whole.startswith(self._given):
            return whole[len(self._given) :]
        # A signal at the end of a reply may be cut off after some of the white space before it.
        return "" if whole.rstrip() == self._given.rstrip() else f"\n\n{whole}"


def _parse_attempt(text: str) -> tuple[int, int]:
    orchestrator, _, delivery = text.partition(".")
    return int(orchestrator), int(delivery or 0)
