// Sends requests over HTTP: credentials, retries and limits.

import { AccessDenied, AiloopError, ConnectionFailed, fromProblem } from "./errors.js";
import { type Event, readEvents } from "./event.js";
import { findRunFile, isLoopback } from "./local-fleet.js";

const URL_DEFAULT = "http://127.0.0.1:7070";
/** Milliseconds. A command waits up to 30 s for its commit, and an idle stream has a comment every 15 s. */
const TIMEOUT_MS = 45_000;
const RESPONSE_CHARS_MAX = 64 * 1024 * 1024;
/** Milliseconds between two tries: the first pause, and the longest one. */
const BACKOFF_FIRST_MS = 200;
const BACKOFF_MAX_MS = 5_000;
/** Milliseconds that a client waits at most because a response says so. */
const RETRY_AFTER_MAX_MS = 60_000;
/** These codes pass by themselves. Another failure of a request stays as it is. */
const RETRYABLE = new Set(["overloaded", "too_many_waiting", "unavailable", "nats_unreachable", "draining", "slow_client"]);
/** Of these, the server has not seen the request. */
const NOT_SENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"]);

/** A request before it is sent. */
export interface Request {
  method: "GET" | "POST" | "DELETE" | string;
  path: string;
  query?: object;
  body?: object;
  /** Whether the route takes a `command_id`, by which a repeated request is handled once. */
  hasKey?: boolean;
}

/** Settings of a client. */
export interface TransportOptions {
  /** Address of the edge; `AILOOP_URL`, else that of the fleet of this directory, else http://127.0.0.1:7070. */
  url?: string | undefined;
  /** `AILOOP_API_KEY` if it is not given, else the token of the fleet of this directory. */
  apiKey?: string | undefined;
  /** How long requests are repeated; a minute. */
  retryMs?: number | undefined;
  /** Another `fetch`, for tests and proxies. */
  fetch?: typeof fetch | undefined;
  headers?: Record<string, string> | undefined;
  /** Whether the key may be sent over http:// to another machine, in a network that you trust. */
  plaintext?: boolean | undefined;
}

/** Milliseconds before the next try, after this many failures in a row. */
export function pauseMs(failures: number, error?: AiloopError): number {
  const backoff = Math.min(BACKOFF_FIRST_MS * 2 ** Math.min(failures - 1, 10), BACKOFF_MAX_MS);
  return Math.max(backoff * (0.5 + Math.random() / 2), Math.min(error?.retryAfterMs ?? 0, RETRY_AFTER_MAX_MS));
}

/** Whether the same request may succeed later. */
export function isRetryable(error: AiloopError): boolean {
  return error instanceof ConnectionFailed || RETRYABLE.has(error.code);
}

export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** An id of a session or command. */
export function newId(): string {
  // Not a secret. Pages without TLS and Node 18 have no `randomUUID`.
  const digits = Array.from({ length: 32 }, () => Math.floor(Math.random() * 16).toString(16)).join("");
  return globalThis.crypto?.randomUUID?.().replaceAll("-", "") ?? digits;
}

/** Refuses an address to which a key would travel in clear: http:// to another machine. */
function refusePlaintext(url: string): void {
  const { protocol, hostname } = new URL(url);
  if (protocol !== "http:" || isLoopback(url)) return;
  const remedy = "use an https:// address, or pass { plaintext: true } in a network that you trust";
  const message = `the API key is not sent over http:// to ${hostname}, where others could read it: ${remedy}`;
  throw new AccessDenied(message, { code: "unauthorized" });
}

/** Sends requests to one server. A request that may be repeated is, for `retryMs`. */
export class Transport {
  readonly retryMs: number;
  private readonly url: string;
  private readonly headers: Record<string, string>;
  private readonly fetch: typeof fetch;

  constructor(options: TransportOptions) {
    const env = typeof process === "undefined" ? {} : process.env;
    const run = findRunFile();
    const url = options.url ?? env["AILOOP_URL"] ?? run?.http ?? URL_DEFAULT;
    this.url = url.replace(/\/+$/, "").replace(/\/v1$/, "");
    const key = options.apiKey ?? env["AILOOP_API_KEY"] ?? (this.url === run?.http ? run.token : undefined);
    if (key && !options.plaintext) refusePlaintext(this.url);
    this.headers = { ...options.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) };
    this.retryMs = options.retryMs ?? 60_000;
    this.fetch = options.fetch ?? ((input, init) => fetch(input, init));
  }

  /** Sends a request, and returns the JSON object of the response. */
  async send<T>(request: Request): Promise<T> {
    const prepared = prepare(request);
    const deadline = Date.now() + this.retryMs;
    for (let failures = 1; ; failures += 1) {
      try {
        return await this.sendOnce<T>(prepared);
      } catch (error) {
        if (!(error instanceof AiloopError) || !mayRepeat(prepared, error)) throw error;
        const wait = pauseMs(failures, error);
        if (Date.now() + wait > deadline) throw error;
        await sleep(wait);
      }
    }
  }

  private async sendOnce<T>(request: PreparedRequest): Promise<T> {
    const headers: Record<string, string> = { ...this.headers };
    if (request.method === "POST") headers["content-type"] = "application/json";
    if (request.key) headers["idempotency-key"] = request.key;
    const body = request.method === "POST" ? JSON.stringify(request.body) : null;
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    try {
      const response = await this.fetch(this.url + request.path, { method: request.method, headers, body, signal });
      const text = await readText(response);
      if (!response.ok) throw toError(response, text);
      return parse(text) as T;
    } catch (error) {
      throw this.connectionFailed(error);
    }
  }

  /** Reads a stream of events over one connection, which ends with the session or with an error. */
  async *stream(request: Request): AsyncGenerator<Event> {
    const prepared = prepare(request);
    const idle = new AbortController();
    let timer = setTimeout(() => idle.abort(), TIMEOUT_MS);
    const touch = (): void => {
      clearTimeout(timer);
      timer = setTimeout(() => idle.abort(), TIMEOUT_MS);
    };
    try {
      const headers = { ...this.headers, accept: "text/event-stream" };
      const response = await this.fetch(this.url + prepared.path, { headers, signal: idle.signal });
      if (!response.ok) throw toError(response, await readText(response));
      if (response.body) yield* readEvents(readBody(response.body, touch));
    } catch (error) {
      throw this.connectionFailed(error);
    } finally {
      clearTimeout(timer);
      idle.abort();
    }
  }

  private connectionFailed(cause: unknown): unknown {
    // `fetch` throws `TypeError` for connections, and `DOMException` for timeouts.
    if (!(cause instanceof TypeError) && !(cause instanceof DOMException)) return cause;
    const reason = cause.cause instanceof Error ? cause.cause.message : cause.message;
    const text = `no response of ${this.url}: ${reason}; check the address and that an edge runs`;
    return new ConnectionFailed(text, { code: "unreachable", cause });
  }
}

/** A request with its key, which stays the same when it is repeated. */
interface PreparedRequest {
  method: string;
  path: string;
  body: Record<string, unknown>;
  key: string | undefined;
}

/** Gives a command its idempotency key, and a new session its id: a repeated start needs both. */
function prepare(request: Request): PreparedRequest {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(request.query ?? {})) {
    if (value !== undefined && value !== null) query.set(name, String(value));
  }
  const { command_id: given, ...body } = { ...request.body } as Record<string, unknown>;
  const key = request.hasKey ? String(given ?? newId()) : undefined;
  if (key && request.method === "POST" && request.path === "/v1/sessions") body["session_id"] ??= key;
  const text = query.toString();
  const suffix = text === "" ? "" : `?${text}`;
  return { method: request.method, path: request.path + suffix, body, key };
}

function mayRepeat(request: PreparedRequest, error: AiloopError): boolean {
  if (error instanceof ConnectionFailed && !request.key && request.method !== "GET") {
    const cause = (error.cause as { cause?: { code?: string } } | undefined)?.cause;
    return NOT_SENT.has(cause?.code ?? "");
  }
  return isRetryable(error);
}

async function* readBody(body: ReadableStream<Uint8Array>, touch: () => void): AsyncGenerator<Uint8Array> {
  // Not every browser can iterate over a stream.
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      touch();
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

async function readText(response: Response): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  if (!response.body) return text;
  for await (const part of readBody(response.body, () => undefined)) {
    text += decoder.decode(part, { stream: true });
    if (text.length > RESPONSE_CHARS_MAX) {
      throw new AiloopError(`the response has more than ${RESPONSE_CHARS_MAX} characters`, { code: "too_large" });
    }
  }
  return text;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    const message = "the response is not JSON; is this address an edge of ailoop?";
    throw new AiloopError(message, { code: "internal", cause });
  }
}

function toError(response: Response, text: string): AiloopError {
  let problem: unknown;
  try {
    problem = JSON.parse(text);
  } catch {
    problem = undefined;
  }
  return fromProblem(problem, { status: response.status, retryAfterMs: retryAfterMs(response.headers.get("retry-after")) });
}

/** Reads `Retry-After`: seconds, or a date, which proxies send. */
function retryAfterMs(value: string | null): number | undefined {
  if (value === null) return undefined;
  const ms = /^\d+$/.test(value.trim()) ? Number(value) * 1000 : Date.parse(value) - Date.now();
  return Number.isFinite(ms) ? Math.max(ms, 0) : undefined;
}
