import assert from "node:assert/strict";
import { test } from "node:test";
import { pairSteps } from "../../src/core/compare.ts";
import { type CallRow, compareAttempts, type DecisionRow, type ReplyRow, SessionView } from "../../src/core/fold.ts";
import type { Envelope } from "../../src/core/types.ts";

/** Notifications of a session, with the numbers that the edge gives. */
class Story {
  seq = 0;
  readonly events: [string, Envelope][] = [];

  event(topic: string, data: Record<string, unknown>, slot = 0): this {
    this.seq += 1;
    this.events.push([
      topic,
      { id: `a-b-${slot}-${this.seq}`, session_id: "a-b", seq: this.seq, time: "2026-01-01T00:00:00.000Z", data },
    ]);
    return this;
  }

  chunk(attempt: string, index: number, delta: string, id = "x"): this {
    this.events.push([
      "message.ai_chunk_received",
      { id, session_id: "a-b", time: "", data: { turn: 1, step: 1, attempt, index, channel: "text", delta } },
    ]);
    return this;
  }

  fold(view = new SessionView()): SessionView {
    for (const [topic, envelope] of this.events) view.fold(topic, envelope);
    return view;
  }
}

const SPENT = { usage: { input: 10, output: 5, cached: 0, reasoning: 0 }, cost_usd: 0.5 };

test("fork_knows_the_session_and_the_slot_that_it_begins_with", () => {
  const started = (resume_from?: unknown) => new Story().event("session_started", { agent: { id: "e" }, resume_from });
  assert.deepEqual(started({ session_id: "a", at: 3 }).fold().source, { session: "a", at: 3 });
  assert.deepEqual(started({ session_id: "a" }).fold().source, { session: "a", at: undefined });
  assert.equal(started().fold().source, null);
});

function begun(): Story {
  return new Story()
    .event("session_started", {
      agent: { id: "e", name: "Eamonn" },
      model: { id: "m" },
      interactive: true,
      prompt: "You are",
    })
    .event("message.user_processed", { message_id: "m1", content: "Hello", mode: "queue" });
}

function replied(story = begun()): Story {
  return story
    .event(
      "message.ai_full_received",
      { call: "m1-1", turn: 1, step: 1, text: "Let me look.", spent: SPENT, provider: "p", model: "m" },
      1,
    )
    .event(
      "tool_call.identified",
      { call: "c1-1-1", tool: "read", arguments: { path: "a" }, effect: "pure", approval: "never" },
      1,
    );
}

test("session_started_and_message_give_phase_and_row", () => {
  const view = begun().fold();
  assert.equal(view.phase, "running");
  assert.equal(view.agentName, "Eamonn");
  assert.deepEqual(
    view.rows.map((row) => row.kind),
    ["user"],
  );
});

test("event_delivered_twice_counts_once", () => {
  const story = replied();
  const view = story.fold();
  const rows = JSON.stringify(view.rows);
  const cost = view.spent.cost_usd;
  story.fold(view);
  assert.equal(JSON.stringify(view.rows), rows);
  assert.equal(view.spent.cost_usd, cost);
});

test("slot_is_read_from_the_id_of_the_event_also_where_the_session_has_dashes", () => {
  const view = replied().fold();
  assert.deepEqual(
    view.rows.map((row) => row.slot),
    [0, 1, 1],
  );
});

test("chunks_become_the_text_of_the_reply_and_the_full_reply_replaces_them", () => {
  const streaming = begun().chunk("1.1", 0, "Hel").chunk("1.1", 1, "lo");
  const view = streaming.fold();
  const reply = view.rows[1] as ReplyRow;
  assert.equal(reply.text, "Hello");
  assert.equal(reply.isStreaming, true);
  view.fold(...(replied().events[2] as [string, Envelope]));
  assert.equal(reply.text, "Let me look.");
  assert.equal(reply.isStreaming, false);
  assert.equal(view.rows.filter((row) => row.kind === "reply").length, 1);
});

test("greater_attempt_begins_the_reply_anew_and_a_late_chunk_of_an_older_one_is_dropped", () => {
  const view = begun().chunk("1.1", 0, "old").chunk("1.2", 0, "new").chunk("1.1", 1, " late").fold();
  assert.equal((view.rows[1] as ReplyRow).text, "new");
});

test("snapshot_after_a_reconnect_replaces_the_text_and_repeated_chunks_are_dropped", () => {
  const view = begun().chunk("1.1", 0, "one ").chunk("1.1", 1, "two ").fold();
  const more = new Story()
    .chunk("1.1", 3, "one two three four ", "a-b-view-1-1-1.1")
    .chunk("1.1", 3, "four ")
    .chunk("1.1", 4, "five");
  more.fold(view);
  assert.equal((view.rows[1] as ReplyRow).text, "one two three four five");
});

test("attempts_are_compared_as_numbers", () => {
  assert.ok(compareAttempts("1.10", "1.9") > 0);
  assert.ok(compareAttempts("2.1", "1.9") > 0);
  assert.equal(compareAttempts("1.1", "1.1"), 0);
});

test("result_ends_its_call_and_a_changed_row_has_a_new_revision", () => {
  const view = replied().fold();
  const call = view.calls.get("c1-1-1") as CallRow;
  const before = call.rev;
  view.fold("tool_call.result_processed", {
    id: "a-b-2-1",
    session_id: "a-b",
    seq: 5,
    time: "t",
    data: { call: "c1-1-1", tool: "read", outcome: "error", content: "no", duration_ms: 3 },
  });
  assert.equal(call.state, "error");
  assert.ok(call.rev > before);
  assert.equal(view.openCalls().length, 0);
});

test("gate_of_a_call_asks_until_it_is_closed_and_edited_arguments_replace_the_models", () => {
  const story = replied().event("gate.opened", {
    gate: "c1-1-1",
    kind: "approval",
    tool: "read",
    arguments: { path: "a" },
    arguments_sha256: "h",
    expires: "2026",
  });
  const view = story.fold();
  assert.equal(view.openGates().length, 1);
  assert.equal(view.calls.get("c1-1-1")?.state, "asked");
  view.fold("gate.closed", {
    id: "a-b-3-1",
    session_id: "a-b",
    seq: 6,
    data: { gate: "c1-1-1", decision: "approve", by: "me", arguments: { path: "b" } },
  });
  assert.equal(view.openGates().length, 0);
  const call = view.calls.get("c1-1-1") as CallRow;
  assert.deepEqual(
    [call.state, call.arguments, call.original, call.decidedBy],
    ["running", { path: "b" }, { path: "a" }, "me"],
  );
});

test("turn_gives_the_spent_that_counts", () => {
  const story = replied().event("turn.completed", {
    turn: 1,
    stop_reason: "completed",
    iterations: 1,
    spent: { ...SPENT, cost_usd: 0.75 },
  });
  const view = story.fold();
  assert.equal(view.spent.cost_usd, 0.75);
  assert.equal(view.phase, "idle");
});

test("progress_without_source_gets_it_from_the_trace", () => {
  const view = replied().fold();
  view.fold("continuation.progress", {
    session_id: "a-b",
    seq: 5,
    iteration: 1,
    max_iterations: 10,
    current_tools: ["read"],
    timestamp: "t",
    turn: 2,
    continues: false,
    source: "pattern:termination:done",
    reason: "said so",
    status: "UNKNOWN",
    confidence: 0.25,
    progress: {
      current_step: 1,
      total_steps: 2,
      completion_percentage: 50,
      steps_completed: ["x"],
      steps_remaining: ["y"],
    },
  });
  const row = view.rows.at(-1) as DecisionRow;
  assert.equal(view.decisions.get("2-1"), row);
  assert.deepEqual([row.slot, row.continues, row.source], [1, false, "pattern:termination:done"]);
  assert.deepEqual([row.reason, row.status, row.confidence, row.nudge], ["said so", "UNKNOWN", 0.25, undefined]);
  assert.deepEqual(view.plan?.left, ["y"]);
});

test("ten_thousand_calls_fold_in_less_than_a_second", () => {
  const story = replied();
  for (let n = 2; n <= 10_000; n++) {
    story.event("tool_call.identified", { call: `c1-1-${n}`, tool: "read", arguments: { n }, effect: "pure" });
    story.event("tool_call.result_processed", { call: `c1-1-${n}`, tool: "read", outcome: "ok", content: "x" });
  }
  const began = performance.now();
  const view = story.fold();
  assert.equal(view.calls.size, 10_000);
  assert.ok(performance.now() - began < 1000);
});

test("sessions_are_paired_by_step", () => {
  const left = replied().fold();
  const right = replied().event("message.ai_full_received", { call: "m1-2", turn: 1, step: 2, text: "More." }).fold();
  assert.deepEqual(
    pairSteps(left, right).map((pair) => [pair.key, pair.isSame]),
    [
      ["1.1", true],
      ["1.2", false],
    ],
  );
});

test("delegated_work_counts_for_the_session_and_not_for_its_own_part", () => {
  const child = { ...SPENT, cost_usd: 2 };
  const result = { call: "c1-1-1", outcome: "ok", content: "", used: { spent: child, tool_calls: 1 } };
  const story = replied().event("tool_call.result_processed", result, 2);
  const running = story.fold();
  assert.deepEqual([running.spent.cost_usd, running.own?.cost_usd], [2.5, 0.5]);
  const all = { ...SPENT, cost_usd: 3 };
  const own = { ...SPENT, cost_usd: 1 };
  story.event("turn.completed", { turn: 1, stop_reason: "completed", iterations: 1, spent: all, spent_own: own }, 3);
  const ended = story.fold();
  assert.deepEqual([ended.spent.cost_usd, ended.own?.cost_usd], [3, 1]);
  story.event("turn.completed", { turn: 2, stop_reason: "completed", iterations: 1, spent: all }, 4);
  assert.equal(story.fold().own, null, "an older version named no own part");
});

test("text_of_a_cancelled_reply_stays_in_its_turn_with_its_cost", () => {
  const nothing = { usage: { input: 0, output: 0, cached: 0, reasoning: 0 }, cost_usd: 0 };
  const story = begun()
    .event("turn.completed", { turn: 1, stop_reason: "stopped", iterations: 1, spent: nothing, spent_own: nothing }, 2)
    .event("message.user_processed", { message_id: "m2", content: "Again", mode: "queue" }, 3)
    .event("message.ai_cut_received", { call: "m1-1", turn: 1, step: 1, text: "The port is", spent: SPENT }, 4)
    .event("turn.completed", { turn: 2, stop_reason: "completed", iterations: 1, spent: SPENT, spent_own: SPENT }, 5);
  const view = story.fold();
  const reply = view.rows.find((row) => row.kind === "reply") as ReplyRow;
  assert.deepEqual([reply.turn, reply.text, reply.finish, reply.isStreaming], [1, "The port is", "cut_off", false]);
  const ends = view.rows.filter((row) => row.kind === "end").map((row) => row.kind === "end" && row.spent?.cost_usd);
  assert.deepEqual(ends, [0.5, 0.5], "its turn pays for it, and not the next one");
  assert.deepEqual([view.spent.cost_usd, view.own?.cost_usd], [1, 1]);
});
