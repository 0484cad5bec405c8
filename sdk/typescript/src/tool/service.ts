// The NATS services protocol for one tool. The library's own service cannot say which calls a replica runs.

import { type Msg, type NatsConnection, createInbox, headers } from "@nats-io/transport-node";

import { type Tool, metadata } from "./definition.js";

export const QUEUE = "tools";

/** Answers requests for the description and the state of a replica. */
export class Service {
  /** `<service name>.<service id>`: this replica among all services. */
  readonly instance: string;
  private readonly identity: Record<string, unknown>;
  private readonly endpoint: Record<string, unknown>;
  private isDraining = false;
  private requests = 0;
  private errors = 0;
  private lastError = "";
  private nanoseconds = 0;

  constructor(
    private readonly client: NatsConnection,
    private readonly tool: Tool,
    tenant: string,
    private readonly isRunning: (call: string) => boolean,
  ) {
    const id = createInbox().split(".").at(-1);
    this.instance = `${tool.name}.${id}`;
    this.identity = { name: tool.name, id, version: tool.version ?? "1.0.0", metadata: {} };
    this.endpoint = { name: tool.name, subject: `ai_tool.${tenant}.${tool.name}`, queue_group: QUEUE };
  }

  /** Subscribes to the nine subjects of the protocol. */
  subscribe(): void {
    const callback = (error: Error | null, message: Msg): void => {
      if (!error) this.answer(message);
    };
    for (const verb of ["PING", "INFO", "STATS"]) {
      for (const subject of [`$SRV.${verb}`, `$SRV.${verb}.${this.tool.name}`, `$SRV.${verb}.${this.instance}`]) {
        this.client.subscribe(subject, { callback });
      }
    }
  }

  /** Is not found any more, but still says which calls run here. */
  beginDrain(): void {
    this.isDraining = true;
  }

  /** Adds a call to the statistics. */
  record(tookMs: number, error: string | undefined): void {
    this.requests += 1;
    this.nanoseconds += Math.round(tookMs * 1e6);
    if (error !== undefined) [this.errors, this.lastError] = [this.errors + 1, error];
  }

  private answer(message: Msg): void {
    const call = message.headers?.get("Ailoop-Call");
    if (this.isDraining && !call && !message.subject.includes(".PING.")) return;
    const body = JSON.stringify(this.describe(message.subject.split(".")[1] ?? ""));
    if (!call) {
      message.respond(body);
      return;
    }
    const found = headers();
    found.set("Ailoop-Running", this.isRunning(call) ? "1" : "0");
    message.respond(body, { headers: found });
  }

  private describe(verb: string): Record<string, unknown> {
    const type = `io.nats.micro.v1.${verb.toLowerCase()}_response`;
    if (verb === "PING") return { ...this.identity, type };
    if (verb === "INFO") {
      const endpoints = [{ ...this.endpoint, metadata: metadata(this.tool) }];
      return { ...this.identity, type, description: this.tool.description, endpoints };
    }
    const counts = {
      num_requests: this.requests,
      num_errors: this.errors,
      last_error: this.lastError,
      processing_time: this.nanoseconds,
      average_processing_time: Math.round(this.nanoseconds / Math.max(this.requests, 1)),
    };
    return { ...this.identity, type, endpoints: [{ ...this.endpoint, ...counts }] };
  }
}
