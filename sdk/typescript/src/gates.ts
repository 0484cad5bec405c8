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

/** `true` approves, `false` denies, `undefined` leaves the gate open. */
export type ApprovalAnswer = Decision | boolean | undefined;
export type OnApproval = (gate: Gate) => ApprovalAnswer | Promise<ApprovalAnswer>;
/** A text is the answer, `undefined` leaves the gate open. */
export type QuestionAnswer = Decision | string | undefined;
export type OnQuestion = (gate: Gate) => QuestionAnswer | Promise<QuestionAnswer>;

/** The callbacks of a program, each for its kind of gate. */
export interface GateCallbacks {
  /** Decides about calls that need an approval, limits and failures while a turn is followed. */
  onApproval?: OnApproval | undefined;
  /** Answers questions of the model while a turn is followed. */
  onQuestion?: OnQuestion | undefined;
}

/** Reads the event `gate.opened`. */
export function gateOf(event: Event<"gate.opened">): Gate {
  const { gate, kind, arguments_sha256, expires, tool, arguments: args } = event.data;
  return { sessionId: event.sessionId, gate, kind, argumentsSha256: arguments_sha256, expires, tool, arguments: args ?? {} };
}

/** The decision that a callback means. */
export function toDecision(gate: Gate, answer: ApprovalAnswer | QuestionAnswer): Decision | undefined {
  if (answer === undefined || answer === null || typeof answer === "object") return answer ?? undefined;
  const isQuestion = gate.kind === "question";
  if (isQuestion && typeof answer === "string") return { decision: "answer", content: answer };
  if (!isQuestion && typeof answer === "boolean") return { decision: answer ? "approve" : "deny" };
  const [callback, wanted] = isQuestion ? ["onQuestion", "a text"] : ["onApproval", "true or false"];
  const returned = JSON.stringify(answer);
  throw new TypeError(`${callback} returned ${returned} for the gate ${gate.gate}: return ${wanted}, a Decision, or undefined`);
}
