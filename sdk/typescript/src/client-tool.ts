// Tools that a client brings to a session, and performs itself.

/** Bytes of a result. The server refuses more than 1 MiB. */
const CONTENT_BYTES_MAX = 1024 * 1024;

/** What a function of a tool gets beside its arguments. */
export interface ClientCall {
  sessionId: string;
  /** Id of the call in its session. */
  call: string;
  /** Aborted when the call has ended: by its deadline, by a stop, or because another client answered. */
  signal: AbortSignal;
}

/** A tool that an agent may call. */
export interface ClientTool<Arguments = never> {
  name: string;
  /** What it does and when to use it. */
  description: string;
  /** JSON Schema of the arguments, which are an object. */
  parameters?: Record<string, unknown>;
  /** What a call may change; `at_most_once`. */
  effect?: "pure" | "idempotent" | "at_most_once";
  /** How long a call waits for its answer; an hour. */
  timeoutMs?: number;
  /** Bytes of the answer that the model reads. */
  maxOutput?: number;
  /** Checks the arguments, which the fleet does not do. What it throws is read by the model: `parse` of zod fits. */
  parse?: (value: unknown) => Arguments;
  run: (args: Arguments, call: ClientCall) => unknown;
}

/** Describes a tool, with arguments of the type that `parse` returns. */
export function clientTool<Arguments = Record<string, unknown>>(tool: ClientTool<Arguments>): ClientTool {
  return tool as unknown as ClientTool;
}

/** What a session gets of a tool, as an entry of `client_tools`. */
export function describe(tool: ClientTool): Record<string, unknown> {
  return {
    name: tool.name,
    description: tool.description,
    parameters: tool.parameters ?? { type: "object" },
    effect: tool.effect ?? "at_most_once",
    ...(tool.timeoutMs === undefined ? {} : { timeout_ms: tool.timeoutMs }),
    ...(tool.maxOutput === undefined ? {} : { max_output: tool.maxOutput }),
  };
}

/** Runs the function, and returns outcome and content of the answer. */
export async function perform(tool: ClientTool, args: unknown, call: ClientCall): Promise<["ok" | "error", string]> {
  try {
    const parsed = tool.parse ? tool.parse(args) : (args as never);
    const result = await tool.run(parsed, call);
    const content = typeof result === "string" ? result : (JSON.stringify(result) ?? "null");
    const { length } = new TextEncoder().encode(content);
    if (length <= CONTENT_BYTES_MAX) return ["ok", content];
    return ["error", `the tool ran; its result has ${length} bytes, which is too long to be read`];
  } catch (error) {
    return ["error", String(error).slice(0, CONTENT_BYTES_MAX / 4)];
  }
}
