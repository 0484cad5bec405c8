// Sessions, turns, events and errors against a fleet.
import assert from "node:assert/strict";
import test from "node:test";

import * as ailoop from "../dist/index.js";
import { client, killEdge, lostResponses, textOf, weatherTool } from "./support.js";

const SLOW = "Take your time and say this slowly, word for word, so that there is time to kill the edge in the middle of it";

test("run returns answer and usage", async () => {
  const result = await client.run("e", "Hello");
  assert.equal(result.text.trim(), "Message 1 was: Hello");
  assert.equal(result.stopReason, "completed");
  assert.ok(result.spent.usage.input > 0);
});

test("turn streams text that is the answer", async () => {
  const session = await client.start("e", "Say this slowly");
  const pieces = [];
  for await (const text of session.turn()) pieces.push(text);
  assert.ok(pieces.length > 3);
  assert.equal(pieces.join("").trim(), "Message 1 was: Say this slowly");
  const turn = session.turn("Say two slowly");
  for await (const _ of turn) break;
  const result = await turn;
  assert.deepEqual([result.turn, result.text.trim()], [2, "Message 2 was: Say two slowly"]);
});

test("queued message gets result of its own turn", async () => {
  const session = await client.start("e", "First, slowly");
  const results = await Promise.all([session.turn(), session.turn("Second"), session.turn("Third")]);
  assert.deepEqual(results.map((result) => result.turn).sort(), [1, 2, 3]);
  assert.match(results[1].text, /Second/);
  assert.match(results[2].text, /Third/);
});

test("turn of session that exists is its last one, or the one that runs", async () => {
  const started = await client.start("e", "One");
  await started.turn();
  assert.equal(await textOf(client.session(started.id).turn()), "Message 1 was: One");
  await started.send(SLOW);
  assert.equal(await textOf(client.session(started.id).turn()), `Message 2 was: ${SLOW}`);
  const empty = await client.start("e");
  await assert.rejects(client.session(empty.id).turn().result(), ailoop.Conflict);
});

test("cancelled turn is stopped and its session goes on", async () => {
  const session = await client.start("e", SLOW);
  const turn = session.turn();
  let isFirst = true;
  for await (const _ of turn) {
    if (isFirst) await session.cancel("enough");
    isFirst = false;
  }
  assert.equal((await turn).stopReason, "stopped");
  assert.equal((await session.turn("Two")).turn, 2);
});

test("events survive killed edge and each comes once", async () => {
  const session = await client.start("e", SLOW);
  let isDone = false;
  const killAll = async () => {
    for (let round = 0; round < 4; round += 1) await killEdge();
  };
  const killed = killAll().then(() => (isDone = true));
  const seen = [];
  for await (const event of session.events()) {
    if (event.seq) seen.push(event.seq);
    if (event.topic === "turn.completed") {
      if (isDone) break;
      await session.send("Say this slowly");
    }
  }
  await killed;
  assert.deepEqual(seen, Array.from({ length: seen.at(-1) }, (_, index) => index + 1));
});

test("text of turn is whole though edge is killed", async () => {
  for (let round = 0; round < 3; round += 1) {
    const session = await client.start("e", SLOW);
    const [text] = await Promise.all([textOf(session.turn()), killEdge()]);
    assert.equal(text, `Message 1 was: ${SLOW}`);
  }
});

test("commands while edge is killed make one turn each", async () => {
  const killed = killEdge();
  const ids = new Set();
  for (let number = 0; number < 20; number += 1) {
    const session = await client.start("e", `Number ${number}`);
    await session.turn();
    assert.equal((await session.get()).turn, 1);
    ids.add(session.id);
  }
  await killed;
  assert.equal(ids.size, 20);
});

test("command whose response is lost is sent once", async () => {
  const lost = lostResponses(2);
  const session = await new ailoop.Client({ fetch: lost.fetch }).start("e", "Hello");
  await session.turn();
  lost.left = 2;
  await session.turn("Again");
  assert.equal(lost.paths.filter((path) => path === "/v1/sessions").length, 3);
  assert.equal(lost.paths.filter((path) => path.endsWith("/messages")).length, 3);
  assert.equal((await session.get()).turn, 2);
});

test("same key means same run and same turn", async () => {
  const idempotencyKey = `night-${Math.random().toString(36).slice(2)}`;
  const first = await client.run("e", "Once", { idempotencyKey });
  assert.deepEqual(await client.run("e", "Once", { idempotencyKey }), first);
  const { id } = await client.start("e");
  const again = () => client.session(id).turn("Once", { idempotencyKey: "m1" }).result();
  assert.deepEqual(await again(), await again());
});

test("errors have codes and classes", async () => {
  const session = await client.start("e", "Hello", { interactive: false, tools: [weatherTool()] });
  await session.turn();
  const observer = new ailoop.Client({ apiKey: process.env.AILOOP_OBSERVER_KEY });
  const stranger = new ailoop.Client({ apiKey: "wrong" });
  const nowhere = new ailoop.Client({ url: "http://127.0.0.1:9", retryMs: 500 });
  for (const [code, status, kind, request] of [
    ["unknown_agent", 404, ailoop.NotFound, () => client.run("nobody", "x")],
    ["session_ended", 409, ailoop.Conflict, () => session.send("Two")],
    ["bad_request", 400, ailoop.BadRequest, () => client.run("e", "x", { settings: { colour: 1 } })],
    ["forbidden", 403, ailoop.AccessDenied, () => observer.run("e", "x")],
    ["unauthorized", 401, ailoop.AccessDenied, () => stranger.run("e", "x")],
    ["resync", 410, ailoop.CursorLost, () => session.events({ fromSeq: 99 }).next()],
    ["unreachable", undefined, ailoop.ConnectionFailed, () => nowhere.run("e", "x")],
  ]) {
    await assert.rejects(request, (error) => {
      assert.ok(error instanceof kind, String(error));
      assert.deepEqual([error.code, error.status], [code, status]);
      return true;
    });
  }
});

test("every route is a method", async () => {
  const document = await (await fetch(`${process.env.AILOOP_OPEN_URL}/v1/openapi.json`)).json();
  for (const operation of Object.values(document.paths).flatMap((path) => Object.values(path))) {
    const name = operation.operationId.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());
    if (name !== "sessionWatch") assert.equal(typeof client.api[name], "function", name);
  }
  assert.ok((await client.api.sessionList({ limit: 2 })).sessions.length === 2);
});
