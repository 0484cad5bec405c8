"""Finds the turn of a message in the events of a session."""

import copy

from .event import Event


class TurnTracker:
    """Counts turns and messages, so that the end of the right turn is the end of a message.

    No event says which messages a turn has read, so this follows the rules: a message begins a turn if none runs, a
    queued one begins a turn of its own after those that wait, and any other is read in the turn that runs.
    """

    def __init__(self) -> None:
        #: The last `seq` that was taken.
        self.seq = 0
        self.is_running = False
        self._queued = 0

    def copy(self) -> "TurnTracker":
        """A tracker that goes on from the same place."""
        return copy.copy(self)

    def push(self, event: Event) -> int:
        """Takes the next event of the log. For a message, returns how many turns end until its own has ended."""
        self.seq = event.seq or self.seq
        if event.topic == "turn.completed":
            # The next queued message begins a turn at once.
            self.is_running = self._queued > 0
            self._queued = max(self._queued - 1, 0)
            return 0
        if event.topic != "message.user_processed":
            return 0
        if not self.is_running:
            self.is_running = True
            return 1
        if event.data.get("mode") != "queue":
            return 1
        self._queued += 1
        return 1 + self._queued
