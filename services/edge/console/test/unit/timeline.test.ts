import assert from "node:assert/strict";
import { test } from "node:test";
import { makeAxis, readTrace } from "../../src/core/timeline.ts";
import type { TraceSpan } from "../../src/core/types.ts";

const NOTHING_LIVE = { workedMs: () => undefined, open: [] };

function span(
  name: string,
  operation: string | undefined,
  start_ms: number,
  end_ms: number,
  more: Record<string, unknown> = {},
): TraceSpan {
  return {
    id: `${name}${start_ms}`,
    parent: "root",
    name,
    start_ms,
    end_ms,
    is_open: false,
    attributes: { ...(operation && { "gen_ai.operation.name": operation }), ...more },
  };
}

function trace(spans: TraceSpan[], has_ended = true) {
  const root: TraceSpan = {
    id: "root",
    name: "invoke_agent e",
    start_ms: 0,
    end_ms: Math.max(...spans.map((other) => other.end_ms)),
    is_open: false,
    attributes: {},
  };
  return [{ turn: 1, trace_id: "t", has_ended, is_sampled: false, spans: [root, ...spans] }];
}

test("idle_hour_is_squeezed_and_work_keeps_its_proportions", () => {
  const hour = 3_600_000;
  const spans = [span("chat m", "chat", 0, 10_000), span("execute_tool t", "execute_tool", hour, hour + 10_000)];
  const turns = readTrace(trace(spans), 0, NOTHING_LIVE);
  const axis = makeAxis(turns);
  assert.equal(axis.gaps.length, 1);
  const [first, second] = [axis.place(10_000), axis.place(hour)];
  assert.ok(first > 0.45 && first < 0.5 && second - first < 0.05, `${first} ${second}`);
  assert.equal(axis.place(hour + 10_000), 1);
  assert.ok(axis.place(5000) > 0.2 && axis.place(5000) < 0.25);
});

test("gate_over_an_idle_time_does_not_stretch_the_axis", () => {
  const turns = readTrace(
    trace([
      span("chat m", "chat", 0, 1000),
      span("gate approval", undefined, 1000, 900_000),
      span("execute_tool t", "execute_tool", 900_000, 901_000),
    ]),
    0,
    NOTHING_LIVE,
  );
  assert.deepEqual(
    turns[0]?.bars.map((bar) => bar.kind),
    ["model", "gate", "tool"],
  );
  assert.ok(makeAxis(turns).place(900_000) < 0.55);
});

test("open_call_is_drawn_until_now_in_place_of_what_the_trace_says", () => {
  const live = {
    workedMs: () => undefined,
    open: [{ call: "c1-1-1", kind: "gate" as const, label: "write", start: 1000 }],
  };
  const turns = readTrace(
    trace(
      [
        span("chat m", "chat", 0, 1000, { "ailoop.latency_ms": 900 }),
        span("gate approval", undefined, 1000, 1000, { "ailoop.call": "c1-1-1" }),
      ],
      false,
    ),
    5000,
    live,
  );
  assert.deepEqual(
    turns[0]?.bars.map((bar) => [bar.label, bar.start, bar.end, bar.isOpen]),
    [
      ["model", 0, 1000, false],
      ["write", 1000, 5000, true],
    ],
  );
});

test("open_model_call_is_drawn_until_now_and_its_failed_attempt_stays", () => {
  const failed = { ...span("chat m", "chat", 0, 500, { "ailoop.call": "m1-1" }), error: "overloaded" };
  const open = { ...span("chat m", "chat", 600, 600, { "ailoop.call": "m1-1", "ailoop.attempt": 2 }), is_open: true };
  const [turn] = readTrace(trace([failed, open], false), 3000, NOTHING_LIVE);
  assert.deepEqual(
    turn?.bars.map((bar) => [bar.end, bar.isOpen]),
    [
      [500, false],
      [3000, true],
    ],
  );
});

test("waiting_is_what_a_worker_did_not_work", () => {
  const turns = readTrace(
    trace([span("chat m", "chat", 0, 1000, { "ailoop.latency_ms": 300, "ailoop.step": 2 })]),
    0,
    NOTHING_LIVE,
  );
  assert.deepEqual(
    turns[0]?.bars.map((bar) => [bar.label, bar.workedMs]),
    [["step 2", 300]],
  );
});

test("span_that_the_edge_calls_open_is_open_and_one_that_it_calls_ended_is_not", () => {
  const open = { ...span("execute_tool t", "execute_tool", 0, 10), is_open: true };
  const ended = { ...span("execute_tool u", "execute_tool", 0, 10), is_open: false };
  const [turn] = readTrace(trace([open, ended], false), 3000, NOTHING_LIVE);
  assert.deepEqual(
    turn?.bars.map((bar) => [bar.label, bar.isOpen, bar.end]),
    [
      ["t", true, 3000],
      ["u", false, 10],
    ],
  );
});

test("axis_without_bars_has_places", () => {
  const turns = readTrace(trace([span("x", undefined, 0, 0)]), 0, NOTHING_LIVE);
  assert.equal(Number.isFinite(makeAxis(turns).place(0)), true);
});
