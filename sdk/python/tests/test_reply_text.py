"""Text of replies and turns of messages, without a fleet."""

import unittest

from ailoop import AiloopError, Event
from ailoop.reply_text import ReplyText
from ailoop.turn import TurnStart


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


def story(events: str) -> list[Event]:
    """Events by one word each: `q:a` and `s:a` are a message of the id `a`, `+1:a` begins turn 1, and `.1` ends it."""
    found = []
    for seq, word in enumerate(events.split(), 1):
        head, _, message = word.partition(":")
        if head[0] == ".":
            topic, data = "turn.completed", {"turn": int(head[1:])}
        elif head[0] == "+":
            topic, data = "turn.started", {"turn": int(head[1:]), "messages": message.split(",")}
        else:
            topic, data = "message.user_processed", {"message_id": message, "mode": {"q": "queue", "s": "steer"}[head]}
        found.append(Event(topic, "s", seq, "", data))
    return found


class TurnsOfMessages(unittest.TestCase):
    def check(self, events: str, message: str, turn: int | None) -> None:
        start = TurnStart(0, message_id=message)
        for event in story(events):
            start.push(event)
        self.assertEqual((start.turn, start.seq), (turn, len(events.split())), events)

    def test_turn_of_a_message_is_the_one_that_begins_with_it(self) -> None:
        log = "q:a +1:a q:b q:c .1 +2:b .2 +3:c .3"
        for message, turn in [("a", 1), ("b", 2), ("c", 3), ("d", None)]:
            self.check(log, message, turn)

    def test_steering_message_is_read_in_the_turn_that_runs(self) -> None:
        self.check("q:a +1:a s:b .1", "b", 1)
        self.check("q:a +1:a .1 s:b +2:b", "b", 2)

    def test_fleet_that_does_not_say_when_a_turn_begins_is_an_error(self) -> None:
        with self.assertRaisesRegex(AiloopError, "upgrade the fleet"):
            self.check("q:a .1 .2", "a", None)
        self.check(".1 .2 q:a .3 +4:a .4", "a", 4)


if __name__ == "__main__":
    unittest.main()
