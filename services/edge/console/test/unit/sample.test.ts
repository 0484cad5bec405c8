import assert from "node:assert/strict";
import { test } from "node:test";
import { byName, callsOf, percentile, percentilesOf } from "../../src/core/sample.ts";
import type { TraceSpan, TurnTrace } from "../../src/core/types.ts";
import { example } from "../../src/views/tool_trial.tsx";

function span(operation: string, start_ms: number, end_ms: number, more: Partial<TraceSpan> = {}): TraceSpan {
  const { attributes, ...rest } = more;
  return {
    id: `${start_ms}`,
    parent: "root",
    name: operation,
    start_ms,
    end_ms,
    is_open: false,
    attributes: { "gen_ai.operation.name": operation, ...attributes },
    ...rest,
  };
}

function turn(spans: TraceSpan[]): TurnTrace[] {
  return [{ turn: 1, trace_id: "t", has_ended: true, is_sampled: false, spans }];
}

const TOOL = { "gen_ai.tool.name": "look" };

test("calls_that_ended_are_sampled_with_their_wait_and_their_failure", () => {
  const calls = callsOf(
    turn([
      span("invoke_agent", 0, 900),
      span("chat", 0, 100, { attributes: { "gen_ai.request.model": "m", "ailoop.latency_ms": 60 } }),
      span("execute_tool", 100, 150, { attributes: { ...TOOL, "ailoop.outcome": "ok", "ailoop.latency_ms": 50 } }),
      span("execute_tool", 150, 350, { attributes: { ...TOOL, "ailoop.outcome": "error" }, error: "tool_error" }),
    ]),
  );
  assert.deepEqual(calls, [
    { kind: "model", name: "m", totalMs: 100, workedMs: 60, isFailed: false },
    { kind: "tool", name: "look", totalMs: 50, workedMs: 50, isFailed: false },
    { kind: "tool", name: "look", totalMs: 200, workedMs: 200, isFailed: true },
  ]);
  assert.deepEqual(
    [...byName(calls, "tool")].map(([name, list]) => [name, list.length]),
    [["look", 2]],
  );
});

test("open_denied_and_cancelled_calls_are_left_out", () => {
  const spans = [
    span("execute_tool", 0, 9, { is_open: true, attributes: TOOL }),
    span("execute_tool", 0, 60_000, { attributes: { ...TOOL, "ailoop.outcome": "denied" } }),
    span("execute_tool", 0, 9, { attributes: { ...TOOL, "ailoop.outcome": "cancelled" } }),
    span("chat", 0, 9, { error: "cancelled" }),
  ];
  assert.deepEqual(callsOf(turn(spans)), []);
});

test("percentile_is_a_value_of_the_sample", () => {
  const values = Array.from({ length: 20 }, (_, n) => n + 1);
  assert.deepEqual(
    [0.5, 0.95, 1].map((share) => percentile(values, share)),
    [10, 19, 20],
  );
  assert.equal(percentile([1, 2, 3], 0.5), 2);
  assert.equal(percentile([], 0.5), 0);
  assert.equal(percentile([7], 0.95), 7);
  const call = { kind: "tool" as const, name: "look", totalMs: 10, workedMs: 4, isFailed: true };
  assert.deepEqual(percentilesOf([call]), { count: 1, failed: 1, p50: 10, p95: 10, most: 10, waitedP95: 6 });
});

test("example_has_what_a_schema_requires_and_nothing_else", () => {
  const properties = {
    path: { type: "string" },
    max: { type: "integer", minimum: 1 },
    mode: { enum: ["a", "b"] },
    all: { type: ["boolean", "null"] },
    depth: { type: "integer", default: 3 },
    extra: { type: "string" },
  };
  const required = ["path", "max", "mode", "all", "depth"];
  assert.deepEqual(example({ type: "object", properties, required }), {
    path: "",
    max: 1,
    mode: "a",
    all: false,
    depth: 3,
  });
  assert.deepEqual(example(null), {});
});
