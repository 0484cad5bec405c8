// What the npm package @a2a-js/sdk does with an edge: `node driver.mjs URL KEY`. It prints one line for each binding.

import { randomUUID } from "node:crypto";
import { SendMessageRequest, TaskState, taskStateToJSON } from "@a2a-js/sdk";
import { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory } from "@a2a-js/sdk/client";

const [url, key] = process.argv.slice(2);

const fetchImpl = (input, init = {}) => {
  const headers = new Headers(init.headers);
  headers.set("Authorization", `Bearer ${key}`);
  return fetch(input, { ...init, headers });
};

const expect = (holds, seen) => {
  if (!holds) throw new Error(`unexpected: ${JSON.stringify(seen)}`);
  return seen;
};

const request = (text, more = {}) =>
  SendMessageRequest.fromJSON({ message: { messageId: randomUUID(), role: "ROLE_USER", parts: [{ text }], ...more } });

const textOf = (parts) => parts.map((part) => (part.content?.$case === "text" ? part.content.value : "")).join("");
const answerOf = (task) => task.artifacts.map((artifact) => textOf(artifact.parts)).join("\n\n");

const run = async (binding, transport) => {
  const cardResolver = new DefaultAgentCardResolver({ fetchImpl });
  const client = await new ClientFactory({ transports: [transport], cardResolver }).createFromUrl(url);
  const sent = await client.sendMessage(request("Hello"));
  const first = sent.payload?.value ?? sent;
  expect(answerOf(first).includes("was: Hello") && first.status.state === TaskState.TASK_STATE_COMPLETED, first);
  expect(answerOf(await client.getTask({ id: first.id, tenant: "" })) === answerOf(first), first);

  const events = [];
  for await (const event of client.sendMessageStream(request("Hello slowly", { contextId: first.contextId }))) {
    events.push(event.payload);
  }
  const updates = events.filter((event) => event.$case === "artifactUpdate");
  const last = events.at(-1);
  expect(events[0].$case === "task" && updates.length > 3, events);
  expect(last.$case === "statusUpdate" && last.value.status.state === TaskState.TASK_STATE_COMPLETED, last);

  const asking = await client.sendMessage(request("Please ask me"));
  const asked = asking.payload?.value ?? asking;
  expect(asked.status.state === TaskState.TASK_STATE_INPUT_REQUIRED, asked);
  const answering = await client.sendMessage(request("Blue", { taskId: asked.id, contextId: asked.contextId }));
  const done = answering.payload?.value ?? answering;
  expect(answerOf(done).includes("The tool says: Blue"), done);

  const failure = await client.getTask({ id: "nothing.0", tenant: "" }).then(() => undefined, (error) => error);
  expect(failure?.constructor.name.endsWith("TaskNotFoundError"), failure);
  return `${binding}: ${updates.length} updates, ${taskStateToJSON(done.status.state)}, ${failure.constructor.name}`;
};

const lines = [
  await run("JSONRPC", new JsonRpcTransportFactory({ fetchImpl })),
  await run("HTTP+JSON", new RestTransportFactory({ fetchImpl })),
];
console.log(lines.join("; "));
