// What a tool is: a function with the description that agents read.

import type { Call } from "./call.js";

/** What the fleet may do with a call whose process died: see docs/tools.md. */
export type Effect = "pure" | "idempotent" | "at_most_once" | "reconcilable";

/** A function that the fleet may call. */
export interface Tool<Arguments = never> {
  name: string;
  /** What it does and when to use it. */
  description: string;
  /** Only the author knows it, so it has no default here. */
  effect: Effect;
  /** JSON Schema of the arguments, by which the fleet checks them. */
  parameters?: Record<string, unknown>;
  /** `always`: a person is asked before each call. */
  approval?: "never" | "always";
  /** Seconds without a reply or progress after which a call is given up; 60. */
  timeoutSeconds?: number;
  /** Bytes of a result that the model reads. */
  maxOutput?: number;
  /** Text that is added to the prompt of agents that have the tool. */
  instructions?: string;
  version?: string;
  /** Checks the arguments of callers without an executor. What it throws is read by the model: `parse` of zod fits. */
  parse?: (value: unknown) => Arguments;
  run: (args: Arguments, call: Call) => unknown;
  /** For `reconcilable`: returns the result of a lost call, or `undefined` if it took no effect. */
  probe?: (args: Arguments, call: Call) => unknown;
}

/** Describes a tool, with arguments of the type that `parse` returns. */
export function tool<Arguments = Record<string, unknown>>(described: Tool<Arguments>): Tool {
  const { name, effect, probe, timeoutSeconds = 60 } = described;
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(name)) {
    throw new Error(`a tool cannot be named ${JSON.stringify(name)}: use up to 64 letters, digits, _ and -`);
  }
  if ((effect === "reconcilable") !== (probe !== undefined)) {
    throw new Error(`${name}: \`probe\` is for the effect class \`reconcilable\`, which needs it`);
  }
  if (!(timeoutSeconds >= 1 && timeoutSeconds <= 3600)) {
    throw new Error(`${name}: the timeout is ${timeoutSeconds} s, it must be 1 to 3600`);
  }
  return described as unknown as Tool;
}

/** What the endpoint says about a tool. */
export function metadata(described: Tool): Record<string, string> {
  const found: Record<string, unknown> = {
    "ailoop.tool": described.name,
    "ailoop.description": described.description,
    "ailoop.parameters": JSON.stringify(described.parameters ?? { type: "object" }),
    "ailoop.effect": described.effect,
    "ailoop.approval": described.approval ?? "never",
    "ailoop.timeout": described.timeoutSeconds ?? 60,
    "ailoop.max_output": described.maxOutput,
    "ailoop.instructions": described.instructions,
  };
  const known = Object.entries(found).filter(([, value]) => value !== undefined);
  return Object.fromEntries(known.map(([key, value]) => [key, String(value)]));
}
