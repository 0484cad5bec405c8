// The one connection of the page, its state, and the key that it uses.

import { signal } from "@preact/signals";
import { keyOfHash } from "./route.ts";
import { type ConnectionState, RpcClient, RpcError, type Socket } from "./rpc.ts";

const KEY = "ailoop.key";

export const connection = signal<ConnectionState>({ kind: "connecting" });
/** Whether the connection has been open once: before that, nothing is lost. */
export const hasConnected = signal(false);

function socketUrl(): string {
  const url = new URL("/ws", location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url.href;
}

export function storedKey(): string {
  return sessionStorage.getItem(KEY) ?? "";
}

export const rpc = new RpcClient(
  {
    connect(): Socket {
      const key = storedKey();
      try {
        return new WebSocket(socketUrl(), key === "" ? ["ailoop.v1"] : ["ailoop.v1", `ailoop.bearer.${key}`]) as Socket;
      } catch {
        throw new Error("This key has characters that a web page cannot send.");
      }
    },
    // A browser does not say why an upgrade was refused: a plain request does.
    async probe() {
      const key = storedKey();
      try {
        const response = await fetch("/v1/agents", { headers: key === "" ? {} : { authorization: `Bearer ${key}` } });
        return response.status === 401 ? "locked" : "ok";
      } catch {
        return "unreachable";
      }
    },
    now: () => Date.now(),
    random: () => Math.random(),
    schedule(task, milliseconds) {
      const timer = setTimeout(task, milliseconds);
      return () => clearTimeout(timer);
    },
  },
  (state) => {
    connection.value = state;
    if (state.kind === "open") hasConnected.value = true;
  },
);

/** Takes the key from the address, where it must not stay: people copy addresses. */
export function followKeyInAddress(): void {
  const take = () => {
    const key = keyOfHash(location.hash);
    if (key === undefined) return;
    history.replaceState(null, "", location.pathname + location.search);
    unlock(decodeURIComponent(key));
  };
  take();
  addEventListener("hashchange", take);
}

export function unlock(key: string): void {
  sessionStorage.setItem(KEY, key.trim());
  rpc.connect();
}

/** A new id for a command. It is made before the command is first sent, so that a repetition counts once. */
export function newId(): string {
  return (
    crypto.randomUUID?.() ??
    [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("")
  );
}

/** Sends a command of a session, again after a break, under one id. */
export function command<T>(method: string, params: Record<string, unknown>): Promise<T> {
  return rpc.call<T>(method, { command_id: newId(), ...params });
}

export function errorText(error: unknown): string {
  return error instanceof RpcError ? error.message : String(error instanceof Error ? error.message : error);
}

export function isForbidden(error: unknown): boolean {
  return error instanceof RpcError && error.code === "forbidden";
}
