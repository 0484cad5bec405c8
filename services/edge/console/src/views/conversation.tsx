// The conversation of a session, as it streams. Only rows in sight are drawn; bodies open on demand.

import { createContext } from "preact";
import { useContext, useMemo, useRef, useState } from "preact/hooks";
import { can } from "../core/caller.ts";
import { rpc } from "../core/connection.ts";
import type {
  CallRow,
  DecisionRow,
  EndRow,
  GateRow,
  GroupRow,
  NoteRow,
  ReplyRow,
  Row,
  SessionView,
  UserRow,
} from "../core/fold.ts";
import {
  formatBytes,
  formatClock,
  formatCount,
  formatDuration,
  formatMoney,
  formatTime,
  plural,
  words,
} from "../core/format.ts";
import { links } from "../core/route.ts";
import type { FullResult, OpenGate } from "../core/types.ts";
import { Arguments } from "../ui/arguments.tsx";
import { Icon } from "../ui/icons.tsx";
import { type ListHandle, VirtualList } from "../ui/list.tsx";
import { DiffLines, isDiff, Markdown, SafeImage } from "../ui/markdown.tsx";
import { Age, Badge, Button, isFailure, type Tone } from "../ui/parts.tsx";
import { DataBlock, Visible } from "../ui/text.tsx";
import { ClientCallCard } from "./client_call.tsx";
import { GateCard } from "./gate.tsx";

/** What every row has at hand. */
export interface Shared {
  session: string;
  view: SessionView;
  open: Set<string>;
  toggle(key: string): void;
  onFork: (row: Row) => void;
  onRerun: (row: UserRow) => void;
  onTest: (row: ReplyRow) => void;
}

const Context = createContext<Shared | null>(null);

function useShared(): Shared {
  const shared = useContext(Context);
  if (shared === null) throw new Error("a row outside of a conversation");
  return shared;
}

interface Props {
  shared: Shared;
  handle: { current: ListHandle | null };
  rows: Row[];
  selected?: string;
  /** Rows of later slots are dimmed. */
  until?: number;
}

/** More calls of one reply are one line, which opens. */
const CALLS_MAX = 8;

/**
 * Rows of a conversation. A decision that only follows from tool calls is left to the list of decisions. Many calls of
 * one reply are a group; what waits or failed is shown all the same.
 */
export function conversationRows(view: SessionView, open: Set<string>): Row[] {
  const rows: Row[] = [];
  for (let index = 0; index < view.rows.length; index++) {
    const row = view.rows[index] as Row;
    if (row.kind === "decision" && row.source === "tool_calls") continue;
    // A gate about a call is drawn with its call.
    if (row.kind === "gate" && view.calls.has(row.gate)) continue;
    if (row.kind !== "call") {
      rows.push(row);
      continue;
    }
    const calls: CallRow[] = [];
    for (
      let next = view.rows[index];
      next?.kind === "call" && next.step === row.step && next.turn === row.turn;
      next = view.rows[index + calls.length]
    )
      calls.push(next);
    index += calls.length - 1;
    if (calls.length <= CALLS_MAX) {
      rows.push(...calls);
      continue;
    }
    const key = `g${row.turn}-${row.step}`;
    rows.push({
      kind: "group",
      key,
      rev: calls.reduce((sum, call) => sum + call.rev, 0),
      time: row.time,
      slot: row.slot,
      calls,
    });
    rows.push(...(open.has(key) ? calls : calls.filter((call) => ["wait", "bad"].includes(callTone(call.state)))));
  }
  return rows;
}

export function Conversation({ shared, handle, rows, selected, until }: Props) {
  return (
    <Context.Provider value={shared}>
      <VirtualList
        class="conversation"
        label="Conversation"
        count={rows.length}
        estimate={(index) => estimate(rows[index])}
        keyOf={(index) => rows[index]?.key ?? String(index)}
        followEnd
        handle={handle}
        overscan={6}
        render={(index) => {
          const row = rows[index];
          return (
            row && (
              <div class={classOf(row, selected, until)}>
                <RowView row={row} rev={row.rev} />
              </div>
            )
          );
        }}
      />
    </Context.Provider>
  );
}

function classOf(row: Row, selected: string | undefined, until: number | undefined): string {
  const isAfter = until !== undefined && (row.slot === undefined || row.slot > until);
  return [row.key === selected ? "is-selected" : "", isAfter ? "is-after" : ""].filter(Boolean).join(" ");
}

function estimate(row: Row | undefined): number {
  if (row?.kind === "call") return 34;
  if (row?.kind === "reply") return 60 + Math.min(600, row.text.length / 4);
  return row?.kind === "user" ? 80 : 44;
}

function RowView({ row }: { row: Row; rev: number }) {
  switch (row.kind) {
    case "user":
      return <User row={row} />;
    case "reply":
      return <Reply row={row} />;
    case "call":
      return <Call row={row} />;
    case "group":
      return <Group row={row} />;
    case "gate":
      return <Gate row={row} />;
    case "decision":
      return <Decision row={row} />;
    case "note":
      return <Note row={row} />;
    case "end":
      return <End row={row} />;
  }
}

function User({ row }: { row: UserRow }) {
  const { onRerun, view } = useShared();
  // Before the first message of a fork, there is no slot to begin from.
  const canRerun = can("session.start") && row.slot !== undefined && (row.slot > 0 || !view.hasTranscript);
  return (
    <article class="row-user" aria-label="Message">
      <header class="row-head">
        <strong>You</strong>
        {row.mode !== "queue" && row.mode !== "" && <span>{row.mode}</span>}
        {canRerun && (
          <button
            type="button"
            class="link row-action"
            onClick={() => onRerun(row)}
            title="Begin another session with this message, changed"
          >
            edit and run again
          </button>
        )}
        <time title={formatTime(row.time)}>{formatClock(row.time)}</time>
      </header>
      <Clipped text={row.text} rowKey={row.key}>
        <div class="user-text">
          <Visible text={row.text} isProse />
        </div>
      </Clipped>
      {row.images.map((url) => (
        <SafeImage url={url} text="" />
      ))}
    </article>
  );
}

/** Longest prose that is drawn without a press. */
const PROSE_MAX = 30_000;

function Clipped({ text, rowKey, children }: { text: string; rowKey: string; children: preact.ComponentChildren }) {
  const { open, toggle } = useShared();
  if (text.length <= PROSE_MAX || open.has(rowKey))
    return text.length <= PROSE_MAX ? <>{children}</> : <DataBlock source={text} label="Text" />;
  return (
    <>
      <p class="prose-begin">
        <Visible text={text.slice(0, 2000)} isProse /> …
      </p>
      <button type="button" class="link" onClick={() => toggle(rowKey)}>
        Show all of it ({formatBytes(text.length)})
      </button>
    </>
  );
}

function Reply({ row }: { row: ReplyRow }) {
  const { onFork, onTest } = useShared();
  const canStart = can("session.start");
  const isSilent = row.text === "" && row.partials.length === 0;
  return (
    <article class="row-reply" aria-label={`Step ${row.step}`} aria-busy={row.isStreaming}>
      <header class="row-head">
        <strong>Step {row.step}</strong>
        {row.isStreaming ? (
          <Badge tone="live">
            {isSilent && row.reasoning === "" ? "waits for the model" : "writes"}
            {row.attempt.startsWith("1.1") || row.attempt === "" ? "" : `, attempt ${row.attempt}`}
          </Badge>
        ) : (
          <>
            <span title="Who answered">{[row.provider, row.model].filter(Boolean).join(" / ")}</span>
            <span>{formatDuration(row.latencyMs ?? 0)}</span>
            {row.spent && (
              <span title="Tokens read and written">
                {formatCount(row.spent.usage.input)} → {formatCount(row.spent.usage.output)} tokens
              </span>
            )}
            {row.spent && row.spent.cost_usd > 0 && <span>{formatMoney(row.spent.cost_usd)}</span>}
            {row.finish !== "stop" && row.finish !== "tool_calls" && row.finish !== "" && (
              <Badge tone="bad">{words(row.finish ?? "")}</Badge>
            )}
          </>
        )}
        {row.slot !== undefined && canStart && (
          <button
            type="button"
            class="link row-action"
            onClick={() => onFork(row)}
            title="Begin another session with the transcript up to here"
          >
            <Icon name="fork" /> fork here
          </button>
        )}
        {!row.isStreaming && (
          <button
            type="button"
            class="link row-action"
            onClick={() => onTest(row)}
            title="What an agent would do after this reply"
          >
            test
          </button>
        )}
        <time title={formatTime(row.time)}>{formatClock(row.time)}</time>
      </header>
      {row.reasoning !== "" && (
        <details class="reasoning">
          <summary>Thinking ({formatBytes(row.reasoning.length)})</summary>
          <div class="reasoning-text">
            <Visible text={row.reasoning} isProse />
          </div>
        </details>
      )}
      {row.text !== "" && (
        <Clipped text={row.text} rowKey={row.key}>
          <Markdown text={row.text} />
        </Clipped>
      )}
      {row.partials.map(
        (partial) =>
          partial && (
            <div class="partial">
              <code>{partial.name || "tool call"}</code>{" "}
              <span class="partial-text">
                <Visible text={partial.text.slice(-200)} />
              </span>
            </div>
          ),
      )}
    </article>
  );
}

const TONES: Record<string, Tone> = {
  running: "live",
  asked: "wait",
  client: "wait",
  ok: "good",
  error: "bad",
  timeout: "bad",
  denied: "calm",
  cancelled: "calm",
  unknown: "bad",
};

export function callTone(state: string): Tone {
  return TONES[state] ?? "calm";
}

/** The argument that says most: a path, a command, a question. */
export function summarize(value: unknown): string {
  if (typeof value !== "object" || value === null) return value === undefined ? "" : String(value);
  const entries = Object.entries(value).filter(([, field]) => field !== null && field !== "");
  const short = entries.map(([name, field]) => {
    const text = typeof field === "string" ? field : JSON.stringify(field);
    return {
      name,
      text: text.length > 120 ? `${text.slice(0, 120).replaceAll("\n", " ")}…` : text.replaceAll("\n", " "),
    };
  });
  const first = short.find(({ name }) =>
    /^(path|file|command|url|query|pattern|question|task|plan|to|agent)$/.test(name),
  );
  const rest = short
    .filter((field) => field !== first && field.text.length <= 40)
    .map(({ name, text }) => `${name}=${text}`);
  return [
    first?.text,
    ...(first === undefined ? short.slice(0, 3).map(({ name, text }) => `${name}=${text}`) : rest.slice(0, 2)),
  ]
    .filter(Boolean)
    .join("  ");
}

function Call({ row }: { row: CallRow }) {
  const { open, toggle, view, session } = useShared();
  const isWaiting = row.state === "asked" || row.state === "client";
  const isOpen = open.has(row.key);
  const summary = useMemo(() => summarize(row.arguments), [row.arguments]);
  const gate = view.gates.get(row.call);
  return (
    <div class={`row-call call-${callTone(row.state)}`}>
      <button type="button" class="call-line" aria-expanded={isOpen} onClick={() => toggle(row.key)}>
        <Icon name="chevron" />
        <span class={`dot badge-${callTone(row.state)}`} aria-hidden="true" />
        <code class="call-tool">{row.tool}</code>
        <span class="call-summary">
          <Visible text={summary} />
        </span>
        {row.progress !== undefined && row.endedAt === undefined && (
          <span class="call-progress">
            <Visible text={row.progress.slice(0, 200)} />
          </span>
        )}
        {row.decision !== undefined && (
          <span class="muted">
            {row.decision === "deny" ? "denied" : row.decision === "approve" ? "approved" : "answered"}
            {row.decidedBy && ` by ${row.decidedBy}`}
          </span>
        )}
        {row.original !== undefined && <span class="muted">edited</span>}
        <span class="call-state">
          {row.state === "ok"
            ? ""
            : row.state === "asked"
              ? "asks you"
              : row.state === "client"
                ? "waits for a client"
                : row.state}
        </span>
        <span class="call-time">
          {row.durationMs !== undefined ? (
            formatDuration(row.durationMs)
          ) : row.endedAt === undefined ? (
            <Age at={row.time} />
          ) : (
            ""
          )}
        </span>
      </button>
      {row.state === "asked" && gate !== undefined && gate.decision === undefined && (
        <GateCard
          session={session}
          // The numbers of an event may be rounded: the card reads the text as it was sent.
          gate={openGate(gate, gate.arguments ?? row.arguments, true)}
          onExpiry={gate.onExpiry}
          before={argumentsBefore(view, row)}
        />
      )}
      {row.state === "client" && (
        <ClientCallCard session={session} call={{ ...row, arguments: JSON.stringify(row.arguments) }} />
      )}
      {isOpen && <CallBody row={row} isWaiting={isWaiting} />}
    </div>
  );
}

function Group({ row }: { row: GroupRow }) {
  const { open, toggle } = useShared();
  const tools = countBy(row.calls.map((call) => call.tool));
  const states = countBy(row.calls.map((call) => call.state));
  const tone = row.calls.some((call) => callTone(call.state) === "bad")
    ? "bad"
    : states.has("running")
      ? "live"
      : "good";
  return (
    <div class="row-call">
      <button type="button" class="call-line" aria-expanded={open.has(row.key)} onClick={() => toggle(row.key)}>
        <Icon name="chevron" />
        <span class={`dot badge-${tone}`} aria-hidden="true" />
        <strong>{plural(row.calls.length, "call")}</strong>
        <span class="call-summary">{[...tools].map(([tool, count]) => `${tool} ×${count}`).join("  ")}</span>
        <span class="call-state">{[...states].map(([state, count]) => `${count} ${state}`).join(", ")}</span>
      </button>
    </div>
  );
}

function countBy(names: string[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}

/** The arguments of the call of the same tool before this one. */
function argumentsBefore(view: SessionView, row: CallRow): string | undefined {
  let before: CallRow | undefined;
  for (const call of view.calls.values()) {
    if (call === row) break;
    if (call.tool === row.tool) before = call;
  }
  return before === undefined ? undefined : JSON.stringify(before.arguments);
}

function CallBody({ row, isWaiting }: { row: CallRow; isWaiting: boolean }) {
  const { view, session } = useShared();
  const [whole, setWhole] = useState<string | null>(null);
  const before = useMemo(() => argumentsBefore(view, row), [row.call]);
  const result = whole ?? row.content;
  const loadWhole = async () =>
    setWhole((await rpc.call<FullResult>("tools.result", { session_id: session, call: row.call })).content);
  return (
    <div class="call-body">
      <div class="facts">
        <span>
          call <code>{row.call}</code>
        </span>
        <span>
          effect <code>{row.effect}</code>
        </span>
        {row.performer && (
          <span>
            performed by {row.performer}
            {row.by && ` (${row.by})`}
          </span>
        )}
        {row.code && <span class="bad-text">{row.code}</span>}
        {row.note && (
          <span>
            note: <Visible text={row.note} isProse />
          </span>
        )}
        {row.child && (
          <a href={links.session(row.child)}>
            session of {String((row.arguments as { agent?: string }).agent ?? "the child")}
          </a>
        )}
        {row.usedUsd !== undefined && <span>{formatMoney(row.usedUsd)} by the child</span>}
      </div>
      {!isWaiting && <Arguments source={JSON.stringify(row.arguments)} before={before} />}
      {row.original !== undefined && (
        <DataBlock source={JSON.stringify(row.original)} label="What the model asked for" />
      )}
      {result !== undefined &&
        (isDiff(undefined, result) ? (
          <DiffLines text={result} />
        ) : (
          <DataBlock source={result} label={row.state === "ok" ? "Result" : `Result: ${row.state}`} />
        ))}
      {row.wholeBytes !== undefined && whole === null && (
        <Button onClick={loadWhole}>Load the whole result ({formatBytes(row.wholeBytes)})</Button>
      )}
    </div>
  );
}

function Gate({ row }: { row: GateRow }) {
  const { session } = useShared();
  if (row.decision !== undefined) {
    const kind =
      typeof row.gateKind === "object"
        ? "limit" in row.gateKind
          ? `limit ${words(row.gateKind.limit)}`
          : `error ${words(row.gateKind.error)}`
        : row.gateKind;
    return (
      <div class="row-note">
        <Icon name="user" />
        <span>
          A person was asked about the {kind}: <strong>{row.decision}</strong>
          {row.by && ` by ${row.by}`}
          {row.note && `: ${row.note}`}
        </span>
      </div>
    );
  }
  return <GateCard session={session} gate={openGate(row, row.arguments ?? null, false)} onExpiry={row.onExpiry} />;
}

function openGate(row: GateRow, args: unknown, shortened: boolean): OpenGate {
  return {
    gate: row.gate,
    kind: row.gateKind,
    tool: row.tool,
    arguments: JSON.stringify(args),
    arguments_sha256: row.sha256,
    expires: row.expires,
    shortened,
  };
}

export function Source({ source }: { source: string }) {
  const [rule = "", ...detail] = source.split(":");
  const [kind, ...pattern] = detail;
  if (rule === "pattern")
    return (
      <>
        pattern ({kind}){" "}
        <code>
          <Visible text={pattern.join(":")} />
        </code>
      </>
    );
  return (
    <>
      {words(rule)}
      {detail.length > 0 && (
        <>
          {" "}
          <code>
            <Visible text={detail.join(":")} />
          </code>
        </>
      )}
    </>
  );
}

function Decision({ row }: { row: DecisionRow }) {
  return (
    <div class="row-note row-decision">
      <Icon name={row.continues ? "down" : "check"} />
      <span>
        <strong>{row.continues ? "Goes on" : "The turn ends"}</strong>: <Source source={row.source} />
        {row.reason && (
          <>
            {" "}
            · <Visible text={row.reason} isProse />
          </>
        )}
        {row.nudge && (
          <>
            {" "}
            · the model is told: “<Visible text={row.nudge} isProse />”
          </>
        )}
      </span>
    </div>
  );
}

function Note({ row }: { row: NoteRow }) {
  return (
    <div class={`row-note note-${row.tone}`} role={row.tone === "error" ? "alert" : undefined}>
      <Icon name={row.tone === "info" ? "more" : "warning"} />
      <span>
        <strong>{row.title}</strong>
        {row.text !== "" && (
          <>
            {" "}
            <span class="note-text">
              <Visible text={row.text} isProse />
            </span>
          </>
        )}
      </span>
      <time title={formatTime(row.time)}>{formatClock(row.time)}</time>
    </div>
  );
}

function End({ row }: { row: EndRow }) {
  return (
    <div class={`row-end ${isFailure(row.stopReason) ? "end-bad" : ""}`}>
      <span>
        Turn {row.turn}: {words(row.stopReason)} · {plural(row.iterations, "step")}
        {row.spent && row.spent.cost_usd > 0 && ` · ${formatMoney(row.spent.cost_usd)}`}
        {row.spent && ` · ${formatCount(row.spent.usage.input + row.spent.usage.output)} tokens`}
      </span>
    </div>
  );
}

/** The set of open rows, which outlives the drawing of a row. */
export function useOpenRows(): {
  open: Set<string>;
  rev: number;
  toggle: (key: string) => void;
  show: (key: string) => void;
} {
  const open = useRef(new Set<string>());
  const [rev, redraw] = useState(0);
  return {
    open: open.current,
    rev,
    toggle(key) {
      if (!open.current.delete(key)) open.current.add(key);
      redraw((n) => n + 1);
    },
    show(key) {
      open.current.add(key);
      redraw((n) => n + 1);
    },
  };
}
