// One turn of a session: its text as it streams, and its result.

import { AiloopError, Conflict, TurnFailed } from "./errors.js";
import { type Event, hasTopic } from "./event.js";
import { ReplyText } from "./reply-text.js";
import type { Responder } from "./responder.js";
import type { Spent, StopReason } from "./types.js";

/** How a turn ended. */
export interface TurnResult {
  sessionId: string;
  turn: number;
  /** The answer for the user. */
  text: string;
  /** `completed`, or the limit at which the turn ended. */
  stopReason: StopReason;
  iterations: number;
  /** Tokens and money that the turn used, with what it delegated. */
  spent: Spent;
}

/** Where to read from, and which turn it is. */
export class TurnStart {
  /** The turn that runs. */
  private running: number | undefined;
  /** Whether the message is in the log, and its turn is not known. */
  private isWaiting = false;
  /** Turns that ended meanwhile without a start that was seen. One had started before the message came. */
  private unseenTurns = 0;

  constructor(
    /** The last `seq` before the events to read. */
    public seq: number,
    /** Id of the message whose turn it is. */
    private readonly messageId?: string,
    /** Number of the turn, once it is known: an event says with which messages a turn begins. */
    public turn?: number,
  ) {}

  /** Takes an event, which may say which turn it is. */
  push(event: Event): void {
    this.seq = event.seq ?? this.seq;
    if (event.topic === "message.user_processed" && event.data["message_id"] === this.messageId) {
      // A message that does not wait is read by the turn that runs.
      if (event.data["mode"] !== "queue") this.turn ??= this.running;
      this.isWaiting = this.turn === undefined;
    } else if (hasTopic(event, "turn.started")) {
      this.running = event.data.turn;
      if (this.messageId === undefined || !event.data.messages.includes(this.messageId)) return;
      [this.turn, this.isWaiting] = [this.running, false];
    } else if (hasTopic(event, "turn.completed")) {
      if (this.isWaiting && this.running === undefined) this.unseenTurns += 1;
      this.running = undefined;
      if (this.unseenTurns > 1) {
        const message = `no event said with which messages turn ${event.data.turn} began: upgrade the fleet`;
        throw new AiloopError(message, { code: "internal" });
      }
    }
  }
}

/** What a turn needs of its session. */
export interface TurnSource {
  begin: () => Promise<TurnStart>;
  follow: (fromSeq: number) => AsyncGenerator<Event>;
  responder: Responder;
  onEnd: (seq: number) => void;
}

/**
 * A turn. Iterate over it for its text as it streams, or await it for its result alone.
 *
 * Nothing is sent before. A turn goes on in the fleet if this object is dropped. Like a promise, it is awaited if an
 * `async` function returns it.
 */
export class Turn implements AsyncIterable<string>, PromiseLike<TurnResult> {
  private ended: TurnResult | undefined;
  private failure: TurnFailed | undefined;
  private texts: AsyncGenerator<string> | undefined;

  constructor(private readonly source: TurnSource) {}

  [Symbol.asyncIterator](): AsyncIterator<string> {
    const texts = (this.texts ??= this.run());
    // A loop that ends early does not close the turn: `result` reads on.
    return { next: () => texts.next() };
  }

  then<A = TurnResult, B = never>(
    onResult?: ((result: TurnResult) => A | PromiseLike<A>) | null,
    onError?: ((error: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.result().then(onResult, onError);
  }

  /** Waits for the end of the turn. Throws `TurnFailed` if it could not go on. */
  async result(): Promise<TurnResult> {
    if (!this.ended && !this.failure) {
      for await (const _ of this);
    }
    if (this.failure) throw this.failure;
    if (!this.ended) {
      const message = "this turn was given up before its end: send the prompt again with its key";
      throw new Conflict(message, { code: "not_now" });
    }
    return this.ended;
  }

  private async *run(): AsyncGenerator<string> {
    try {
      yield* this.read(await this.source.begin());
    } finally {
      this.source.responder.close();
    }
  }

  private async *read(start: TurnStart): AsyncGenerator<string> {
    const { responder, onEnd, follow } = this.source;
    const replies = new Map<number, ReplyText>();
    let hasText = false;
    let lastError: Record<string, unknown> | undefined;
    for await (const event of orFailure(follow(start.seq + 1), responder)) {
      responder.push(event);
      start.push(event);
      const isOurs = start.turn !== undefined && event.data["turn"] === start.turn;
      if (isOurs && (hasTopic(event, "message.ai_chunk_received") || hasTopic(event, "message.ai_full_received"))) {
        const text = textOf(event, replies, hasText);
        hasText ||= text !== "";
        if (text) yield text;
      } else if (event.topic === "error" && event.seq !== undefined) {
        lastError = event.data;
      } else if (hasTopic(event, "session_ended") || (isOurs && hasTopic(event, "turn.completed"))) {
        onEnd(start.seq);
        this.end(event, lastError);
        return;
      }
    }
  }

  private end(event: Event<"turn.completed"> | Event<"session_ended">, lastError?: Record<string, unknown>): void {
    const { data } = event;
    const stopReason = data.stop_reason ?? "stopped";
    if (stopReason === "error") {
      const message = String(lastError?.["message"] ?? "the turn ended with an error");
      this.failure = new TurnFailed(message, { code: String(lastError?.["code"] ?? "internal") });
      throw this.failure;
    }
    this.ended = {
      sessionId: event.sessionId,
      turn: "turn" in data ? data.turn : 0,
      text: data.final_response,
      stopReason,
      iterations: data.iterations,
      spent: data.spent,
    };
  }
}

/** The text that an event adds. An empty line stands between two steps. */
function textOf(
  event: Event<"message.ai_chunk_received"> | Event<"message.ai_full_received">,
  replies: Map<number, ReplyText>,
  hasText: boolean,
): string {
  const reply = replies.get(event.data.step) ?? new ReplyText();
  replies.set(event.data.step, reply);
  const isFirst = !reply.isBegun;
  const isChunk = (one: Event): one is Event<"message.ai_chunk_received"> => hasTopic(one, "message.ai_chunk_received");
  const text = isChunk(event as Event)
    ? reply.push(event as Event<"message.ai_chunk_received">)
    : reply.finish((event as Event<"message.ai_full_received">).data.text);
  return text && isFirst && hasText ? `\n\n${text.trimStart()}` : text;
}

/** The events, until an answer to a call or gate fails. */
async function* orFailure(events: AsyncGenerator<Event>, responder: Responder): AsyncGenerator<Event> {
  let isOver = false;
  try {
    for (;;) {
      const next = await Promise.race([events.next(), responder.failure]);
      if (next.done) {
        isOver = true;
        return;
      }
      yield next.value;
    }
  } finally {
    // After a failure, a read is under way, and the stream ends when it has come back.
    if (!isOver) void events.return(undefined).catch(() => undefined);
  }
}
