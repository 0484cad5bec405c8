// Takes the calls of one tool: exactly one final reply to each.

import type { Msg, NatsConnection, Subscription } from "@nats-io/transport-node";

import { Call, ToolError } from "./call.js";
import type { Tool } from "./definition.js";
import { QUEUE, Service } from "./service.js";

/** Calls that wait for others to end. Further ones are answered with an error. */
const WAITING_MAX = 1024;
/** Milliseconds after its deadline when a call is ended: the caller has given up by then. */
const OVERDUE_AFTER_MS = 1000;
/** Milliseconds after which a call says which replica has it. Most are over by then. */
const RECEIPT_AFTER_MS = 500;
const PROBE_MS_MAX = 5000;
/** A header is one line. The body has the whole text. */
const ERROR_HEADER_CHARS_MAX = 200;
/** Bytes for headers beside a body. */
const HEADERS_BYTES_MAX = 4096;
/** Longest time of a timer in JavaScript. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/** One tool on one connection. */
export class Server {
  private readonly running = new Map<Call, Promise<void>>();
  private readonly waiting: (() => void)[] = [];
  private readonly service: Service;
  private readonly timeoutMs: number;
  private readonly payloadMax: number;
  private active = 0;
  private calls: Subscription | undefined;

  constructor(
    private readonly client: NatsConnection,
    private readonly tool: Tool,
    private readonly tenant: string,
    private readonly concurrency: number,
  ) {
    this.service = new Service(client, tool, tenant, (id) => this.isRunning(id));
    this.timeoutMs = (tool.timeoutSeconds ?? 60) * 1000;
    this.payloadMax = client.info?.max_payload ?? 1024 * 1024;
  }

  /** Subscribes. The description comes last, so that a replica that is found takes calls. */
  start(): void {
    const name = `${this.tenant}.${this.tool.name}`;
    const take = (work: (message: Msg) => void) => (error: Error | null, message: Msg): void => {
      if (!error) work(message);
    };
    this.client.subscribe(`ai_tool_cancel.${name}`, { callback: take((message) => this.cancel(message)) });
    if (this.tool.probe) {
      const callback = take((message) => void this.answerProbe(message));
      this.client.subscribe(`ai_tool_probe.${name}`, { queue: QUEUE, callback });
    }
    this.calls = this.client.subscribe(`ai_tool.${name}`, { queue: QUEUE, callback: take((message) => this.begin(message)) });
    this.service.subscribe();
  }

  /** Takes no more calls, and gives those that run some time to end. */
  async drain(ms: number): Promise<void> {
    this.service.beginDrain();
    await this.calls?.drain();
    const ended = Promise.all(this.running.values());
    await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, ms).unref())]);
    for (const call of this.running.keys()) call.abort("the tool was stopped");
    await Promise.all(this.running.values());
  }

  private isRunning(id: string): boolean {
    return [...this.running.keys()].some((call) => call.id === id);
  }

  private begin(message: Msg): void {
    const call = new Call(this.client, message, this.service.instance, this.timeoutMs);
    if (this.running.size >= this.concurrency + WAITING_MAX) {
      this.respondError(call, new ToolError("too many calls wait for this tool: try again later"));
      return;
    }
    this.running.set(call, this.answer(call));
  }

  private cancel(message: Msg): void {
    const id = message.headers?.get("Ailoop-Call");
    for (const call of this.running.keys()) {
      if (id && call.id === id) call.abort("cancelled");
    }
  }

  private async answer(call: Call): Promise<void> {
    const began = performance.now();
    let failure: ToolError | undefined;
    let body: Uint8Array = new Uint8Array();
    try {
      body = encode(await this.perform(call));
      if (body.length > this.payloadMax) {
        // After an error a model calls again, which could repeat the effect.
        const text = `the tool ran; its result has ${body.length} bytes, more than NATS carries`;
        failure = new ToolError(text, { isUnknown: this.tool.effect !== "pure" });
      }
    } catch (error) {
      failure = error instanceof ToolError ? error : new ToolError(String(error));
    }
    // Before it answers: a cancel comes too late from here on.
    this.running.delete(call);
    this.service.record(performance.now() - began, failure?.message);
    if (failure) this.respondError(call, failure);
    else this.respond(call, body);
  }

  /** Runs the function, until it ends, is cancelled, or its deadline has passed. */
  private async perform(call: Call): Promise<unknown> {
    const receipt = setTimeout(() => call.sendProgress(""), RECEIPT_AFTER_MS);
    let overdue: ReturnType<typeof setTimeout> | undefined;
    const watch = (): void => {
      const left = call.timeLeftMs + OVERDUE_AFTER_MS;
      if (left <= 0) call.abort("the deadline has passed");
      else overdue = setTimeout(watch, Math.min(left, TIMER_MS_MAX));
    };
    if (call.timeLeftMs !== Infinity) watch();
    const aborted = new Promise<never>((_, reject) => {
      const onAbort = (): void => {
        const isUnknown = call.hasBegun && this.tool.effect !== "pure";
        reject(new ToolError((call.signal.reason as ToolError).message, { isUnknown }));
      };
      if (call.signal.aborted) onAbort();
      else call.signal.addEventListener("abort", onAbort, { once: true });
    });
    try {
      return await Promise.race([aborted, this.work(call)]);
    } finally {
      clearTimeout(receipt);
      clearTimeout(overdue);
    }
  }

  private async work(call: Call): Promise<unknown> {
    if (this.active >= this.concurrency) await new Promise<void>((resolve) => this.waiting.push(resolve));
    this.active += 1;
    try {
      // Nobody reads this, if the call was ended while it waited.
      if (call.signal.aborted) return undefined;
      if (call.timeLeftMs <= 0) {
        throw new ToolError("the deadline has passed: nobody waits for this call any more, so it was not begun");
      }
      const args = this.parse(call);
      call.hasBegun = true;
      return await this.tool.run(args, call);
    } finally {
      this.active -= 1;
      this.waiting.shift()?.();
    }
  }

  private parse(call: Call): never {
    const args = call.arguments();
    try {
      return this.tool.parse ? this.tool.parse(args) : (args as never);
    } catch (error) {
      throw new ToolError(`invalid arguments: ${String(error)}`);
    }
  }

  /** Says what became of a lost call: its result, that it took no effect, or that nobody knows. */
  private async answerProbe(message: Msg): Promise<void> {
    const call = new Call(this.client, message, this.service.instance, this.timeoutMs);
    const unknown = (text: string): void => this.respondError(call, new ToolError(text, { isUnknown: true }));
    if (this.isRunning(call.id)) return unknown("it still works on the call");
    try {
      const late = new Promise<never>((_, reject) => {
        setTimeout(() => reject(new Error("the probe took too long")), PROBE_MS_MAX).unref();
      });
      const found = await Promise.race([this.tool.probe?.(this.parse(call), call), late]);
      if (found === undefined) call.respond("", { "Ailoop-Outcome": "none" });
      else call.respond(encode(found));
    } catch (error) {
      unknown(`the probe failed: ${String(error)}`);
    }
  }

  private respond(call: Call, body: Uint8Array): void {
    try {
      call.respond(body);
    } catch (error) {
      console.warn(`the answer to the call ${call.id} was not sent: ${String(error)}`);
    }
  }

  private respondError(call: Call, error: ToolError): void {
    // A text with two lines would break the connection, and others than ASCII are refused.
    const line = error.message.replace(/\s+/g, " ").trim().slice(0, ERROR_HEADER_CHARS_MAX);
    const values: Record<string, string> = { "Ailoop-Error": line.replace(/[^\x20-\x7e]/g, "?") || "error" };
    if (error.isUnknown) values["Ailoop-Outcome"] = "unknown";
    call.respond(encode(error.message).slice(0, this.payloadMax - HEADERS_BYTES_MAX), values);
  }
}

/** What the model reads of a result: a text as it is, anything else as JSON. */
function encode(result: unknown): Uint8Array {
  return new TextEncoder().encode(typeof result === "string" ? result : (JSON.stringify(result) ?? "null"));
}
