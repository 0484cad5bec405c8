// Follows every session that runs, and prints what happens in each: a console for people. Ctrl-C ends it.
//
// Needs the package of sdk/typescript, as its README says, and a fleet (`ailoop up`).
import { setTimeout as sleep } from "node:timers/promises";

import { AiloopError, Client, type Event, hasTopic } from "@ailoop/client";

const SESSIONS_MAX = 50; // each takes a connection
const client = new Client();
const followed = new Set<string>();

function describe(event: Event): string | undefined {
  if (hasTopic(event, "message.ai_full_received")) return `says: ${event.data.text.trim()}`;
  if (hasTopic(event, "tool_call.result_processed")) return `${event.data.tool}: ${event.data.outcome}`;
  if (hasTopic(event, "gate.opened")) return `waits for a person: ${event.data.tool ?? JSON.stringify(event.data.kind)}`;
  if (hasTopic(event, "turn.completed")) return `turn ${event.data.turn} ended: ${event.data.stop_reason}`;
  if (hasTopic(event, "session_ended")) return `ended: ${event.data.reason}`;
  return undefined;
}

async function follow(id: string, fromSeq: number): Promise<void> {
  try {
    // It connects again by itself, and no event is lost or comes twice.
    for await (const event of client.session(id).events({ fromSeq, chunks: false })) {
      const text = describe(event);
      if (text) console.log(`${id.slice(0, 8)} #${event.seq} ${text}`);
      if (event.topic === "turn.completed") break; // an idle session needs no connection
    }
  } catch (error) {
    console.error(`${id.slice(0, 8)} ${error instanceof AiloopError ? error.code : String(error)}`);
  }
  followed.delete(id);
}

for (;;) {
  const { sessions } = await client.api.sessionList({ phase: "running", limit: SESSIONS_MAX });
  for (const { session_id: id, seq } of sessions) {
    if (followed.has(id) || followed.size >= SESSIONS_MAX) continue;
    followed.add(id);
    void follow(id, Math.max(seq, 1));
  }
  await sleep(500);
}
