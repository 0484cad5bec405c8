"""Text of replies and turns of messages, without a fleet."""

import unittest
from typing import Any

from ailoop import Event
from ailoop.reply_text import ReplyText
from ailoop.turn_tracker import TurnTracker


def chunk(attempt: str, index: int, delta: str, channel: str = "text", snapshot: bool = False) -> Event:
    data = {"turn": 1, "step": 1, "attempt": attempt, "index": index, "channel": channel, "delta": delta, "final": False}
    return Event("message.ai_chunk_received", "s", None, "", data, id="s-view-1-1-1.1" if snapshot else "s-m1")


class ReplyTexts(unittest.TestCase):
    def check(self, chunks: list[Event], whole: str, wanted: list[str]) -> None:
        reply = ReplyText()
        self.assertEqual([*(reply.push(one) for one in chunks), reply.finish(whole)], wanted)

    def test_chunks_are_yielded_once(self) -> None:
        self.check([chunk("1.1", 0, "Hel"), chunk("1.1", 1, "lo")], "Hello there", ["Hel", "lo", " there"])
        repeated = [chunk("1.1", 0, "Hel"), chunk("1.1", 0, "Hel"), chunk("1.1", 1, "lo")]
        self.check(repeated, "Hello", ["Hel", "", "lo", ""])

    def test_snapshot_after_new_connection_repeats_nothing(self) -> None:
        after = [chunk("1.1", 0, "The "), chunk("1.1", 3, "The answer is", snapshot=True), chunk("1.1", 4, " 4")]
        self.check(after, "The answer is 4", ["The ", "answer is", " 4", ""])

    def test_lost_chunk_comes_with_the_whole_reply(self) -> None:
        self.check([chunk("1.1", 0, "The "), chunk("1.1", 2, "is")], "The answer is", ["The ", "", "answer is"])

    def test_later_attempt_repeats_nothing(self) -> None:
        chunks = [chunk("1.1", 0, "The answer"), chunk("1.2", 0, "The "), chunk("1.2", 1, "answer is"), chunk("1.1", 1, "!")]
        self.check(chunks, "The answer is 42", ["The answer", "", " is", "", " 42"])

    def test_reply_that_differs_is_a_paragraph(self) -> None:
        self.check([chunk("1.1", 0, "I think"), chunk("2.1", 0, "No")], "No.", ["I think", "", "\n\nNo."])
        self.check([chunk("1.1", 0, "Done.\n\n")], "Done.", ["Done.\n\n", ""])

    def test_reasoning_is_no_text(self) -> None:
        self.check([chunk("1.1", 0, "Hm", "reasoning"), chunk("1.1", 1, "Hi")], "Hi", ["", "Hi", ""])


class TurnTrackers(unittest.TestCase):
    def check(self, events: str, wanted: list[int]) -> None:
        """`q`, `s` are messages, and `.` is the end of a turn."""
        tracker = TurnTracker()
        modes = {"q": "queue", "s": "steer"}
        pushed = []
        for seq, letter in enumerate(events, 1):
            data: dict[str, Any] = {"message_id": str(seq), "mode": modes.get(letter)}
            topic = "turn.completed" if letter == "." else "message.user_processed"
            pushed.append(tracker.push(Event(topic, "s", seq, "", data)))
        self.assertEqual(pushed, wanted)
        self.assertEqual(tracker.seq, len(events))

    def test_message_of_idle_session_begins_the_next_turn(self) -> None:
        self.check("q.s.q.", [1, 0, 1, 0, 1, 0])

    def test_steering_message_is_read_in_the_turn_that_runs(self) -> None:
        self.check("qs.q.", [1, 1, 0, 1, 0])

    def test_queued_messages_have_turns_of_their_own(self) -> None:
        self.check("qqq..q..q", [1, 2, 3, 0, 0, 2, 0, 0, 1])


if __name__ == "__main__":
    unittest.main()
