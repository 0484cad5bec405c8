// A tool that changes nothing: makes the slug of a title. `npm install`, then `node slugify.js`.
import { readFileSync } from "node:fs";
import { Svcm } from "@nats-io/services";
import { connect, credsAuthenticator } from "@nats-io/transport-node";

const metadata = {
  "ailoop.tool": "slugify",
  "ailoop.description": "Makes the slug of a title, as in the address of a page.",
  "ailoop.parameters": JSON.stringify({
    type: "object",
    properties: { title: { type: "string", description: "The title." } },
    required: ["title"],
    additionalProperties: false,
  }),
  "ailoop.effect": "pure", // it changes nothing, so it may run twice
};

function answer(request) {
  try {
    request.respond(JSON.stringify(slugify(request.json())));
  } catch (error) {
    // Always caught here: the library puts the message of what it catches into a header as it is, and one of two lines
    // ends the connection.
    request.respondError(400, error.message.replace(/\s+/g, " "));
  }
}

function slugify(args) {
  const title = args?.title;
  if (typeof title !== "string") throw new Error("slugify needs a title"); // the model reads this
  const plain = title.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  return { slug: plain.replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") };
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
const service = await new Svcm(client).add({ name: "slugify", version: "1.0.0" });
service.addEndpoint("slugify", {
  subject: "ai_tool.default.slugify",
  queue: "tools",
  metadata,
  handler: (_error, request) => answer(request),
});
client.publish("ai_rpc.tool.announce"); // found at once; without it, by the next poll
