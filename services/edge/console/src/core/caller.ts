// What the credential of this page grants, so that nothing is offered that the edge would refuse.

import { signal } from "@preact/signals";
import { connection, rpc } from "./connection.ts";
import type { Caller } from "./types.ts";

/** `null` until the edge has said it, or where it does not: then everything is offered. */
export const caller = signal<Caller | null>(null);

/** Asks again after each connection: the credential may be another one. */
export function followCaller(): void {
  connection.subscribe((state) => {
    if (state.kind === "locked") caller.value = null;
    if (state.kind !== "open") return;
    rpc.call<Caller>("caller.get", {}).then(
      (found) => {
        caller.value = Array.isArray(found.methods) ? found : null;
      },
      () => {
        caller.value = null;
      },
    );
  });
}

/** Whether the edge would let this page use a method. */
export function can(method: string): boolean {
  return caller.value === null || caller.value.methods.includes(method);
}
