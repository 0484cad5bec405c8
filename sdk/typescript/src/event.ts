// An event of a session, and the parser of server-sent events.

import { AiloopError, fromProblem } from "./errors.js";
import type { EventData } from "./types.js";

/** Characters of one event. The server's own limits are lower. */
const EVENT_CHARS_MAX = 32 * 1024 * 1024;

/** An event of a session. docs/reference/protocol.md lists the topics and their data. */
export interface Event<Topic extends string = string> {
  topic: Topic;
  sessionId: string;
  /** Number in the session, from 1 without gaps. Chunks of replies and other transient events have none. */
  seq: number | undefined;
  /** When it happened, as RFC 3339 has it. */
  time: string;
  data: Topic extends keyof EventData ? EventData[Topic] : Record<string, unknown>;
  id: string;
  /** Whether it is a chunk with all the text of a reply so far, for a client that came late. */
  isSnapshot: boolean;
}

/** Whether an event has this topic; TypeScript then knows the shape of its data. */
export function hasTopic<Topic extends string>(event: Event, topic: Topic): event is Event<Topic> {
  return event.topic === topic;
}

/** Reads the events of a response. Throws the error with which the server ends a stream. */
export async function* readEvents(body: AsyncIterable<Uint8Array>): AsyncGenerator<Event> {
  let topic = "";
  let data: string[] = [];
  let size = 0;
  for await (const line of readLines(body)) {
    if (line === "") {
      if (data.length > 0) yield toEvent(topic, data.join("\n"));
      [topic, data, size] = ["", [], 0];
      continue;
    }
    size += line.length;
    if (size > EVENT_CHARS_MAX) throw tooLarge();
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") topic = value;
    else if (name === "data") data.push(value);
  }
}

async function* readLines(body: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const part of body) {
    const lines = (rest + decoder.decode(part, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    if (rest.length > EVENT_CHARS_MAX) throw tooLarge();
    for (const line of lines) yield line.endsWith("\r") ? line.slice(0, -1) : line;
  }
}

function tooLarge(): AiloopError {
  return new AiloopError(`an event has more than ${EVENT_CHARS_MAX} characters`, { code: "too_large" });
}

function toEvent(topic: string, text: string): Event {
  let fields: Record<string, unknown>;
  try {
    fields = JSON.parse(text) as Record<string, unknown>;
  } catch (cause) {
    throw new AiloopError(`the event ${topic} is not JSON`, { code: "internal", cause });
  }
  // A failed stream ends with problem details.
  if (topic === "watch.failed") throw fromProblem(fields);
  const sessionId = String(fields["session_id"]);
  const id = String(fields["id"] ?? "");
  return {
    topic,
    sessionId,
    seq: typeof fields["seq"] === "number" ? fields["seq"] : undefined,
    time: String(fields["time"] ?? fields["timestamp"] ?? ""),
    // `continuation.progress` has a form of its own: its fields stand where others have `data`.
    data: (fields["data"] ?? fields) as Record<string, unknown>,
    id,
    isSnapshot: id.startsWith(`${sessionId}-view-`),
  };
}
