// Shapes of what the edge returns and publishes. Those of the session API are generated for the SDK.
import type { PendingGate } from "../../../../../sdk/typescript/src/types.ts";

export type * from "../../../../../sdk/typescript/src/types.ts";

/** The session of something that waits. */
export type OfSession = Pick<PendingGate, "session_id" | "agent" | "title">;

/** The envelope of an event of a session, with its topic as `method`. */
export interface Envelope {
  id?: string;
  session_id: string;
  seq?: number;
  time?: string;
  trace_id?: string;
  data?: Record<string, unknown>;
  [field: string]: unknown;
}
