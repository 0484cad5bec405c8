// Text of replies and turns of messages, without a fleet.
import assert from "node:assert/strict";
import test from "node:test";

import { ReplyText } from "../dist/reply-text.js";
import { TurnStart } from "../dist/turn.js";

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

/** Events by one word each: `q:a` and `s:a` are a message of the id `a`, `+1:a` begins turn 1, and `.1` ends it. */
function story(events) {
  return events.split(" ").map((word, index) => {
    const [head, message] = word.split(":");
    const [seq, turn] = [index + 1, Number(head.slice(1))];
    if (head[0] === ".") return { topic: "turn.completed", seq, data: { turn } };
    if (head[0] === "+") return { topic: "turn.started", seq, data: { turn, messages: message.split(",") } };
    const mode = { q: "queue", s: "steer" }[head];
    return { topic: "message.user_processed", seq, data: { message_id: message, mode } };
  });
}

function turnOf(message, events) {
  const start = new TurnStart(0, message);
  for (const event of story(events)) start.push(event);
  return start.turn;
}

test("turn of a message is the one that begins with it, or the one that it steers", () => {
  const log = "q:a +1:a q:b q:c .1 +2:b .2 +3:c .3";
  assert.deepEqual(["a", "b", "c", "d"].map((message) => turnOf(message, log)), [1, 2, 3, undefined]);
  assert.equal(turnOf("b", "q:a +1:a s:b .1"), 1);
  assert.equal(turnOf("b", "q:a +1:a .1 s:b +2:b"), 2);
  assert.equal(turnOf("a", ".1 .2 q:a .3 +4:a .4"), 4);
});

test("fleet that does not say when a turn begins is an error", () => {
  assert.throws(() => turnOf("a", "q:a .1 .2"), /upgrade the fleet/);
});
