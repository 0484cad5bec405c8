// The timeline of a session: each model and tool call as a bar, with waiting apart from working.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { connection, rpc } from "../core/connection.ts";
import type { SessionView } from "../core/fold.ts";
import { formatCount, formatDuration, formatMoney, formatTime, words } from "../core/format.ts";
import { clock } from "../core/poll.ts";
import {
  type Axis,
  type Bar,
  type BarKind,
  type LiveFacts,
  makeAxis,
  readTrace,
  type TimelineTurn,
} from "../core/timeline.ts";
import type { SessionTrace, TurnTrace } from "../core/types.ts";
import { VirtualList } from "../ui/list.tsx";
import { Empty } from "../ui/parts.tsx";
import { CopyButton } from "../ui/text.tsx";

const TRACE_MS_MIN = 800;
/** Shortest wait that is drawn, as a share of the axis. */
const WAIT_SHARE_MIN = 0.008;

/** Reads the trace while it is shown: again after steps and calls end, at most as often as it is cheap. */
export function useTrace(id: string, view: SessionView, isShown: boolean): TurnTrace[] | null {
  const [trace, setTrace] = useState<TurnTrace[] | null>(null);
  const last = useRef({ at: 0, cost: 0 });
  const isOpen = connection.value.kind === "open";
  const seq = view.seq;
  useEffect(() => {
    if (!isOpen || !isShown || seq === 0) return;
    let isCurrent = true;
    const wait = Math.max(0, last.current.at + Math.max(TRACE_MS_MIN, last.current.cost * 5) - Date.now());
    const timer = setTimeout(() => {
      const began = Date.now();
      last.current.at = began;
      rpc.call<SessionTrace>("session.trace", { session_id: id }).then(
        (result) => {
          last.current.cost = Date.now() - began;
          if (isCurrent || result.turns.length > 0) setTrace(result.turns);
        },
        () => {},
      );
    }, wait);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [id, seq, isOpen, isShown]);
  return trace;
}

function liveFacts(view: SessionView): LiveFacts {
  const open: LiveFacts["open"] = [];
  const add = (call: string, kind: BarKind, label: string, time: string) =>
    open.push({ call, kind, label, start: Date.parse(time) });
  for (const row of view.rows)
    if (row.kind === "reply" && row.isStreaming) add(`m${row.turn}-${row.step}`, "model", `step ${row.step}`, row.time);
  for (const call of view.openCalls())
    if (call.state !== "asked") add(call.call, call.state === "client" ? "gate" : "tool", call.tool, call.time);
  for (const gate of view.openGates()) add(gate.gate, "gate", gate.tool ?? "asks", gate.time);
  return { workedMs: (call) => view.calls.get(call)?.durationMs, open };
}

/** The classes of bars, with what they mean. */
const LEGEND = [
  ["model", "model"],
  ["tool", "tool"],
  ["gate", "a person"],
  ["waits", "waits for a worker"],
] as const;

type Line = { kind: "turn"; turn: TimelineTurn } | { kind: "bar"; bar: Bar };

export function Timeline({
  trace,
  view,
  onSelect,
}: {
  trace: TurnTrace[] | null;
  view: SessionView;
  onSelect: (key: string) => void;
}) {
  const isRunning = trace?.some((turn) => !turn.has_ended) === true;
  const now = isRunning ? clock.value : 0;
  const turns = useMemo(() => readTrace(trace ?? [], now, liveFacts(view)), [trace, now, view.rev]);
  const axis = useMemo(() => (turns.length > 0 ? makeAxis(turns) : null), [turns]);
  const lines = useMemo(
    () =>
      turns.flatMap((turn): Line[] => [
        { kind: "turn", turn },
        ...turn.bars.map((bar): Line => ({ kind: "bar", bar })),
      ]),
    [turns],
  );
  if (trace === null) return <p class="muted pad">Reading the trace …</p>;
  if (axis === null || lines.length === 0) return <Empty title="Nothing has run yet" />;
  const select = (bar: Bar) => {
    const call = bar.call === undefined ? undefined : view.calls.get(bar.call);
    const reply = /^m(\d+)-(\d+)$/.exec(bar.call ?? "");
    const gate = bar.call === undefined ? undefined : view.gates.get(bar.call);
    onSelect(call?.key ?? (reply ? `r${reply[1]}-${reply[2]}` : (gate?.key ?? "")));
  };
  return (
    <div class="timeline">
      <div class="timeline-legend">
        {LEGEND.map(([name, text]) => (
          <span>
            <i class={`swatch bar-${name}`} /> {text}
          </span>
        ))}
      </div>
      <div class="timeline-axis" aria-hidden="true">
        <span>{formatDuration(0)}</span>
        {axis.gaps.map((gap) => (
          <span class="axis-gap" style={{ left: `${gap.at * 100}%` }} title={`${formatDuration(gap.durationMs)} idle`}>
            ⋯
          </span>
        ))}
        <span>{formatDuration(axis.end - axis.start)}</span>
      </div>
      <VirtualList
        class="timeline-list"
        label="Calls by time"
        count={lines.length}
        estimate={26}
        keyOf={(index) => {
          const line = lines[index];
          return line === undefined ? "" : line.kind === "turn" ? `t${line.turn.turn}` : line.bar.key;
        }}
        render={(index) => {
          const line = lines[index];
          if (line === undefined) return null;
          return line.kind === "turn" ? (
            <TurnLine turn={line.turn} />
          ) : (
            <BarLine bar={line.bar} axis={axis} onSelect={() => select(line.bar)} />
          );
        }}
      />
    </div>
  );
}

function TurnLine({ turn }: { turn: TimelineTurn }) {
  return (
    <div class="turn-line">
      <strong>Turn {turn.turn}</strong>
      <span>{formatDuration(turn.end - turn.start)}</span>
      {turn.stopReason && <span>{words(turn.stopReason)}</span>}
      <span class="muted" title={turn.traceId}>
        trace {turn.traceId.slice(0, 8)}
      </span>
      {turn.url !== undefined && (
        <a href={turn.url} target="_blank" rel="noopener noreferrer">
          open the trace
        </a>
      )}
      <CopyButton text={turn.traceId} label="copy trace id" />
    </div>
  );
}

function BarLine({ bar, axis, onSelect }: { bar: Bar; axis: Axis; onSelect: () => void }) {
  const left = axis.place(bar.start);
  const right = axis.place(bar.end);
  const length = Math.max(0, bar.end - bar.start);
  const waited = bar.workedMs === undefined ? 0 : Math.max(0, length - bar.workedMs);
  const end = axis.place(bar.start + waited);
  // A wait that is too short to be seen is part of the bar.
  const worked = end - left > WAIT_SHARE_MIN ? end : left;
  const isBad =
    bar.error !== undefined || (bar.outcome !== undefined && !["ok", "cancelled", "denied"].includes(bar.outcome));
  const details = [
    `${bar.kind} ${bar.label}`,
    formatDuration(length),
    waited > 20 ? `of which ${formatDuration(waited)} waiting for a worker` : "",
    bar.attempt > 1 ? `attempt ${bar.attempt}` : "",
    bar.by ?? "",
    bar.outcome ?? "",
    bar.error ?? "",
    bar.tokens === undefined ? "" : `${formatCount(bar.tokens)} tokens`,
    bar.costUsd ? formatMoney(bar.costUsd) : "",
    `began ${formatTime(bar.start)}`,
  ]
    .filter(Boolean)
    .join(", ");
  return (
    <button type="button" class={`bar-line ${isBad ? "bar-bad" : ""}`} onClick={onSelect} title={details}>
      <span class="bar-label">
        {bar.label}
        {bar.attempt > 1 && <span class="count">{bar.attempt}</span>}
      </span>
      <span class="bar-track" aria-hidden="true">
        {axis.gaps.map((gap) => (
          <i class="bar-gap" style={{ left: `${gap.at * 100}%` }} />
        ))}
        {worked > left && (
          <i class="bar bar-waits" style={{ left: `${left * 100}%`, width: `${(worked - left) * 100}%` }} />
        )}
        <i
          class={`bar bar-${bar.kind} ${bar.isOpen ? "bar-open" : ""}`}
          style={{ left: `${worked * 100}%`, width: `max(2px, ${(right - worked) * 100}%)` }}
        />
      </span>
      <span class="bar-time">
        {formatDuration(length)}
        <span class="sr-only"> {details}</span>
      </span>
    </button>
  );
}
