// Folds the events of a session into rows for people. Pure: one event at a time, in the order of `seq`, and a row that
// changes gets a new `rev`, so that only its component is drawn again.

import type { Envelope, GateKind, Phase, Spent } from "./types.ts";

type Data = Record<string, unknown>;

interface RowBase {
  key: string;
  rev: number;
  time: string;
  /** The commit of the log that holds the event; absent while it streams. */
  slot?: number;
}

export interface UserRow extends RowBase {
  kind: "user";
  id: string;
  text: string;
  images: string[];
  mode: string;
}

export interface ReplyRow extends RowBase {
  kind: "reply";
  turn: number;
  step: number;
  attempt: string;
  text: string;
  /** What the model wrote, where it differs from `text`. */
  raw?: string;
  reasoning: string;
  isStreaming: boolean;
  /** Index of the chunk that comes next in this attempt. */
  nextIndex: number;
  /** Calls whose arguments the model is still writing. */
  partials: { name: string; text: string }[];
  call?: string;
  provider?: string;
  model?: string;
  latencyMs?: number;
  finish?: string;
  spent?: Spent;
}

/** `asked` waits for a person, `client` for a client. Every other value after `running` is an outcome. */
export type CallState = "running" | "asked" | "client" | string;

export interface CallRow extends RowBase {
  kind: "call";
  call: string;
  turn: number;
  step: number;
  tool: string;
  arguments: unknown;
  /** What the model asked for, where a person changed the arguments. */
  original?: unknown;
  effect: string;
  approval: string;
  state: CallState;
  progress?: string;
  content?: string;
  code?: string;
  durationMs?: number;
  wholeBytes?: number;
  child?: string;
  usedUsd?: number;
  performer?: string;
  by?: string;
  deadline?: string;
  decision?: string;
  decidedBy?: string;
  note?: string;
  endedAt?: string;
}

export interface GateRow extends RowBase {
  kind: "gate";
  gate: string;
  gateKind: GateKind;
  tool?: string;
  arguments?: unknown;
  sha256: string;
  expires: string;
  onExpiry: string;
  decision?: string;
  by?: string;
  note?: string;
}

export interface DecisionRow extends RowBase {
  kind: "decision";
  turn: number;
  iteration: number;
  max: number;
  continues: boolean;
  source: string;
  reason: string;
  status: string;
  confidence?: number;
  nudge?: string;
  tools: string[];
  spent?: Spent;
}

export interface NoteRow extends RowBase {
  kind: "note";
  tone: "info" | "warning" | "error";
  title: string;
  text: string;
}

export interface EndRow extends RowBase {
  kind: "end";
  turn: number;
  stopReason: string;
  iterations: number;
  spent?: Spent;
}

/** Calls of one reply, where there are many. Made for a view; the fold has none. */
export interface GroupRow extends RowBase {
  kind: "group";
  calls: CallRow[];
}

export type Row = UserRow | ReplyRow | CallRow | GateRow | DecisionRow | NoteRow | EndRow | GroupRow;

export interface Plan {
  current: number | null;
  total: number | null;
  percent: number | null;
  done: string[];
  left: string[];
}

/** What is known of a session from its events. */
export class SessionView {
  rows: Row[] = [];
  seq = 0;
  rev = 0;
  phase: Phase | "new" = "new";
  agent = "";
  agentName = "";
  model = "";
  isInteractive = false;
  prompt = "";
  parent = "";
  features: unknown = null;
  settings: Data = {};
  turn = 0;
  step = 0;
  stopReason = "";
  finalResponse = "";
  traceId = "";
  started = "";
  updated = "";
  plan: Plan | null = null;
  /** Spent by the session and by those that it started. */
  spent: Spent = emptySpent();
  /** Spent by the session alone; null where an older version of ailoop did not count that apart. */
  own: Spent | null = emptySpent();
  /** Both up to the end of the last turn. */
  private spentBefore: Spent = emptySpent();
  private ownBefore: Spent | null = emptySpent();
  isPartial = false;
  /** Whether the session began with the transcript of another one. */
  hasTranscript = false;
  /** The session, and the slot of its log, with whose transcript this one begins. */
  source: { session: string; at?: number } | null = null;
  private lastSlot: number | undefined;
  readonly calls = new Map<string, CallRow>();
  readonly gates = new Map<string, GateRow>();
  readonly decisions = new Map<string, DecisionRow>();
  private readonly replies = new Map<string, ReplyRow>();

  /** The open gates, in the order in which they were opened. */
  openGates(): GateRow[] {
    return [...this.gates.values()].filter((gate) => gate.decision === undefined);
  }

  /** The calls that run or wait now. */
  openCalls(): CallRow[] {
    return [...this.calls.values()].filter((call) => call.endedAt === undefined);
  }

  /** What each topic changes. */
  private static readonly handlers = new Map<string, (view: SessionView, data: Data, at: At) => void>([
    ["session_started", (view, data, at) => view.begin(data, at)],
    ["session_ended", (view, data, at) => view.ended(data, at)],
    ["message.user_processed", (view, data, at) => view.userMessage(data, at)],
    ["message.ai_chunk_received", (view, data, at) => view.chunk(data, at)],
    ["tool_call.partial", (view, data, at) => view.partial(data, at)],
    ["message.ai_full_received", (view, data, at) => view.reply(data, at)],
    ["message.ai_cut_received", (view, data, at) => view.cutReply(data, at)],
    ["tool_call.identified", (view, data, at) => view.identified(data, at)],
    ["tool_call.waiting", (view, data) => view.waiting(data)],
    ["tool_call.progress", (view, data) => view.changeCall(data.call, (call) => (call.progress = text(data.text)))],
    ["tool_call.result_processed", (view, data, at) => view.result(data, at)],
    ["continuation.progress", (view, data, at) => view.decision(data, at)],
    ["turn.completed", (view, data, at) => view.turnEnded(data, at)],
    ["gate.opened", (view, data, at) => view.gateOpened(data, at)],
    ["gate.closed", (view, data) => view.gateClosed(data)],
    ["status.paused", (view, data, at) => view.paused(data, at)],
    ["status.resumed", (view, data, at) => view.resumed(data, at)],
    ["status.configured", (view, data, at) => view.configured(data, at)],
    ["context.pruned", (view, data, at) => view.pruned(data, at)],
    ["context.cleared", (view, data, at) => view.note(at, "info", "History cleared", whoAndWhy(data))],
    ["error", (view, data, at) => view.error(data, at)],
  ]);

  /** Folds one notification. */
  fold(topic: string, envelope: Envelope): void {
    const data = (envelope.data ?? envelope) as Data;
    if (envelope.seq !== undefined) {
      if (envelope.seq <= this.seq) return;
      this.seq = envelope.seq;
      this.updated = envelope.time ?? (envelope.timestamp as string) ?? this.updated;
    }
    if (envelope.trace_id) this.traceId = envelope.trace_id;
    this.rev += 1;
    const at: At = {
      time: envelope.time ?? String(envelope.timestamp ?? ""),
      slot: envelope.seq === undefined ? undefined : slotOf(envelope),
      key: envelope.seq === undefined ? "" : `e${envelope.seq}`,
      isSnapshot: /-view-\d+-\d+-/.test(envelope.id ?? ""),
    };
    // A progress notification has no id; it is part of the commit of its reply.
    at.slot ??= envelope.seq === undefined ? undefined : this.lastSlot;
    this.lastSlot = at.slot ?? this.lastSlot;
    SessionView.handlers.get(topic)?.(this, data, at);
  }

  private begin(data: Data, at: At): void {
    const agent = (data.agent ?? {}) as { id?: string; name?: string };
    this.agent = agent.id ?? "";
    this.agentName = agent.name ?? this.agent;
    this.model = text((data.model as { id?: string } | undefined)?.id);
    this.isInteractive = data.interactive === true;
    this.prompt = text(data.prompt);
    const parent = data.parent as { session?: string; session_id?: string } | undefined;
    this.parent = text(parent?.session ?? parent?.session_id);
    const source = data.resume_from as { session_id?: unknown; at?: unknown } | undefined;
    if (typeof source?.session_id === "string")
      this.source = { session: source.session_id, at: typeof source.at === "number" ? source.at : undefined };
    this.features = data.features ?? null;
    this.settings = data;
    this.started = at.time;
    this.phase = "idle";
    const messages = Array.isArray(data.messages) ? data.messages.length : 0;
    this.hasTranscript = messages > 0;
    if (messages > 0) this.note(at, "info", `Begins with ${messages} messages of another transcript`, "");
  }

  private ended(data: Data, at: At): void {
    this.phase = "ended";
    this.stopReason = text(data.stop_reason ?? data.reason);
    this.finalResponse = text(data.final_response);
    const by = data.by ? `by ${text(data.by)}` : "";
    const note = [by, text(data.note)].filter(Boolean).join(": ");
    const tone = data.reason === "error" ? "error" : "info";
    this.note(at, tone, `Session ended: ${text(data.reason)}`, note);
  }

  private userMessage(data: Data, at: At): void {
    const { text: words, images } = contentOf(data.content);
    if (this.phase === "idle" || this.phase === "new") this.phase = "running";
    this.stopReason = "";
    const id = text(data.message_id);
    this.rows.push({ kind: "user", ...rowOf(at), id, text: words, images, mode: text(data.mode) });
  }

  private rowOfReply(turn: number, step: number, at: At): ReplyRow {
    const key = `r${turn}-${step}`;
    let row = this.replies.get(key);
    if (row === undefined) {
      row = {
        kind: "reply",
        key,
        rev: 0,
        time: at.time,
        turn,
        step,
        attempt: "",
        text: "",
        reasoning: "",
        isStreaming: true,
        nextIndex: 0,
        partials: [],
      };
      this.replies.set(key, row);
      this.rows.push(row);
    }
    return row;
  }

  private replyOf(turn: number, step: number, at: At): ReplyRow {
    const row = this.rowOfReply(turn, step, at);
    this.turn = Math.max(this.turn, turn);
    this.step = step;
    if (this.phase === "idle" || this.phase === "new") this.phase = "running";
    return row;
  }

  /** Returns the reply if this attempt is the newest, and begins it anew if it is newer. */
  private streaming(data: Data, at: At): ReplyRow | undefined {
    const row = this.replyOf(Number(data.turn), Number(data.step), at);
    if (!row.isStreaming) return undefined;
    const attempt = text(data.attempt);
    const order = compareAttempts(attempt, row.attempt);
    if (order < 0) return undefined;
    if (order > 0) {
      row.attempt = attempt;
      row.text = row.reasoning = "";
      row.partials = [];
      row.nextIndex = 0;
    }
    row.rev += 1;
    return row;
  }

  private chunk(data: Data, at: At): void {
    const row = this.streaming(data, at);
    if (row === undefined) return;
    const index = Number(data.index ?? row.nextIndex);
    if (at.isSnapshot) row.text = "";
    else if (index < row.nextIndex) return;
    row.nextIndex = index + 1;
    if (data.channel === "reasoning") row.reasoning += text(data.delta);
    else row.text += text(data.delta);
  }

  private partial(data: Data, at: At): void {
    const row = this.streaming(data, at);
    if (row === undefined) return;
    const index = Number(data.index);
    const before = row.partials[index];
    row.partials[index] = {
      name: text(data.name) || (before?.name ?? ""),
      text: (before?.text ?? "") + text(data.delta),
    };
  }

  private reply(data: Data, at: At): void {
    const row = this.replyOf(Number(data.turn), Number(data.step), at);
    row.rev += 1;
    row.isStreaming = false;
    row.partials = [];
    row.slot = at.slot;
    row.time = at.time;
    row.call = text(data.call);
    row.text = text(data.text);
    row.raw = text(data.raw) || undefined;
    row.reasoning = text(data.reasoning);
    row.provider = text(data.provider);
    row.model = text(data.model);
    row.latencyMs = Number(data.latency_ms ?? 0);
    row.finish = data.finish_reason === "cancelled" ? CUT_OFF : text(data.finish_reason);
    row.spent = data.spent as Spent | undefined;
    this.addOwn(row.spent);
  }

  /** Takes what had come of a reply that was cut off. Its turn may be over. */
  private cutReply(data: Data, at: At): void {
    const turn = Number(data.turn);
    const spent = data.spent as Spent | undefined;
    if (text(data.text) !== "") {
      const row = this.rowOfReply(turn, Number(data.step), at);
      row.rev += 1;
      row.isStreaming = false;
      row.partials = [];
      row.slot = at.slot;
      row.call = text(data.call);
      row.text = text(data.text);
      row.finish = CUT_OFF;
      row.spent = spent;
    }
    const end = this.rows.find((row): row is EndRow => row.kind === "end" && row.turn === turn);
    this.addOwn(spent);
    if (end === undefined || spent === undefined) return;
    // The end of its turn did not count it.
    addSpent(this.spentBefore, spent);
    if (this.ownBefore !== null) addSpent(this.ownBefore, spent);
    end.spent = copySpent(end.spent ?? emptySpent());
    addSpent(end.spent, spent);
    end.rev += 1;
  }

  /** Adds what the session used itself. */
  private addOwn(spent: Spent | undefined): void {
    if (spent === undefined) return;
    addSpent(this.spent, spent);
    if (this.own !== null) addSpent(this.own, spent);
  }

  private identified(data: Data, at: At): void {
    const call = text(data.call);
    const [, turn, step] = /^c(\d+)-(\d+)-/.exec(call) ?? [];
    const row: CallRow = {
      kind: "call",
      ...rowOf(at),
      call,
      turn: Number(turn ?? this.turn),
      step: Number(step ?? this.step),
      tool: text(data.tool),
      arguments: data.arguments ?? {},
      effect: text(data.effect),
      approval: text(data.approval),
      state: "running",
      performer: text(data.performer) || undefined,
    };
    this.calls.set(call, row);
    this.rows.push(row);
  }

  private changeCall(id: unknown, change: (call: CallRow) => void): void {
    const call = this.calls.get(text(id));
    if (call === undefined) return;
    call.rev += 1;
    change(call);
  }

  private waiting(data: Data): void {
    this.changeCall(data.call, (call) => {
      call.state = "client";
      call.performer = "client";
      call.deadline = text(data.deadline);
    });
  }

  private result(data: Data, at: At): void {
    this.changeCall(data.call, (call) => {
      call.state = text(data.outcome);
      call.content = text(data.content);
      call.code = text(data.code) || undefined;
      call.durationMs = data.duration_ms === undefined ? undefined : Number(data.duration_ms);
      call.wholeBytes = (data.whole as { bytes?: number } | undefined)?.bytes;
      call.performer = text(data.performer) || call.performer;
      call.by = text(data.by) || undefined;
      call.endedAt = at.time;
      const used = data.used as { spent?: Spent } | undefined;
      if (used?.spent) {
        call.usedUsd = used.spent.cost_usd;
        addSpent(this.spent, used.spent);
      }
      if (call.tool === "delegate") call.child = childOf(call.content);
    });
  }

  private decision(data: Data, at: At): void {
    this.turn = Math.max(this.turn, Number(data.turn ?? this.turn));
    const progress = data.progress as Data | undefined;
    if (progress) {
      const done = strings(progress.steps_completed);
      const left = strings(progress.steps_remaining);
      const plan: Plan = {
        current: numberOrNull(progress.current_step),
        total: numberOrNull(progress.total_steps),
        percent: numberOrNull(progress.completion_percentage),
        done,
        left,
      };
      if (done.length + left.length > 0 || plan.total !== null) this.plan = plan;
    }
    const spent = data.spent as Spent | undefined;
    this.addOwn(spent);
    const row: DecisionRow = {
      kind: "decision",
      ...rowOf(at),
      turn: this.turn,
      iteration: Number(data.iteration),
      max: Number(data.max_iterations),
      tools: strings(data.current_tools),
      spent,
      continues: data.continues === true,
      source: text(data.source),
      reason: text(data.reason),
      status: text(data.status),
      confidence: data.confidence == null ? undefined : Number(data.confidence),
      nudge: text(data.nudge) || undefined,
    };
    this.decisions.set(`${row.turn}-${row.iteration}`, row);
    this.rows.push(row);
  }

  private turnEnded(data: Data, at: At): void {
    this.phase = this.phase === "paused" ? "paused" : "idle";
    this.stopReason = text(data.stop_reason);
    this.finalResponse = text(data.final_response);
    const spent = data.spent as Spent | undefined;
    // The turn's own figure is the truth: it also has what failed attempts cost.
    if (spent) {
      addSpent(this.spentBefore, spent);
      this.spent = copySpent(this.spentBefore);
      const own = data.spent_own as Spent | undefined;
      if (own === undefined) this.ownBefore = null;
      else if (this.ownBefore !== null) addSpent(this.ownBefore, own);
      this.own = this.ownBefore === null ? null : copySpent(this.ownBefore);
    }
    for (const row of this.replies.values()) {
      if (!row.isStreaming) continue;
      row.isStreaming = false;
      row.rev += 1;
    }
    this.rows.push({
      kind: "end",
      ...rowOf(at),
      turn: Number(data.turn),
      stopReason: this.stopReason,
      iterations: Number(data.iterations ?? 0),
      spent,
    });
  }

  private gateOpened(data: Data, at: At): void {
    const gate: GateRow = {
      kind: "gate",
      ...rowOf(at),
      gate: text(data.gate),
      gateKind: data.kind as GateKind,
      tool: text(data.tool) || undefined,
      arguments: data.arguments,
      sha256: text(data.arguments_sha256),
      expires: text(data.expires),
      onExpiry: text(data.on_expiry) || "deny",
    };
    this.gates.set(gate.gate, gate);
    this.rows.push(gate);
    this.changeCall(gate.gate, (call) => {
      call.state = "asked";
      call.deadline = gate.expires;
    });
  }

  private gateClosed(data: Data): void {
    const gate = this.gates.get(text(data.gate));
    if (gate === undefined) return;
    gate.rev += 1;
    gate.decision = text(data.decision);
    gate.by = text(data.by) || undefined;
    gate.note = text(data.note) || undefined;
    this.changeCall(gate.gate, (call) => {
      call.decision = gate.decision;
      call.decidedBy = gate.by;
      call.note = gate.note;
      if (call.state === "asked") call.state = "running";
      if (data.arguments !== undefined) {
        call.original = call.arguments;
        call.arguments = data.arguments;
      }
    });
  }

  private paused(data: Data, at: At): void {
    this.phase = "paused";
    this.note(at, "info", "Paused", whoAndWhy(data));
  }

  private resumed(data: Data, at: At): void {
    this.phase = this.stopReason === "" && this.turn > 0 ? "running" : "idle";
    this.note(at, "info", "Resumed", whoAndWhy(data));
  }

  private pruned(data: Data, at: At): void {
    const tokens = `${count(data.tokens_before)} → ${count(data.tokens_after)} tokens`;
    const summary = data.summary ? `\n\n${text(data.summary)}` : "";
    this.note(at, "info", "Context shortened", `${tokens}. The log still has everything.${summary}`);
  }

  private configured(data: Data, at: At): void {
    const agent = data.agent as { id?: string; name?: string } | undefined;
    const model = data.model as { id?: string } | undefined;
    const changes: string[] = [];
    if (agent?.id !== undefined && agent.id !== this.agent) changes.push(`agent ${this.agent} → ${agent.id}`);
    if (model?.id !== undefined && model.id !== this.model) changes.push(`model ${this.model} → ${model.id}`);
    this.agent = agent?.id ?? this.agent;
    this.agentName = agent?.name ?? this.agentName;
    this.model = model?.id ?? this.model;
    if (data.prompt) this.prompt = text(data.prompt);
    this.settings = { ...this.settings, ...data };
    this.note(at, "info", "Settings changed", [changes.join(", "), whoAndWhy(data)].filter(Boolean).join(" "));
  }

  private error(data: Data, at: At): void {
    const isNotice = at.key === "";
    const during = data.during ? ` during ${text(data.during)}` : "";
    const title = `${text(data.code)}${during}${isNotice && data.retryable !== false ? ", tried again" : ""}`;
    const key = isNotice ? `n${this.rev}` : at.key;
    this.rows.push({
      kind: "note",
      ...rowOf(at),
      key,
      tone: isNotice ? "warning" : "error",
      title,
      text: text(data.message),
    });
  }

  private note(at: At, tone: NoteRow["tone"], title: string, words: string): void {
    this.rows.push({ kind: "note", ...rowOf(at), tone, title, text: words });
  }
}

interface At {
  key: string;
  time: string;
  slot?: number;
  /** Whether a chunk is the whole reply so far, for a viewer that came late. */
  isSnapshot?: boolean;
}

function rowOf(at: At): RowBase {
  return { key: at.key, rev: 0, time: at.time, slot: at.slot };
}

/** The id of an event is `<session>-<slot>-<number>`. */
function slotOf(envelope: Envelope): number | undefined {
  const found = /-(\d+)-\d+$/.exec(envelope.id ?? "");
  return found?.[1] === undefined ? undefined : Number(found[1]);
}

/** Compares attempts such as `1.2` by their numbers. An empty one is the oldest. */
export function compareAttempts(a: string, b: string): number {
  const [left, right] = [a.split(".").map(Number), b.split(".").map(Number)];
  for (let index = 0; index < Math.max(left.length, right.length); index++) {
    const difference = (left[index] ?? 0) - (right[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

/** How a reply ended of which only the beginning came. */
const CUT_OFF = "cut_off";

function emptySpent(): Spent {
  return { usage: { input: 0, output: 0, cached: 0, reasoning: 0 }, cost_usd: 0 };
}

function addSpent(total: Spent, more: Spent): void {
  total.usage.input += more.usage?.input ?? 0;
  total.usage.output += more.usage?.output ?? 0;
  total.usage.cached += more.usage?.cached ?? 0;
  total.usage.reasoning += more.usage?.reasoning ?? 0;
  total.cost_usd += more.cost_usd ?? 0;
}

export function tokensOf({ usage }: Spent): number {
  return usage.input + usage.output;
}

/** Whether `all` has more than `part`. */
export function isMore(all: Spent, part: Spent): boolean {
  return tokensOf(all) > tokensOf(part) || all.cost_usd > part.cost_usd;
}

function copySpent(spent: Spent): Spent {
  return { usage: { ...spent.usage }, cost_usd: spent.cost_usd };
}

/** The text and the images of a message, which is text or a list of parts. */
function contentOf(content: unknown): { text: string; images: string[] } {
  if (typeof content === "string") return { text: content, images: [] };
  const texts: string[] = [];
  const images: string[] = [];
  for (const part of Array.isArray(content) ? (content as Data[]) : []) {
    if (typeof part.text === "string") texts.push(part.text);
    const url = (part.image_url as { url?: string } | undefined)?.url;
    if (url !== undefined) images.push(url);
  }
  return { text: texts.join("\n"), images };
}

function childOf(content: string): string | undefined {
  const found = /"session_id":"([A-Za-z0-9_-]{1,64})"/.exec(content);
  return found?.[1];
}

function whoAndWhy(data: Data): string {
  const by = data.by ? `by ${text(data.by)}` : "";
  return [by, text(data.reason)].filter(Boolean).join(": ");
}

function text(value: unknown): string {
  if (typeof value === "string") return value;
  return value === undefined || value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
}

function strings(value: unknown): string[] {
  return Array.isArray(value) ? value.map(text) : [];
}

function numberOrNull(value: unknown): number | null {
  return typeof value === "number" ? value : null;
}

function count(value: unknown): string {
  return typeof value === "number" ? value.toLocaleString("en") : "?";
}
