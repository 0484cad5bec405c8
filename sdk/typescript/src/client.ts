// The client.

import { Api } from "./api.js";
import { type ClientTool, describe } from "./client-tool.js";
import type { GateCallbacks } from "./gates.js";
import { type Content, Session } from "./session.js";
import { Transport, type TransportOptions, newId } from "./transport.js";
import type { TurnResult } from "./turn.js";

/** Settings of a session. */
export interface StartOptions extends GateCallbacks {
  /** Functions of this program that the agent may call. */
  tools?: readonly ClientTool[] | undefined;
  /** The idempotency key is the id if none is given, so that the same key means the same session. */
  sessionId?: string | undefined;
  idempotencyKey?: string | undefined;
  /** Whether the session waits for more messages after its first turn. */
  interactive?: boolean | undefined;
  /** Restricts the agent to some of its own tools. */
  fleetTools?: string[] | undefined;
  /** Other parameters of `api.sessionStart`, such as `model` or `continuation`. */
  settings?: Record<string, unknown> | undefined;
}

/**
 * A client of one edge, or of several behind one address.
 *
 * Requests that may be repeated are, for `retryMs`, after a connection that broke and when the server asks for it.
 */
export class Client {
  /** Every route of the API as a method. */
  readonly api: Api;
  private readonly transport: Transport;

  constructor(options: TransportOptions = {}) {
    this.transport = new Transport(options);
    this.api = new Api((request) => this.transport.send(request));
  }

  /**
   * Runs a task in a session of its own, and returns its result. `undefined` is the default agent.
   *
   * With an `idempotencyKey`, a task that was started before is not started again: its result is returned.
   */
  async run(agent: string | undefined, prompt: Content, options: Omit<StartOptions, "interactive"> = {}): Promise<TurnResult> {
    const session = await this.start(agent, prompt, { ...options, interactive: false });
    return session.turn().result();
  }

  /** Starts a session. `session.turn()` follows the turn of `prompt`. */
  async start(agent?: string, prompt?: Content, options: StartOptions = {}): Promise<Session> {
    const { tools = [], onApproval, onQuestion, sessionId, idempotencyKey, interactive = true, fleetTools } = options;
    const key = idempotencyKey ?? newId();
    const optional = { agent, prompt, tools: fleetTools, client_tools: tools.length > 0 ? tools.map(describe) : undefined };
    const reply = await this.api.sessionStart({
      ...options.settings,
      ...optional,
      interactive,
      session_id: sessionId ?? key,
      command_id: key,
    });
    const firstMessage = prompt === undefined ? undefined : { id: key, turn: reply.turn };
    // A session that was started with this key before has events of its own.
    const isNew = idempotencyKey === undefined;
    return new Session(this.api, this.transport, reply.session_id, { tools, callbacks: { onApproval, onQuestion }, firstMessage, isNew });
  }

  /** A session that exists. `tools` are functions for the tools with which it was started. */
  session(sessionId: string, { tools = [], ...callbacks }: Pick<StartOptions, "tools" | keyof GateCallbacks> = {}): Session {
    return new Session(this.api, this.transport, sessionId, { tools, callbacks, isNew: false });
  }
}
