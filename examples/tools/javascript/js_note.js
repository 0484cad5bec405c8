// A tool that takes effect once per call: keeps notes. `npm install`, then `node js_note.js`.
//
// It says that it is idempotent, so a call whose replica or executor died is made again under the same id, perhaps while
// the first try still runs. All replicas share NOTES_DIR, and a note is there under its call's id or not at all.
import { randomUUID } from "node:crypto";
import { appendFileSync, linkSync, mkdirSync, readFileSync, unlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { Svcm } from "@nats-io/services";
import { connect, credsAuthenticator } from "@nats-io/transport-node";

const notes = process.env.NOTES_DIR ?? "notes";
const metadata = {
  "ailoop.tool": "js_note",
  "ailoop.description": "Keeps a note for later.",
  "ailoop.parameters": JSON.stringify({
    type: "object",
    properties: { text: { type: "string", description: "What to keep." } },
    required: ["text"],
    additionalProperties: false,
  }),
  "ailoop.effect": "idempotent", // called again with the same id, it takes effect once
};

function answer(request) {
  try {
    request.respond(JSON.stringify(note(request)));
  } catch (error) {
    request.respondError(400, error.message.replace(/\s+/g, " ")); // the model reads this; a header is one line
  }
}

function note(request) {
  const text = request.json()?.text;
  if (typeof text !== "string") throw new Error("js_note needs a text");
  const call = request.headers?.get("Ailoop-Call") ?? "";
  // It becomes a file's name, and whoever calls by hand may send anything.
  if (!/^[A-Za-z0-9_-]+$/.test(call)) throw new Error("js_note needs the header Ailoop-Call: letters, digits, - and _");
  keep(call, text);
  return { kept: true }; // a repeated call gets the same answer as the first one
}

function keep(call, text) {
  mkdirSync(notes, { recursive: true });
  // 1. Write all of it where nobody looks. Whoever is killed here leaves a draft and no effect.
  const draft = join(notes, `.${randomUUID()}`);
  writeFileSync(draft, text, { flag: "wx", flush: true });
  try {
    // 2. Effect and mark in one step: of all tries of this call one makes the link, whoever dies when.
    linkSync(draft, join(notes, `${call}.txt`));
    witness("js_note", call);
  } catch (error) {
    if (error.code !== "EEXIST") throw error; // an earlier try did it: say so again
  } finally {
    unlinkSync(draft);
  }
}

// For tests: a line for each effect, added in one write.
function witness(tool, call) {
  const path = process.env.EFFECTS_FILE;
  if (path) appendFileSync(path, `${JSON.stringify({ tool, call, pid: process.pid })}\n`);
}

// A file of `ailoop nats-auth user add`, where NATS has users. It is read again at every connect.
const credentials = process.env.NATS_CREDENTIALS;
const url = new URL(process.env.NATS_URL ?? "nats://127.0.0.1:4222"); // with a user and a password where NATS wants them
const client = await connect({
  servers: url.host,
  user: decodeURIComponent(url.username) || undefined,
  pass: decodeURIComponent(url.password) || undefined,
  authenticator: credentials && credsAuthenticator(() => readFileSync(credentials)),
  maxReconnectAttempts: -1,
});
const service = await new Svcm(client).add({ name: "js_note", version: "1.0.0" });
service.addEndpoint("js_note", {
  subject: "ai_tool.default.js_note",
  queue: "tools",
  metadata,
  handler: (_error, request) => answer(request),
});
client.publish("ai_rpc.tool.announce");
