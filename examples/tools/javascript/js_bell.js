// A tool that must not run twice, and takes its time: rings a bell. `npm install`, then `node js_bell.js`.
//
// When its replica dies, nobody can tell whether the bell rang; it says so (at_most_once), and the model is told that the
// outcome is unknown. It reports progress, looks at its deadline, and a cancel stops it before it rings.
import { appendFileSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import { Svcm } from "@nats-io/services";
import { connect, credsAuthenticator, headers } from "@nats-io/transport-node";

const metadata = {
  "ailoop.tool": "js_bell",
  "ailoop.description": "Rings the bell, after some seconds.",
  "ailoop.parameters": JSON.stringify({
    type: "object",
    properties: {
      seconds: { type: "integer", minimum: 0, maximum: 600, description: "How many seconds from now it rings." },
    },
    required: ["seconds"],
    additionalProperties: false,
  }),
  "ailoop.effect": "at_most_once", // also what holds where nothing is said
  "ailoop.timeout": "10", // seconds without a sign of progress
};
const running = new Map(); // call id -> what stops it

// Exactly one last reply, whatever happens: without one the caller waits until the time-out.
async function answer(request) {
  const call = request.headers?.get("Ailoop-Call") ?? "";
  const stop = new AbortController();
  running.set(call, stop);
  try {
    const reply = await ringLater(request, call, stop.signal);
    request.respond(JSON.stringify(reply));
  } catch (error) {
    const text = stop.signal.aborted ? "cancelled" : error.message;
    request.respond("", { headers: headersOf({ "Ailoop-Error": text.replace(/\s+/g, " ") }) }); // the model reads this
  } finally {
    running.delete(call);
  }
}

async function ringLater(request, call, signal) {
  const seconds = request.json()?.seconds;
  if (!Number.isInteger(seconds) || seconds < 0 || seconds > 600) throw new Error("js_bell needs seconds, from 0 to 600");
  // Nobody waits longer than the deadline: a call that comes too late is not begun.
  const deadline = Date.parse(request.headers?.get("Ailoop-Deadline") ?? "");
  if (deadline <= Date.now()) throw new Error("nobody waits for the bell any more");
  for (let left = seconds; left > 0; left--) {
    // People see it, and the deadline moves on: the time-out counts from here again. Ailoop-Instance says who works on the
    // call, so that its death is found within seconds.
    const { name, id } = service.info();
    request.respond(`rings in ${left} s`, {
      headers: headersOf({ "Ailoop-Progress": "1", "Ailoop-Instance": `${name}.${id}` }),
    });
    await sleep(1000, undefined, { signal }); // a cancel ends it here: then the bell does not ring
  }
  ring(call);
  return { rang: true };
}

// The effect: a line in a file, added in one write. Whether it rang before is not asked: that is the executor's part.
function ring(call) {
  const line = JSON.stringify({ tool: "js_bell", call, pid: process.pid });
  appendFileSync(process.env.EFFECTS_FILE ?? "bell.log", `${line}\n`);
}

function headersOf(values) {
  const all = headers();
  for (const [name, value] of Object.entries(values)) all.set(name, value);
  return all;
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
// Every replica hears every cancel; the one that has the call stops it.
client.subscribe("ai_tool_cancel.default.js_bell", {
  callback: (_error, message) => running.get(message.headers?.get("Ailoop-Call"))?.abort(),
});
const service = await new Svcm(client).add({ name: "js_bell", version: "1.0.0" });
service.addEndpoint("js_bell", {
  subject: "ai_tool.default.js_bell",
  queue: "tools",
  metadata,
  handler: (_error, request) => void answer(request),
});
client.publish("ai_rpc.tool.announce");
