// Serves tools until the process gets SIGTERM or SIGINT.

import { readFileSync } from "node:fs";

import { type NatsConnection, connect, credsAuthenticator } from "@nats-io/transport-node";

import { findRunFile } from "../local-fleet.js";
import type { Tool } from "./definition.js";
import { Server } from "./server.js";

/** Subject of the message by which executors look for tools at once. */
const ANNOUNCE = "ai_rpc.tool.announce";
const CONCURRENCY = 16;
/** Milliseconds for running calls after a signal. */
const DRAIN_MS = 10_000;
const FLUSH_MS = 2_000;
const RECONNECT_MS = 2_000;

/** Settings of what is served. */
export interface ServeOptions {
  /**
   * Address of NATS, which may have a user and a password (`nats://user:password@host:4222`); `NATS_URL`, else that of the
   * fleet that `ailoop up` runs in this directory or in one above it, else nats://127.0.0.1:4222.
   */
  url?: string | undefined;
  /** File of `ailoop nats-auth user add`; `NATS_CREDENTIALS`. It is read again at every connect. */
  credentials?: string | undefined;
  /** Tenant whose sessions may use the tools; `default`. */
  tenant?: string | undefined;
  /** Calls of each tool that run at the same time; 16. */
  concurrency?: number | undefined;
  /** Whether SIGTERM and SIGINT stop the tools; true. */
  signals?: boolean | undefined;
}

/** Tools that are being served. */
export interface Serving {
  /** Takes no more calls, and resolves when the running ones have ended. */
  stop: () => Promise<void>;
  /** Resolves when the tools are stopped. */
  stopped: Promise<void>;
}

/** Serves tools. The promise resolves when they take calls. */
export async function serve(tools: readonly Tool[], options: ServeOptions = {}): Promise<Serving> {
  if (tools.length === 0) throw new Error("there is no tool to serve");
  let stopping: Promise<void> | undefined;
  let onStopped: () => void = () => undefined;
  const stopped = new Promise<void>((resolve) => (onStopped = resolve));
  let current = await open(tools, options);

  const stop = (): Promise<void> => {
    stopping ??= close(current, options.tenant ?? "default").finally(onStopped);
    return stopping;
  };
  // The library closes its connection for good when a credential is revoked: connect again, with a new file perhaps.
  const keepOpen = async (): Promise<void> => {
    for (;;) {
      await current.client.closed();
      while (!stopping) {
        await new Promise((resolve) => setTimeout(resolve, RECONNECT_MS));
        try {
          current = await open(tools, options);
          break;
        } catch (error) {
          console.warn(`tools are not served: ${String(error)}`);
        }
      }
      if (stopping) return;
    }
  };
  void keepOpen();
  if (options.signals ?? true) {
    for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => void stop());
  }
  return { stop, stopped };
}

interface Connection {
  client: NatsConnection;
  servers: Server[];
}

async function open(tools: readonly Tool[], options: ServeOptions): Promise<Connection> {
  const file = options.credentials ?? process.env["NATS_CREDENTIALS"];
  const address = options.url ?? process.env["NATS_URL"] ?? findRunFile()?.nats ?? "nats://127.0.0.1:4222";
  const client = await connect({
    ...readAddress(address),
    name: "ailoop-tool",
    maxReconnectAttempts: -1,
    ...(file ? { authenticator: credsAuthenticator(() => readFileSync(file)) } : {}),
  });
  const tenant = options.tenant ?? "default";
  const concurrency = Math.max(options.concurrency ?? CONCURRENCY, 1);
  const servers = tools.map((tool) => new Server(client, tool, tenant, concurrency));
  for (const server of servers) server.start();
  announce(client, tenant, "up");
  await client.flush();
  return { client, servers };
}

/** The servers of an address, and the user and the password that stand in it. */
export function readAddress(address: string): { servers: string[]; user?: string; pass?: string } {
  const servers = address.split(",").map((server) => server.trim());
  const login = servers.map((server) => /^(?:\w+:\/\/)?([^:@/]+):([^@/]*)@/.exec(server)).find((match) => match !== null);
  const [user, pass] = [login?.[1], login?.[2]].map((part) => part && decodeURIComponent(part));
  return {
    servers: servers.map((server) => server.replace(/^(\w+:\/\/)?[^@/]*@/, "$1")),
    ...(user && pass ? { user, pass } : {}),
  };
}

async function close({ client, servers }: Connection, tenant: string): Promise<void> {
  const end = async (): Promise<void> => {
    await Promise.all(servers.map((server) => server.drain(DRAIN_MS)));
    announce(client, tenant, "down");
    await client.flush();
  };
  try {
    // While NATS is away, the process must end all the same.
    const late = new Promise<void>((resolve) => setTimeout(resolve, DRAIN_MS + FLUSH_MS).unref());
    if (!client.isClosed()) await Promise.race([end(), late]);
  } catch (error) {
    console.warn(`the last replies may be lost: ${String(error)}`);
  }
  await client.close();
}

function announce(client: NatsConnection, tenant: string, state: string): void {
  client.publish(ANNOUNCE, JSON.stringify({ tenant, state }));
}
