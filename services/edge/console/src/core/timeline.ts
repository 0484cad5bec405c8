// Places spans on one axis on which long idle times are short, so that a session of days shows its seconds of work.

import type { TraceSpan, TurnTrace } from "./types.ts";

export type BarKind = "model" | "tool" | "gate";

export interface Bar {
  key: string;
  kind: BarKind;
  turn: number;
  label: string;
  call?: string;
  start: number;
  end: number;
  isOpen: boolean;
  /** Milliseconds at the end of the bar in which a worker worked; before that the call waited. */
  workedMs?: number;
  attempt: number;
  error?: string;
  outcome?: string;
  /** Who ran it: provider and model, or nothing. */
  by?: string;
  costUsd?: number;
  tokens?: number;
}

export interface TimelineTurn {
  turn: number;
  traceId: string;
  start: number;
  end: number;
  stopReason?: string;
  /** Where people see the trace, if it is sent somewhere. */
  url?: string;
  bars: Bar[];
}

export interface Gap {
  /** Position of the middle, from 0 to 1. */
  at: number;
  durationMs: number;
}

export interface Axis {
  /** Position of a time, from 0 to 1. */
  place(at: number): number;
  gaps: Gap[];
  start: number;
  end: number;
}

/** Idle times longer than this share of the working time are squeezed. */
const GAP_SHARE = 0.08;
const GAP_MS_MIN = 2000;
/** Width of a squeezed gap, as a share of the working time. */
const SQUEEZED_SHARE = 0.03;

/** What the events know and a trace does not: how long tools worked, and what is open now. */
export interface LiveFacts {
  workedMs(call: string): number | undefined;
  /** Calls and gates that are open, with the time at which they began. */
  open: { call: string; kind: BarKind; label: string; start: number }[];
}

/** Reads the bars of a trace, and adds those that are open. A trace ends what is open at the last commit. */
export function readTrace(turns: TurnTrace[], now: number, live: LiveFacts): TimelineTurn[] {
  const open = new Map(live.open.map((bar) => [bar.call, bar]));
  return turns.map((turn, index) => {
    const root = turn.spans.find((span) => span.parent === undefined);
    const canBeOpen = index === turns.length - 1 && !turn.has_ended;
    const spans = turn.spans.flatMap((span) => barOf(span, turn.turn, live.workedMs, canBeOpen) ?? []);
    for (const bar of spans) if (bar.isOpen) bar.end = Math.max(bar.start, now);
    // Earlier attempts of a call that is open stay.
    const bars = spans.filter(
      (bar) => bar.call === undefined || !open.has(bar.call) || (bar.kind !== "gate" && !bar.isOpen),
    );
    if (canBeOpen) {
      for (const bar of live.open) {
        bars.push({
          key: `open-${bar.call}`,
          turn: turn.turn,
          end: Math.max(now, bar.start),
          isOpen: true,
          attempt: 1,
          ...bar,
        });
      }
    }
    const ends = bars.map((bar) => bar.end);
    const start = root?.start_ms ?? Math.min(now, ...bars.map((bar) => bar.start));
    return {
      turn: turn.turn,
      traceId: turn.trace_id,
      start,
      end: turn.has_ended ? (root?.end_ms ?? max(ends, start)) : Math.max(now, max(ends, start)),
      url: turn.url,
      stopReason: root === undefined ? undefined : stringOf(root.attributes["ailoop.stop_reason"]),
      bars,
    };
  });
}

function max(values: number[], least: number): number {
  return values.reduce((a, b) => Math.max(a, b), least);
}

function barOf(span: TraceSpan, turn: number, workedMs: LiveFacts["workedMs"], canBeOpen: boolean): Bar | undefined {
  const { attributes } = span;
  const operation = attributes["gen_ai.operation.name"];
  const kind: BarKind | undefined =
    operation === "chat"
      ? "model"
      : operation === "execute_tool"
        ? "tool"
        : span.name.startsWith("gate")
          ? "gate"
          : undefined;
  if (kind === undefined) return undefined;
  const call = stringOf(attributes["ailoop.call"]);
  const provider = stringOf(attributes["gen_ai.provider.name"]);
  const model = stringOf(attributes["gen_ai.response.model"]);
  const tokens = numberOf(attributes["gen_ai.usage.input_tokens"]);
  const latencyMs = numberOf(attributes["ailoop.latency_ms"]);
  const outcome = stringOf(attributes["ailoop.outcome"]);
  return {
    key: span.id,
    kind,
    turn,
    label: kind === "model" ? modelLabel(span) : span.name.replace(/^(execute_tool|gate) /, ""),
    call,
    start: span.start_ms,
    end: span.end_ms,
    isOpen: canBeOpen && kind !== "gate" && span.is_open,
    workedMs: latencyMs ?? (kind === "model" || call === undefined ? undefined : workedMs(call)),
    attempt: numberOf(attributes["ailoop.attempt"]) ?? 1,
    error: span.error,
    outcome,
    by: provider === undefined ? undefined : [provider, model].filter(Boolean).join(" / "),
    costUsd: numberOf(attributes["ailoop.cost.usd"]),
    tokens: tokens === undefined ? undefined : tokens + (numberOf(attributes["gen_ai.usage.output_tokens"]) ?? 0),
  };
}

function modelLabel(span: TraceSpan): string {
  const purpose = stringOf(span.attributes["ailoop.purpose"]);
  const step = span.attributes["ailoop.step"];
  return purpose ?? (step === undefined ? "model" : `step ${String(step)}`);
}

/** Makes the axis of some bars. Time without a model or a tool is idle, also where a person is asked. */
export function makeAxis(turns: TimelineTurn[]): Axis {
  const bars = turns.flatMap((turn) => turn.bars);
  const start = Math.min(
    ...turns.map((turn) => turn.start),
    ...(bars.length > 0 ? [bars.reduce((least, bar) => Math.min(least, bar.start), Infinity)] : []),
  );
  const end = turns.reduce(
    (last, turn) => Math.max(last, turn.end),
    bars.reduce((last, bar) => Math.max(last, bar.end), start),
  );
  const work = mergeIntervals(bars.filter((bar) => bar.kind !== "gate"));
  const busyMs = Math.max(
    1,
    work.reduce((sum, [from, to]) => sum + to - from, 0),
  );
  const gapMax = Math.max(GAP_MS_MIN, busyMs * GAP_SHARE);
  const squeezed = busyMs * SQUEEZED_SHARE;
  // Pieces of the axis: from and to in time, and the width.
  const pieces: { from: number; to: number; width: number }[] = [];
  const add = (from: number, to: number, isIdle: boolean) => {
    if (to > from) pieces.push({ from, to, width: isIdle && to - from > gapMax ? squeezed : to - from });
  };
  let at = start;
  for (const [from, to] of work) {
    add(at, from, true);
    add(from, to, false);
    at = Math.max(at, to);
  }
  add(at, end, true);
  const total = pieces.reduce((sum, piece) => sum + piece.width, 0) || 1;
  const offsets: number[] = [];
  pieces.reduce((sum, piece) => (offsets.push(sum), sum + piece.width), 0);
  const gaps = pieces.flatMap((piece, index): Gap[] =>
    piece.width === piece.to - piece.from
      ? []
      : [{ at: ((offsets[index] ?? 0) + piece.width / 2) / total, durationMs: piece.to - piece.from }],
  );
  const place = (time: number) => {
    let low = 0;
    let high = pieces.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((pieces[middle]?.to ?? 0) < time) low = middle + 1;
      else high = middle;
    }
    const piece = pieces[low];
    if (piece === undefined) return 0;
    const share = Math.min(1, Math.max(0, (time - piece.from) / (piece.to - piece.from)));
    return ((offsets[low] ?? 0) + share * piece.width) / total;
  };
  return { place, gaps, start, end };
}

function mergeIntervals(bars: { start: number; end: number }[]): [number, number][] {
  const merged: [number, number][] = [];
  for (const bar of [...bars].sort((a, b) => a.start - b.start)) {
    const last = merged.at(-1);
    if (last !== undefined && bar.start <= last[1]) last[1] = Math.max(last[1], bar.end);
    else merged.push([bar.start, bar.end]);
  }
  return merged;
}

function stringOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

function numberOf(value: unknown): number | undefined {
  return typeof value === "number" ? value : undefined;
}
