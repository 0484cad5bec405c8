// What an editor that uses the npm package @agentclientprotocol/sdk does with `ailoop acp`: `node driver.mjs AILOOP DIRECTORY`.
// The environment names the fleet. It prints one line for each scenario.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const [ailoop, cwd] = process.argv.slice(2);
const { agent: requests, client: answers } = acp.methods;
const SLOW = "Take your time and say this slowly, word for word, so that there is time to break something meanwhile";
const WAIT_MS_MAX = 60_000;

const expect = (holds, seen) => {
  if (!holds) throw new Error(`unexpected: ${JSON.stringify(seen)}`);
  return seen;
};

// Starts the agent, and returns what the editor was shown and the connection, after `initialize`.
const openEditor = async () => {
  const editor = { updates: [], permissions: [], choose: (options) => options[0].optionId };
  editor.process = spawn(ailoop, ["acp"], { cwd, stdio: ["pipe", "pipe", "inherit"] });
  const stream = acp.ndJsonStream(Writable.toWeb(editor.process.stdin), Readable.toWeb(editor.process.stdout));
  const app = acp
    .client({ name: "check" })
    .onNotification(answers.session.update, ({ params }) => void editor.updates.push(params.update))
    .onRequest(answers.session.requestPermission, ({ params }) => {
      editor.permissions.push(params.toolCall);
      const optionId = editor.choose(params.options);
      return { outcome: { outcome: "selected", optionId } };
    });
  editor.connection = app.connect(stream);
  editor.agent = editor.connection.agent;
  const answer = await editor.agent.request(requests.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: {},
  });
  expect(answer.protocolVersion === 1 && answer.agentCapabilities.loadSession, answer);
  return editor;
};

// Kills the agent unless it was killed, and waits for its end.
const kill = async (editor) => {
  if (editor.process.signalCode) return;
  const ended = once(editor.process, "exit");
  editor.process.kill("SIGKILL");
  await ended;
};

const chunks = (editor, kind = "agent_message_chunk") => editor.updates.filter((update) => update.sessionUpdate === kind);
const text = (editor, kind) => chunks(editor, kind).map((update) => update.content.text).join("");
const statuses = (editor) =>
  editor.updates.filter((update) => update.sessionUpdate.startsWith("tool_call") && update.status).map((update) => update.status);

const newSession = async (editor) => (await editor.agent.request(requests.session.new, { cwd, mcpServers: [] })).sessionId;

const ask = (editor, sessionId, asked) =>
  editor.agent.request(requests.session.prompt, { sessionId, prompt: [{ type: "text", text: asked }] });

const until = async (what, holds) => {
  const deadline = Date.now() + WAIT_MS_MAX;
  while (!holds()) {
    expect(Date.now() < deadline, what);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
};

const stream = async (editor) => {
  const seen = await editor.agent.buildSession(cwd).withSession(async (session) => {
    const answer = session.prompt("Hello slowly");
    const first = await session.readText();
    expect((await answer).stopReason === "end_turn", await answer);
    session.prompt("Again");
    return [first.trim(), (await session.readText()).trim()];
  });
  // Each answer comes in pieces.
  expect(chunks(editor).length > 4 && seen.join("; ") === "Message 1 was: Hello slowly; Message 2 was: Again", seen);
  return `${chunks(editor).length} pieces: ${seen.join("; ")}`;
};

const toolCall = async (editor) => {
  await ask(editor, await newSession(editor), "Please list the files");
  expect(statuses(editor).join() === "pending,in_progress,completed", editor.updates);
  const [call] = chunks(editor, "tool_call");
  expect(call.kind === "search" && call.rawInput.path === ".", call);
  return `${call.title}: ${statuses(editor)}`;
};

const permission = async (editor) => {
  const session = await newSession(editor);
  await ask(editor, session, "Please write a file");
  const [asked] = editor.permissions;
  expect(editor.permissions.length === 1 && asked.rawInput.path === "note.txt", editor.permissions);
  expect(statuses(editor).join() === "pending,in_progress,completed", statuses(editor));
  editor.choose = (options) => options.find((option) => option.kind === "reject_once").optionId;
  await ask(editor, session, "Please write a file");
  expect(statuses(editor).slice(3).join() === "pending,failed", statuses(editor));
  return statuses(editor);
};

const cancel = async (editor) => {
  const session = await newSession(editor);
  const prompt = ask(editor, session, SLOW);
  await until("the begin of the reply", () => text(editor).includes("Take"));
  await editor.agent.notify(requests.session.cancel, { sessionId: session });
  const answer = await prompt;
  expect(answer.stopReason === "cancelled" && !text(editor).includes("meanwhile"), [answer, text(editor)]);
  editor.updates.length = 0;
  await ask(editor, session, "Something else");
  return expect(text(editor).trim() === "Message 2 was: Something else", text(editor)).trim();
};

const loadAfterKill = async (first) => {
  const session = await newSession(first);
  const lost = ask(first, session, SLOW).then(() => "answered", () => "lost");
  await until("the begin of the reply", () => text(first).includes("Take"));
  await kill(first);
  expect((await lost) === "lost", await lost);

  const second = await openEditor();
  await second.agent.request(requests.session.load, { sessionId: session, cwd, mcpServers: [] });
  expect(text(second, "user_message_chunk") === SLOW, second.updates);
  await until("the end of the reply", () => text(second).includes("meanwhile"));
  expect(text(second).trim() === `Message 1 was: ${SLOW}`, text(second));
  // The turn may run still: then this steers it.
  await ask(second, session, "Again");
  const { sessions } = await second.agent.request(requests.session.list, { cwd });
  expect(sessions.some((entry) => entry.sessionId === session), sessions);
  await kill(second);

  const third = await openEditor();
  await third.agent.request(requests.session.resume, { sessionId: session, cwd, mcpServers: [] });
  expect(third.updates.length === 0, third.updates);
  await ask(third, session, "Third");
  await kill(third);
  return expect(text(third).trim() === "Message 3 was: Third", text(third)).trim();
};

const refusals = async (editor) => {
  const session = await newSession(editor);
  const first = ask(editor, session, "Hello slowly");
  await until("the begin of the reply", () => text(editor));
  const codes = [];
  for (const request of [() => ask(editor, session, "More"), () => ask(editor, "nobody", "More")]) {
    const failure = await request().then(() => undefined, (error) => error);
    expect(failure instanceof acp.RequestError, failure);
    codes.push(failure.data.code);
  }
  await first;
  return expect(codes.join() === "not_now,unknown_session", codes);
};

for (const scenario of [stream, toolCall, permission, cancel, loadAfterKill, refusals]) {
  const editor = await openEditor();
  process.stdout.write(`${scenario.name}: ${await scenario(editor)}\n`);
  await kill(editor);
}
