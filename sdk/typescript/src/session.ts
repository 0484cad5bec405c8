// A session: messages, events that survive lost connections, and turns.

import type { Api } from "./api.js";
import type { ClientTool } from "./client-tool.js";
import { AiloopError, Conflict } from "./errors.js";
import type { Event } from "./event.js";
import type { GateCallbacks } from "./gates.js";
import { Responder } from "./responder.js";
import { type Transport, isRetryable, newId, pauseMs, sleep } from "./transport.js";
import { Turn, TurnStart } from "./turn.js";
import type { CommandReply, SessionSummary } from "./types.js";

/** A message: a text, or parts with texts and images. */
export type Content = string | Record<string, unknown>[];

/** Settings of a message. */
export interface MessageOptions {
  /** `queue` begins a turn of its own, `steer` is read in the turn that runs, `interrupt` stops its model call. */
  mode?: "queue" | "steer" | "interrupt" | undefined;
  /** With the same key, a message is sent once. */
  idempotencyKey?: string | undefined;
}

/** What a session of this program knows and does. */
export interface SessionOptions {
  tools: readonly ClientTool[];
  callbacks: GateCallbacks;
  /** The message with which the session was started, and its turn if it has begun. */
  firstMessage?: { id: string; turn?: number | undefined } | undefined;
  isNew: boolean;
}

/** A session of the fleet. Make one with `Client.start` or `Client.session`. */
export class Session {
  private firstMessage: SessionOptions["firstMessage"];
  /** The last `seq` that this program has read; unknown for a session that others have used. */
  private seq: number | undefined;

  constructor(
    private readonly api: Api,
    private readonly transport: Transport,
    readonly id: string,
    private readonly options: SessionOptions,
  ) {
    this.firstMessage = options.firstMessage;
    this.seq = options.isNew ? 0 : undefined;
  }

  /** Sends a message of the user, and does not wait for its turn. */
  async send(content: Content, { mode = "queue", idempotencyKey }: MessageOptions = {}): Promise<CommandReply> {
    const key = idempotencyKey ?? newId();
    return this.api.sessionSend(this.id, { content, mode, command_id: key });
  }

  /**
   * Sends a message and follows its turn. Calls of the client's tools are performed meanwhile.
   *
   * Without a message, it is the turn of the prompt with which the session was started, else the turn that runs, else
   * the last one. With the same `idempotencyKey`, a message is sent once, and its turn is found again after a crash.
   */
  turn(content?: Content, options: MessageOptions = {}): Turn {
    const responder = new Responder(this.api, this.id, this.options.tools, this.options.callbacks);
    const begin = async (): Promise<TurnStart> => {
      if (content === undefined) return this.findTurn(responder);
      const seq = await this.findPlace(responder, options.idempotencyKey !== undefined);
      const messageId = options.idempotencyKey ?? newId();
      const { turn } = await this.send(content, { ...options, idempotencyKey: messageId });
      return new TurnStart(seq, messageId, turn);
    };
    const onEnd = (seq: number): void => {
      this.seq = Math.max(this.seq ?? 0, seq);
    };
    return new Turn({ begin, follow: (fromSeq) => this.events({ fromSeq }), responder, onEnd });
  }

  /**
   * Yields the events from `fromSeq` on, live, until the session ends.
   *
   * It connects again by itself. No event with a `seq` is lost or comes twice. Chunks of replies may be lost; after a
   * new connection, a chunk with `isSnapshot` has all the text of the reply so far.
   */
  async *events({ fromSeq = 1, chunks = true } = {}): AsyncGenerator<Event> {
    let [last, failures, deadline] = [fromSeq - 1, 0, 0];
    const path = `/v1/sessions/${encodeURIComponent(this.id)}/events`;
    for (;;) {
      let failure: AiloopError | undefined;
      try {
        const query = { from_seq: last + 1, no_chunks: !chunks };
        for await (const event of this.transport.stream({ method: "GET", path, query })) {
          failures = 0;
          if (event.seq !== undefined) {
            if (event.seq <= last) continue;
            if (event.seq > last + 1) break;
            last = event.seq;
          }
          yield event;
          if (event.topic === "session_ended") return;
        }
      } catch (error) {
        if (!(error instanceof AiloopError) || !isRetryable(error)) throw error;
        failure = error;
      }
      failures += 1;
      if (failures === 1) deadline = Date.now() + this.transport.retryMs;
      const wait = pauseMs(failures, failure);
      if (Date.now() + wait > deadline) {
        const message = `the events of session ${this.id} end again and again`;
        throw failure ?? new AiloopError(message, { code: "unavailable" });
      }
      await sleep(wait);
    }
  }

  /** The summary: phase, agent, model, what was spent, and what waits. */
  get(): Promise<SessionSummary> {
    return this.api.sessionGet(this.id);
  }

  /** Pauses: no new call is opened until the session is resumed. */
  pause(reason?: string): Promise<CommandReply> {
    return this.api.sessionPause(this.id, reason === undefined ? {} : { reason });
  }

  /** Resumes a paused session. */
  resume(reason?: string): Promise<CommandReply> {
    return this.api.sessionResume(this.id, reason === undefined ? {} : { reason });
  }

  /** Cancels the turn that runs. The session stays open, and messages that wait begin the next turn. */
  cancel(reason?: string): Promise<CommandReply> {
    return this.api.sessionCancelTurn(this.id, reason === undefined ? {} : { reason });
  }

  /** Cancels open calls, and ends the session. */
  stop(reason?: string): Promise<CommandReply> {
    return this.api.sessionStop(this.id, reason === undefined ? {} : { reason });
  }

  /** After which `seq` to read, before a message is sent. One that may have been sent before can be anywhere. */
  private async findPlace(responder: Responder, mayBeRepeated: boolean): Promise<number> {
    if (this.seq !== undefined && !mayBeRepeated) return this.seq;
    const summary = await this.get();
    responder.skipAnswered(summary);
    return summary.phase === "idle" && !mayBeRepeated ? summary.seq : 0;
  }

  private async findTurn(responder: Responder): Promise<TurnStart> {
    if (this.firstMessage !== undefined) {
      const { id, turn } = this.firstMessage;
      this.firstMessage = undefined;
      if (this.seq === undefined) responder.skipAnswered(await this.get());
      return new TurnStart(0, id, turn);
    }
    const summary = await this.get();
    responder.skipAnswered(summary);
    if (summary.turn === 0) {
      throw new Conflict(`session ${this.id} has no turn yet: give a message`, { code: "not_now" });
    }
    return new TurnStart(0, undefined, summary.turn);
  }
}
