// Text of replies and turns of messages, without a fleet.
import assert from "node:assert/strict";
import test from "node:test";

import { ReplyText } from "../dist/reply-text.js";
import { TurnTracker } from "../dist/turn-tracker.js";

function chunk(attempt, index, delta, { channel = "text", isSnapshot = false } = {}) {
  return { topic: "message.ai_chunk_received", isSnapshot, data: { turn: 1, step: 1, attempt, index, channel, delta } };
}

function check(name, chunks, whole, wanted) {
  test(name, () => {
    const reply = new ReplyText();
    assert.deepEqual([...chunks.map((one) => reply.push(one)), reply.finish(whole)], wanted);
  });
}

check("chunks are yielded once", [chunk("1.1", 0, "Hel"), chunk("1.1", 0, "Hel"), chunk("1.1", 1, "lo")], "Hello there",
  ["Hel", "", "lo", " there"]);
check("snapshot after new connection repeats nothing",
  [chunk("1.1", 0, "The "), chunk("1.1", 3, "The answer is", { isSnapshot: true }), chunk("1.1", 4, " 4")],
  "The answer is 4", ["The ", "answer is", " 4", ""]);
check("lost chunk comes with the whole reply", [chunk("1.1", 0, "The "), chunk("1.1", 2, "is")], "The answer is",
  ["The ", "", "answer is"]);
check("later attempt repeats nothing",
  [chunk("1.1", 0, "The answer"), chunk("1.2", 0, "The "), chunk("1.2", 1, "answer is"), chunk("1.1", 1, "!")],
  "The answer is 42", ["The answer", "", " is", "", " 42"]);
check("reply that differs is a paragraph", [chunk("1.1", 0, "I think"), chunk("2.1", 0, "No")], "No.",
  ["I think", "", "\n\nNo."]);
check("reasoning is no text", [chunk("1.1", 0, "Hm", { channel: "reasoning" }), chunk("1.1", 1, "Hi")], "Hi", ["", "Hi", ""]);

test("turn of a message follows from the messages before it", () => {
  const modes = { q: "queue", s: "steer" };
  for (const [events, wanted] of [
    ["q.s.q.", [1, 0, 1, 0, 1, 0]],
    ["qs.q.", [1, 1, 0, 1, 0]],
    ["qqq..q..q", [1, 2, 3, 0, 0, 2, 0, 0, 1]],
  ]) {
    const tracker = new TurnTracker();
    const pushed = [...events].map((letter, index) => {
      const topic = letter === "." ? "turn.completed" : "message.user_processed";
      return tracker.push({ topic, seq: index + 1, data: { mode: modes[letter] } });
    });
    assert.deepEqual(pushed, wanted, events);
  }
});
