// Errors of the API. Each has the stable code of the server, and programs decide by it.

/** What is known of an error beside its text. */
export interface ErrorDetails {
  /** Stable code, such as `unknown_agent`. docs/reference/errors.md lists them. */
  code: string;
  /** Status of HTTP; absent if no response came. */
  status?: number | undefined;
  /** Milliseconds after which a retry may succeed. */
  retryAfterMs?: number | undefined;
  /** The last `seq` of the session, for errors about a cursor. */
  seq?: number | undefined;
  cause?: unknown;
}

/** A request that failed, or a turn that could not go on. */
export class AiloopError extends Error {
  readonly code: string;
  readonly status: number | undefined;
  readonly retryAfterMs: number | undefined;
  readonly seq: number | undefined;

  constructor(message: string, details: ErrorDetails) {
    super(message, { cause: details.cause });
    this.name = new.target.name;
    this.code = details.code;
    this.status = details.status;
    this.retryAfterMs = details.retryAfterMs;
    this.seq = details.seq;
  }
}

/** No response came: the server is not reached, or the connection broke. The code is `unreachable`. */
export class ConnectionFailed extends AiloopError {}
/** The request is wrong, and a retry fails again. */
export class BadRequest extends AiloopError {}
/** The credential is missing or wrong (`unauthorized`), or does not grant this (`forbidden`). */
export class AccessDenied extends AiloopError {}
/** A session, agent, model, call or mail does not exist. */
export class NotFound extends AiloopError {}
/** The request does not fit the state: `session_ended`, `not_now`, `gate_closed` and the like. */
export class Conflict extends AiloopError {}
/** Events at this place do not exist (any more): `resync` or `history_lost`. `seq` says where to begin. */
export class CursorLost extends AiloopError {}
/** A limit is reached. The same request may succeed after `retryAfterMs`. */
export class Overloaded extends AiloopError {}
/** A part of the fleet does not answer. The same request may succeed later. */
export class Unavailable extends AiloopError {}
/** A turn ended with the stop reason `error`. The code is that of the failure, such as `model_auth`. */
export class TurnFailed extends AiloopError {}

const BY_STATUS: Record<number, typeof AiloopError> = {
  400: BadRequest,
  401: AccessDenied,
  403: AccessDenied,
  404: NotFound,
  405: BadRequest,
  409: Conflict,
  410: CursorLost,
  413: BadRequest,
  429: Overloaded,
  502: Unavailable,
  503: Unavailable,
  504: Unavailable,
};

interface Problem {
  status?: number;
  detail?: string;
  code?: string;
  retry_after_ms?: number;
  seq?: number;
}

/** Makes the error of problem details, or of the response of a proxy that has none. */
export function fromProblem(problem: unknown, ofResponse?: { status: number; retryAfterMs?: number | undefined }): AiloopError {
  const fields: Problem = typeof problem === "object" && problem !== null ? problem : {};
  const status = ofResponse?.status ?? fields.status ?? 500;
  const kind = BY_STATUS[status] ?? AiloopError;
  return new kind(fields.detail ?? `the server answered with the status ${status}`, {
    code: fields.code ?? ([502, 503, 504].includes(status) ? "unavailable" : "internal"),
    status,
    retryAfterMs: fields.retry_after_ms ?? ofResponse?.retryAfterMs,
    seq: fields.seq,
  });
}
