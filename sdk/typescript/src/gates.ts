// Gates: places where a session waits for the decision of a person.

import type { Event } from "./event.js";

/** A gate that waits. */
export interface Gate {
  sessionId: string;
  gate: string;
  /** `approval` of a call, `question`, or an object with `limit` or `error`. */
  kind: unknown;
  argumentsSha256: string;
  expires: string;
  tool: string | undefined;
  arguments: Record<string, unknown>;
}

/** The answer to a gate. */
export interface Decision {
  decision: "approve" | "deny" | "answer";
  /** Arguments in place of the model's, with `approve`. */
  arguments?: Record<string, unknown>;
  /** The answer to a question, with `answer`. */
  content?: string;
  /** Reason of a denial, which the model reads. */
  note?: string;
}

/** `true` approves, `false` denies, a text answers a question, `undefined` leaves the gate open. */
export type GateAnswer = Decision | boolean | string | undefined;
export type OnGate = (gate: Gate) => GateAnswer | Promise<GateAnswer>;

/** Reads the event `gate.opened`. */
export function gateOf(event: Event<"gate.opened">): Gate {
  const { gate, kind, arguments_sha256, expires, tool, arguments: args } = event.data;
  return { sessionId: event.sessionId, gate, kind, argumentsSha256: arguments_sha256, expires, tool, arguments: args ?? {} };
}

/** The decision that a callback means. */
export function toDecision(answer: GateAnswer): Decision | undefined {
  if (typeof answer === "boolean") return { decision: answer ? "approve" : "deny" };
  if (typeof answer === "string") return { decision: "answer", content: answer };
  return answer;
}
