// How long calls take, measured on the traces of the newest sessions. The edge has no histogram, so this is a sample.

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { connection, rpc } from "./connection.ts";
import type { SessionPage, SessionTrace, TraceSpan, TurnTrace } from "./types.ts";

/** A call that has ended. */
export interface CallSample {
  kind: "model" | "tool";
  /** Name of the model or of the tool. */
  name: string;
  /** From the log's entry that opened it to the one that closed it. */
  totalMs: number;
  /** The part of it in which a worker worked. */
  workedMs: number;
  isFailed: boolean;
}

export interface Percentiles {
  count: number;
  failed: number;
  p50: number;
  p95: number;
  most: number;
  /** 95 of 100 calls waited for a worker for at most this long. */
  waitedP95: number;
}

export interface Sample {
  /** Number of sessions whose traces were read. */
  sessions: number;
  calls: CallSample[];
  at: number;
}

const SESSIONS_MAX = 20;
const PARALLEL = 2;
const FRESH_MS = 300_000;
/** Outcomes that say nothing about the tool. */
const NOT_FAILED = new Set(["ok", "denied", "cancelled"]);

/** The calls of some turns. Calls that are open or that a person denied took no time of a worker, and are left out. */
export function callsOf(turns: TurnTrace[]): CallSample[] {
  return turns.flatMap((turn) => turn.spans.flatMap((span) => callOf(span) ?? []));
}

function callOf(span: TraceSpan): CallSample | undefined {
  const { attributes } = span;
  const operation = attributes["gen_ai.operation.name"];
  if (span.is_open || (operation !== "chat" && operation !== "execute_tool")) return undefined;
  const outcome = attributes["ailoop.outcome"];
  if (outcome === "denied" || outcome === "cancelled" || span.error === "cancelled") return undefined;
  const kind = operation === "chat" ? "model" : "tool";
  const name = attributes[kind === "model" ? "gen_ai.request.model" : "gen_ai.tool.name"];
  const totalMs = Math.max(0, span.end_ms - span.start_ms);
  const worked = attributes["ailoop.latency_ms"];
  return {
    kind,
    name: typeof name === "string" ? name : "",
    totalMs,
    workedMs: typeof worked === "number" ? Math.min(worked, totalMs) : totalMs,
    isFailed: span.error !== undefined || (typeof outcome === "string" && !NOT_FAILED.has(outcome)),
  };
}

/** The smallest value that at least this share of the values does not exceed. */
export function percentile(sorted: number[], share: number): number {
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? 0;
}

export function percentilesOf(calls: CallSample[]): Percentiles {
  const total = calls.map((call) => call.totalMs).sort((a, b) => a - b);
  const waited = calls.map((call) => call.totalMs - call.workedMs).sort((a, b) => a - b);
  return {
    count: calls.length,
    failed: calls.filter((call) => call.isFailed).length,
    p50: percentile(total, 0.5),
    p95: percentile(total, 0.95),
    most: total.at(-1) ?? 0,
    waitedP95: percentile(waited, 0.95),
  };
}

export function byName(calls: CallSample[], kind: CallSample["kind"]): Map<string, CallSample[]> {
  const found = new Map<string, CallSample[]>();
  for (const call of calls) {
    if (call.kind !== kind) continue;
    const list = found.get(call.name);
    if (list === undefined) found.set(call.name, [call]);
    else list.push(call);
  }
  return found;
}

const sample = signal<Sample | null>(null);
let isMeasuring = false;

/** Reads the traces of the newest sessions that ran, unless that was done a short time ago. */
export async function measure(isForced = false): Promise<void> {
  const known = sample.peek();
  if (isMeasuring || (!isForced && known !== null && Date.now() - known.at < FRESH_MS)) return;
  isMeasuring = true;
  try {
    const { sessions } = await rpc.call<SessionPage>("session.list", { limit: 100 });
    const pending = sessions.filter((session) => session.turn > 0).slice(0, SESSIONS_MAX);
    const calls: CallSample[] = [];
    let count = 0;
    const read = async () => {
      for (let next = pending.shift(); next !== undefined; next = pending.shift()) {
        // A session that was removed meanwhile is not part of the sample.
        const found = await rpc.call<SessionTrace>("session.trace", { session_id: next.session_id }).catch(() => null);
        if (found === null) continue;
        calls.push(...callsOf(found.turns));
        count += 1;
      }
    };
    await Promise.all(Array.from({ length: PARALLEL }, read));
    sample.value = { sessions: count, calls, at: Date.now() };
  } finally {
    isMeasuring = false;
  }
}

/** The sample, once it is there: measured while a component that uses it is shown. */
export function useSample(): Sample | null {
  const isOpen = connection.value.kind === "open";
  useEffect(() => {
    if (isOpen) void measure().catch(() => {});
  }, [isOpen]);
  return sample.value;
}
