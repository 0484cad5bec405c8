// One JSON-RPC connection to the edge that outlives its sockets: requests are sent again after a break, and watches go
// on from their cursor. Everything from outside (socket, timer, probe) is an argument, so that tests need no browser.

import type { Envelope } from "./types.ts";

export type ConnectionState =
  | { kind: "connecting" }
  | { kind: "open" }
  | { kind: "waiting"; attempt: number; until: number; reason: string }
  | { kind: "locked"; reason: string };

/** The part of a WebSocket that is used. */
export interface Socket {
  onopen: (() => void) | null;
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: ((event: { code: number; reason: string }) => void) | null;
  send(text: string): void;
  close(): void;
}

export interface Environment {
  connect(): Socket;
  /** Says why a connection failed before it opened: the key is refused, or nobody answers. */
  probe(): Promise<"ok" | "locked" | "unreachable">;
  now(): number;
  random(): number;
  schedule(task: () => void, milliseconds: number): () => void;
}

/** A request that the edge refused, or that was lost. `code` is the stable code of docs/reference/errors.md. */
export class RpcError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly data: Record<string, unknown> = {},
  ) {
    super(message);
  }
}

interface Pending {
  frame: string;
  isRepeatable: boolean;
  isSent: boolean;
  deadline: number;
  resolve(value: unknown): void;
  reject(error: RpcError): void;
}

/** What a watch delivers. */
export interface WatchSink {
  event(method: string, envelope: Envelope): void;
  /** The events begin again: what was folded so far is void. */
  reset(isPartial: boolean): void;
  failed(error: RpcError): void;
}

interface Watch {
  session: string;
  cursor: number;
  sink: WatchSink;
  hasEnded: boolean;
  /** Whether the edge has answered the watch. What comes before belongs to an older watch of the session. */
  isLive: boolean;
  /** Resyncs in a row, of which the second one accepts a beginning in the middle. */
  resyncs: number;
}

const BACKOFF_MS_MIN = 250;
const BACKOFF_MS_MAX = 10_000;
/** The edge answers a command after 30 s at the latest; a socket that is silent for longer is dead. */
const ANSWER_MS_MAX = 45_000;
const REWATCH_MS = 1000;
/** Close code of an edge that takes the credential back. */
const CLOSED_CREDENTIAL = 1008;

export class RpcClient {
  state: ConnectionState = { kind: "connecting" };
  private socket: Socket | null = null;
  private isOpen = false;
  private nextId = 1;
  private attempt = 0;
  private cancelRetry: (() => void) | null = null;
  private readonly pending = new Map<number, Pending>();
  private readonly watches = new Map<string, Watch>();

  constructor(
    private readonly environment: Environment,
    private readonly onState: (state: ConnectionState) => void = () => {},
  ) {}

  /** Connects now, also while a retry waits. */
  connect(): void {
    this.cancelRetry?.();
    this.cancelRetry = null;
    this.drop();
    this.setState({ kind: "connecting" });
    let socket: Socket;
    try {
      socket = this.environment.connect();
    } catch (error) {
      this.setState({ kind: "locked", reason: String(error instanceof Error ? error.message : error) });
      return;
    }
    this.socket = socket;
    socket.onopen = () => this.opened(socket);
    socket.onmessage = (event) => this.received(socket, event.data);
    socket.onclose = (event) => void this.closed(socket, event.code, event.reason);
  }

  /**
   * Sends a request. A repeatable one (a read, or a command with its id) is sent again after a break and keeps its
   * promise; another one fails with `disconnected`.
   */
  call<T>(method: string, params: Record<string, unknown> = {}, isRepeatable = true): Promise<T> {
    const id = this.nextId++;
    const frame = JSON.stringify({ jsonrpc: "2.0", id, method, params });
    return new Promise<T>((resolve, reject) => {
      const request: Pending = { frame, isRepeatable, isSent: false, deadline: 0, resolve, reject };
      this.pending.set(id, request);
      this.sendRequest(request);
    });
  }

  /** Follows a session from the event after `cursor`. A session has one watch. */
  watch(session: string, cursor: number, sink: WatchSink): () => void {
    const watch: Watch = { session, cursor, sink, hasEnded: false, isLive: false, resyncs: 0 };
    this.watches.set(session, watch);
    this.sendWatch(watch);
    return () => {
      if (this.watches.get(session) !== watch) return;
      this.watches.delete(session);
      if (this.isOpen && !watch.hasEnded) this.call("session.unwatch", { session_id: session }, false).catch(() => {});
    };
  }

  private sendRequest(request: Pending): void {
    if (!this.isOpen || this.socket === null) return;
    request.isSent = true;
    request.deadline = this.environment.now() + ANSWER_MS_MAX;
    this.socket.send(request.frame);
    // A watch waits until its session exists.
    if (!request.frame.includes('"method":"session.watch"')) {
      this.environment.schedule(() => this.checkAnswered(request), ANSWER_MS_MAX);
    }
  }

  private checkAnswered(request: Pending): void {
    const isWaiting = [...this.pending.values()].includes(request) && request.isSent;
    if (isWaiting && this.environment.now() >= request.deadline) this.lost("the edge does not answer");
  }

  private sendWatch(watch: Watch): void {
    if (!this.isOpen || watch.hasEnded) return;
    const socket = this.socket;
    watch.isLive = false;
    this.call("session.watch", { session_id: watch.session, from_seq: watch.cursor + 1 }, false).then(
      () => {
        watch.isLive = true;
      },
      (error: RpcError) => {
        if (this.watches.get(watch.session) !== watch || this.socket !== socket) return;
        if (error.code === "resync") this.resync(watch, error.data);
        else if (error.code === "disconnected" || error.code === "not_now") return;
        else if (error.code === "overloaded" || error.code === "internal") this.rewatchLater(watch);
        else watch.sink.failed(error);
      },
    );
  }

  private rewatchLater(watch: Watch): void {
    const socket = this.socket;
    this.environment.schedule(() => {
      if (this.watches.get(watch.session) === watch && this.socket === socket) this.sendWatch(watch);
    }, REWATCH_MS);
  }

  /** The events at the cursor are gone: begin at 1, and where that is gone too, where the edge says. */
  private resync(watch: Watch, data: Record<string, unknown>): void {
    watch.resyncs += 1;
    const isPartial = watch.resyncs > 1 && typeof data.seq === "number";
    watch.cursor = isPartial ? (data.seq as number) - 1 : 0;
    watch.sink.reset(isPartial);
    this.sendWatch(watch);
  }

  private opened(socket: Socket): void {
    if (this.socket !== socket) return;
    this.isOpen = true;
    this.attempt = 0;
    this.setState({ kind: "open" });
    for (const request of this.pending.values()) this.sendRequest(request);
    for (const watch of this.watches.values()) this.sendWatch(watch);
  }

  private received(socket: Socket, data: unknown): void {
    if (this.socket !== socket || typeof data !== "string") return;
    const message = JSON.parse(data) as Record<string, unknown>;
    if (typeof message.method === "string") {
      this.notified(message.method, (message.params ?? {}) as Envelope);
      return;
    }
    const request = this.pending.get(message.id as number);
    if (request === undefined) return;
    this.pending.delete(message.id as number);
    if (message.error === undefined) {
      request.resolve(message.result);
      return;
    }
    const error = message.error as { message: string; data?: Record<string, unknown> };
    request.reject(new RpcError(String(error.data?.code ?? "internal"), error.message, error.data));
  }

  private notified(method: string, envelope: Envelope): void {
    const watch = this.watches.get(envelope.session_id);
    if (watch === undefined || !watch.isLive) return;
    if (method === "resync") return this.resync(watch, envelope);
    if (method === "watch.failed") return this.rewatchLater(watch);
    const { seq } = envelope;
    if (seq !== undefined) {
      // After a reconnect two edges may overlap: an event is delivered once.
      if (seq <= watch.cursor) return;
      watch.cursor = seq;
      watch.resyncs = 0;
      if (method === "session_ended") watch.hasEnded = true;
    }
    watch.sink.event(method, envelope);
  }

  private async closed(socket: Socket, code: number, reason: string): Promise<void> {
    if (this.socket !== socket) return;
    const wasOpen = this.isOpen;
    this.drop();
    if (code === CLOSED_CREDENTIAL || !wasOpen) {
      this.setState({ kind: "connecting" });
      const found = await this.environment.probe();
      if (this.socket !== null) return;
      if (found === "locked") {
        this.setState({ kind: "locked", reason: wasOpen ? "The edge no longer accepts the key." : "" });
        return;
      }
    }
    this.retry(reason);
  }

  private lost(reason: string): void {
    const { socket } = this;
    this.drop();
    socket?.close();
    this.retry(reason);
  }

  /** Forgets the socket; requests that may not be repeated fail. */
  private drop(): void {
    const { socket } = this;
    this.socket = null;
    this.isOpen = false;
    if (socket !== null) {
      socket.onopen = socket.onmessage = socket.onclose = null;
      socket.close();
    }
    for (const [id, request] of this.pending) {
      if (request.isSent && !request.isRepeatable) {
        this.pending.delete(id);
        request.reject(new RpcError("disconnected", "The connection was lost. It is not known whether this was done."));
      }
      request.isSent = false;
    }
  }

  private retry(reason: string): void {
    this.attempt += 1;
    const longest = Math.min(BACKOFF_MS_MAX, BACKOFF_MS_MIN * 2 ** (this.attempt - 1));
    const wait = longest / 2 + (longest / 2) * this.environment.random();
    this.setState({ kind: "waiting", attempt: this.attempt, until: this.environment.now() + wait, reason });
    this.cancelRetry = this.environment.schedule(() => this.connect(), wait);
  }

  private setState(state: ConnectionState): void {
    this.state = state;
    this.onState(state);
  }
}
