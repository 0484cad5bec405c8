// What the edge returns and publishes, as far as the console reads it. See docs/reference/json-rpc.md and protocol.md.

export interface Usage {
  input: number;
  output: number;
  cached: number;
  reasoning: number;
}

export interface Spent {
  usage: Usage;
  cost_usd: number;
}

export type Phase = "idle" | "running" | "paused" | "ended";

export type GateKind = "approval" | "question" | { limit: string } | { error: string };

export interface OpenGate {
  gate: string;
  kind: GateKind;
  tool?: string;
  /** JSON text, or its beginning if `shortened`. */
  arguments: string;
  shortened?: boolean;
  arguments_sha256: string;
  expires: string;
}

export interface ClientCall {
  call: string;
  tool: string;
  arguments: string;
  shortened?: boolean;
  since: string;
  deadline: string;
}

export interface OfSession {
  session_id: string;
  agent: string;
  title: string;
}

export interface SessionSummary {
  session_id: string;
  tenant: string;
  phase: Phase;
  agent: string;
  model: string;
  title: string;
  turn: number;
  step: number;
  seq: number;
  started: string;
  updated: string;
  /** Of the session and of those that it started. */
  spent: Spent;
  /** Of the session alone; absent where an older version of ailoop counted a part of it. */
  spent_own?: Spent;
  stop_reason?: string;
  parent?: string;
  tally?: { tool_calls?: number; iterations?: number };
  gates?: OpenGate[];
  client_calls?: ClientCall[];
}

export interface Agent {
  id: string;
  name: string;
  aliases: string[];
  model?: string;
  is_default: boolean;
}

/** A part of a composed prompt; `start` and `bytes` count bytes of UTF-8. */
export interface Component {
  name: string;
  sha256: string;
  start: number;
  bytes: number;
}

export interface AgentDescription {
  id: string;
  name: string;
  model: string;
  prompt: string;
  fingerprint: string;
  components: Component[];
  warnings: string[];
  continuation: {
    enabled: boolean;
    require_explicit_signal: boolean;
    detect_intent: boolean;
    max_iterations: number;
    /** Seconds. */
    timeout: number;
    continuation_patterns: string[];
    termination_patterns: string[];
    judge?: string;
    limits: Record<string, number>;
  };
  tools: { allow: string[]; deny: string[] };
  approvals?: { tool: string; ask: string; when?: Record<string, string> }[];
}

export interface ReplyDecision {
  continues: boolean;
  source: string;
  reason: string;
  visible: string;
}

export interface Model {
  id: string;
  provider: string;
  multi_tool: boolean;
  max_parallel_tools: number;
  structured_output: boolean;
  reasoning: boolean;
  context_window: number | null;
  max_output: number | null;
  is_default: boolean;
  /** The provider's name for it. */
  upstream?: string;
  /** Limits of its provider, for all models there. */
  requests_per_minute?: number;
  tokens_per_minute?: number;
}

/** A model that failed lately, as a gateway sees it. */
export interface ModelHealth {
  provider: string;
  model: string;
  failures: number;
  last_failure: string;
  open_until?: string;
}

export interface Tool {
  name: string;
  description: string;
  parameters: unknown;
  effect: string;
  approval: string;
  timeout_ms?: number;
  max_output?: number;
  instructions?: string;
  version?: string;
}

export interface Stats {
  agent: string;
  model: string;
  sessions: number;
  turns: number;
  stop_reasons: Record<string, number>;
  decisions: Record<string, number>;
  limit_hits: number;
  premature: number;
  iterations: number;
  tool_calls: number;
  completed_rate: number | null;
  premature_rate: number | null;
  /** What the sessions used themselves: what one delegated counts where it was done. */
  spent_own: Spent;
  /** Sessions that are not in `spent_own`: an older version did not count that apart. */
  uncounted: number;
}

/** Sessions that started in one interval. */
export interface IntervalStats {
  start: string;
  sessions: number;
  failed: number;
  spent_own: Spent;
  uncounted: number;
}

/** What the credential of this page grants. */
export interface Caller {
  subject: string;
  tenant: string;
  scopes: string[];
  agents?: string[];
  methods: string[];
}

/** A process that serves a tool, as it describes itself. */
export interface ToolReplica {
  tool: string;
  instance: string;
  version: string;
  started?: string;
  calls: number;
  errors: number;
  average_ms?: number;
  last_error?: string;
}

/** A call of a tool outside of a session; without `result` it waits for an approval. */
export interface TriedTool {
  tool: string;
  arguments: unknown;
  arguments_sha256: string;
  needs_approval: boolean;
  result?: { outcome: string; content: string; code?: string; duration_ms: number };
}

export interface Budget {
  budget: string;
  agent?: string;
  per: string;
  usd_max?: number | null;
  tokens_max?: number | null;
  usd_spent: number;
  tokens_spent: number;
  usd_reserved: number;
  tokens_reserved: number;
  running: number;
  ends: string;
}

export interface Span {
  id: string;
  parent?: string;
  name: string;
  start_ms: number;
  end_ms: number;
  is_open?: boolean;
  attributes: Record<string, unknown>;
  error?: string;
}

export interface TraceTurn {
  turn: number;
  trace_id: string;
  has_ended: boolean;
  is_sampled: boolean;
  url?: string;
  spans: Span[];
}

export interface CommitLine {
  slot: number;
  time: string;
  phase: Phase;
  events: string[];
}

export interface Replay {
  session_id: string;
  slot: number;
  last_slot: number;
  phase: Phase;
  seq: number;
  /** Absent if the request leaves it out. */
  commits?: CommitLine[];
  differs: unknown[];
  state: unknown;
}

export interface Wait {
  kind: string;
  gate?: string;
  gate_kind?: GateKind;
  call?: string;
  attempt?: number;
  tool?: string;
  model?: string;
  child?: string;
  count?: number;
  at?: string;
  deadline?: string;
  since?: string;
  holder?: { replica: string; held_ms: number; delivery: number; note?: string };
}

export interface Description extends SessionSummary {
  now: string;
  waits: Wait[];
  waiting_inputs: number;
  timer?: string;
  errors: { time: string; code: string; message: string }[];
  dead_letters: { name: string; code: string; reason: string }[];
  findings: { what: string; advice: string }[];
}

export interface Replica {
  service: string;
  replica: string;
  version: string;
  commit: string;
  fold: number;
  started: string;
  clock_ahead_ms: number;
  waiting_for: string[];
  warnings: string[];
  work: Record<string, { running: number; max: number }>;
  models?: ModelHealth[];
}

export interface QueueStatus {
  queue: string;
  waiting: number;
  held: number;
  pullers?: number;
  oldest_ms?: number;
}

export interface FleetStatus {
  now: string;
  replicas: Replica[];
  queues: QueueStatus[];
  sessions: Record<string, number>;
  dead_letters: number;
  storage: { name: string; messages: number; bytes: number }[];
}

export interface DeadLetter {
  session_id: string;
  kind: string;
  id: string;
  code: string;
  reason: string;
  delivered: number;
  stored_at: string;
  subject: string;
  body?: unknown;
}

export interface Mail {
  id: string;
  from: string;
  subject: string;
  text: string;
  sent: string;
  answers?: { id: string; subject: string; excerpt: string };
}

export interface CommandResult {
  session_id: string;
  command_id: string;
  done: boolean;
  seq: number;
  turn?: number;
}

/** The envelope of an event of a session, with its topic as `method`. */
export interface Envelope {
  id?: string;
  session_id: string;
  seq?: number;
  time?: string;
  trace_id?: string;
  data?: Record<string, unknown>;
  [field: string]: unknown;
}
