// What the npm package @ag-ui/client does with an edge: `node driver.mjs PACKAGE URL KEY`. It prints one line for each scenario.

import { randomUUID } from "node:crypto";

const [name, url, key] = process.argv.slice(2);
const { HttpAgent } = await import(name);
const isVersion1 = name.endsWith("1");

const expect = (holds, seen) => {
  if (!holds) throw new Error(`unexpected: ${JSON.stringify(seen)}`);
  return seen;
};

const make = (agent = "e", credential = key) =>
  new HttpAgent({
    url: `${url}/ag-ui/${agent}`,
    headers: { Authorization: `Bearer ${credential}` },
    threadId: randomUUID(),
  });

const say = (agent, content) => agent.addMessage({ id: randomUUID(), role: "user", content });
const last = (agent) => agent.messages.at(-1);

// Runs the agent, and returns its events and how it ended. The package itself refuses events in a wrong order.
const run = async (agent, parameters = {}) => {
  const seen = { events: [], finished: null, failure: null };
  try {
    const { result } = await agent.runAgent(parameters, {
      onEvent: ({ event }) => void seen.events.push(event),
      onRunFinishedEvent: ({ outcome, interrupts, pendingToolCallIds }) => {
        seen.finished = { outcome, interrupts, pendingToolCallIds };
      },
      onRunErrorEvent: ({ event }) => void (seen.failure = { code: event.code, message: event.message }),
      onRunFailed: ({ error }) => void (seen.failure ??= { status: error.status, message: error.message, payload: error.payload }),
    });
    seen.result = result;
  } catch (error) {
    seen.failure ??= { status: error.status, message: error.message, payload: error.payload };
  }
  return seen;
};

const text = async () => {
  const agent = make();
  say(agent, "Hello");
  const first = await run(agent);
  expect(first.finished?.outcome === "success" && first.result.stopReason === "completed", first);
  say(agent, "And now?");
  await run(agent);
  expect(last(agent).content.startsWith("Message 2 was: And now?"), agent.messages);
  return `${agent.messages.length} messages, "${last(agent).content}"`;
};

const fleetTool = async () => {
  const agent = make();
  say(agent, "Please list the files");
  const seen = await run(agent);
  const roles = agent.messages.map((message) => message.role).join(",");
  expect(roles === "user,assistant,tool,assistant", [roles, seen.failure]);
  expect(agent.messages[1].toolCalls[0].function.name === "list_files", agent.messages);
  return roles;
};

const clientTool = async () => {
  const tools = [
    {
      name: "weather",
      description: "The weather of a city.",
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    },
  ];
  const agent = make();
  say(agent, "What is the weather?");
  const first = await run(agent, { tools });
  const call = agent.messages.flatMap((message) => message.toolCalls ?? []).at(-1);
  expect(JSON.parse(call.function.arguments).city === "Bonn", first);
  if (isVersion1) expect(first.finished.pendingToolCallIds[0] === call.id, first);
  agent.addMessage({ id: randomUUID(), role: "tool", toolCallId: call.id, content: "rain" });
  const second = await run(agent, { tools });
  expect(last(agent).content.includes("The tool says: rain"), [agent.messages, second.failure]);
  expect(agent.messages.filter((message) => message.role === "tool").length === 1, agent.messages);
  return last(agent).content;
};

const approval = async () => {
  const agent = make();
  say(agent, "Please write a file");
  const first = await run(agent);
  const [interrupt] = agent.pendingInterrupts;
  expect(first.finished?.outcome === "interrupt" && interrupt.responseSchema.properties.editedArgs, first);
  const messages = agent.messages.map((message) => message.role).join(",");
  expect(messages === "user,assistant", messages);
  const payload = { approved: true, editedArgs: { path: "other.txt", content: "hi" } };
  const resume = [{ interruptId: interrupt.id, status: "resolved", payload }];
  // The same answer twice, as a client sends it that lost its connection.
  const twin = agent.clone();
  await run(agent, { resume });
  expect(last(agent).content.includes("The tool says:"), agent.messages);
  expect(agent.pendingInterrupts.length === 0, agent.pendingInterrupts);
  await run(twin, { resume });
  expect(last(twin).content === last(agent).content, twin.messages);
  const stale = make();
  stale.threadId = agent.threadId;
  const refused = await run(stale, { resume: [{ interruptId: interrupt.id, status: "cancelled" }] });
  expect(refused.failure.code === "gate_closed", refused);
  return `${last(agent).content} Then ${refused.failure.code}.`;
};

const question = async () => {
  const agent = make();
  say(agent, "Please ask me");
  await run(agent);
  const [interrupt] = agent.pendingInterrupts;
  expect(interrupt.message === "Which colour?", interrupt);
  // A client that does not know of the interrupt.
  const other = make();
  other.threadId = agent.threadId;
  say(other, "Hello?");
  const refused = await run(other);
  expect(refused.failure.code === "not_now", refused);
  await run(agent, { resume: [{ interruptId: interrupt.id, status: "resolved", payload: { answer: "blue" } }] });
  expect(last(agent).content.includes("blue"), agent.messages);
  return last(agent).content;
};

const errors = async () => {
  const seen = [];
  for (const [agent, credential, status] of [
    ["nobody", key, 404],
    ["e", "wrong", 401],
  ]) {
    const refused = make(agent, credential);
    say(refused, "Hello");
    const { failure } = await run(refused);
    expect(failure.status === status && failure.payload.type === "RUN_ERROR", failure);
    seen.push(`${status} ${failure.payload.code}`);
  }
  return seen.join(", ");
};

const stop = async () => {
  const agent = make();
  say(agent, "Take your time and say this slowly, word for word, so that there is time to stop it meanwhile");
  const running = run(agent);
  await new Promise((resolve) => setTimeout(resolve, 1000));
  const headers = { Authorization: `Bearer ${key}` };
  await fetch(`${url}/ag-ui/agent/e/stop/${agent.threadId}`, { method: "POST", headers });
  const seen = await running;
  const outcome = seen.finished?.outcome ?? seen.failure.code;
  expect(outcome === (isVersion1 ? "cancelled" : "session_ended"), seen);
  say(agent, "Hello again");
  await run(agent);
  expect(last(agent).content.includes("Hello again"), agent.messages);
  return `${outcome}, and the thread goes on`;
};

for (const scenario of [text, fleetTool, clientTool, approval, question, errors, stop]) {
  process.stdout.write(`${scenario.name}: ${await scenario()}\n`);
}
