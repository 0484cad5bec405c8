// One call of a tool, as its function sees it.

import type { Msg, NatsConnection } from "@nats-io/transport-node";
import { headers as newHeaders } from "@nats-io/transport-node";

/** A call may have a thousand replies, and one of them is the result. */
const PROGRESS_MAX = 990;
const PROGRESS_UNPACED_MAX = 500;
/** After that many, one is sent in this part of the timeout. */
const PROGRESS_PER_TIMEOUT = 4;

/** An error that the model reads. `isUnknown` says that the call may have taken effect all the same. */
export class ToolError extends Error {
  readonly isUnknown: boolean;

  constructor(message: string, { isUnknown = false } = {}) {
    super(message);
    this.name = "ToolError";
    this.isUnknown = isUnknown;
  }
}

/** One call. A caller without an executor may leave out every header; the texts are empty then. */
export class Call {
  /** Id of the call, unique in the fleet: an `idempotent` tool takes effect once per id. */
  readonly id: string;
  readonly sessionId: string;
  readonly sessionStarted: string;
  readonly agent: string;
  /** `<attempt>.<delivery>`: differs between two tries of the same call. */
  readonly attempt: string;
  readonly traceparent: string;
  /** Aborted by a cancel, by a stop of the tool, and a second after the deadline. */
  readonly signal: AbortSignal;
  /** Whether the function began, so that the call may have taken effect. */
  hasBegun = false;
  private readonly controller = new AbortController();
  private deadlineMs: number | undefined;
  private progressCount = 0;
  private progressAt = 0;

  constructor(
    private readonly client: NatsConnection,
    private readonly message: Msg,
    private readonly instance: string,
    private readonly timeoutMs: number,
  ) {
    const header = (name: string): string => message.headers?.get(name) ?? "";
    this.id = header("Ailoop-Call");
    this.sessionId = header("Ailoop-Session");
    this.sessionStarted = header("Ailoop-Session-Started");
    this.agent = header("Ailoop-Agent");
    this.attempt = header("Ailoop-Attempt");
    this.traceparent = header("traceparent");
    const deadline = Date.parse(header("Ailoop-Deadline"));
    this.deadlineMs = Number.isNaN(deadline) ? undefined : deadline;
    this.signal = this.controller.signal;
  }

  /** The arguments object. An empty body counts as `{}`. */
  arguments(): Record<string, unknown> {
    let value: unknown;
    try {
      value = this.message.data.length === 0 ? {} : JSON.parse(this.message.string());
    } catch (error) {
      throw new ToolError(`the arguments are not JSON: ${(error as Error).message}`);
    }
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      throw new ToolError("the arguments are not a JSON object");
    }
    return value as Record<string, unknown>;
  }

  /** Milliseconds until the deadline. */
  get timeLeftMs(): number {
    return this.deadlineMs === undefined ? Infinity : this.deadlineMs - Date.now();
  }

  /** Reports progress: people read it, and the call gets its whole timeout again. Best effort. */
  progress(text: string): void {
    const now = Date.now();
    const isPaced = now - this.progressAt >= this.timeoutMs / PROGRESS_PER_TIMEOUT;
    if (this.progressCount >= PROGRESS_MAX || (this.progressCount >= PROGRESS_UNPACED_MAX && !isPaced)) return;
    this.progressCount += 1;
    this.progressAt = now;
    if (this.deadlineMs !== undefined) this.deadlineMs = Math.max(this.deadlineMs, now + this.timeoutMs);
    this.sendProgress(text);
  }

  /** Sends a reply that is not the last. It says which replica works on the call, so that its loss is noticed. */
  sendProgress(text: string): void {
    this.respond(text, { "Ailoop-Progress": "1", "Ailoop-Instance": this.instance });
  }

  /** Sends a reply, if somebody waits for one. */
  respond(body: string | Uint8Array, values: Record<string, string> = {}): void {
    if (!this.message.reply || this.client.isClosed()) return;
    const headers = newHeaders();
    for (const [name, value] of Object.entries(values)) headers.set(name, value);
    this.client.publish(this.message.reply, body, Object.keys(values).length > 0 ? { headers } : {});
  }

  /** Ends the call for this reason. */
  abort(reason: string): void {
    this.controller.abort(new ToolError(reason));
  }
}
