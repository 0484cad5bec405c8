// Tools of the client, and gates.
import assert from "node:assert/strict";
import test from "node:test";

import { client, refundTool, weatherTool } from "./support.js";

test("function is called and its result is read", async () => {
  const result = await client.run("e", "What is the weather?", { tools: [weatherTool()] });
  assert.match(result.text, /rain in Bonn/);
});

test("exception and wrong arguments are read by the model", async () => {
  const failing = weatherTool({ run: () => { throw new Error("no sensor"); } });
  assert.match((await client.run("e", "What is the weather?", { tools: [failing] })).text, /no sensor/);
  assert.match((await client.run("e", "wrong arguments", { tools: [weatherTool()] })).text, /`city` is missing/);
});

test("open call is performed by restarted client", async () => {
  for (const [effect, wanted] of [["pure", /rain in Bonn/], ["at_most_once", /may have performed this call before/]]) {
    const tools = [weatherTool({ effect })];
    const session = await client.start("e", "What is the weather?", { tools });
    for await (const event of session.events()) if (event.topic === "tool_call.waiting") break;
    assert.match((await client.session(session.id, { tools }).turn()).text, wanted);
  }
});

test("call that has ended is aborted", async () => {
  let signal;
  const slow = weatherTool({ run: (_, call) => new Promise(() => (signal = call.signal)) });
  const session = await client.start("e", "What is the weather?", { tools: [slow] });
  const turn = session.turn().result();
  while (!signal) await new Promise((resolve) => setTimeout(resolve, 20));
  await session.stop();
  assert.equal((await turn).stopReason, "stopped");
  assert.ok(signal.aborted);
});

test("gate is approved, denied and approved with other arguments", async () => {
  const gates = [];
  const refund = async (onApproval) => {
    return (await client.run("e", "Please refund it", { tools: [refundTool()], onApproval })).text;
  };
  assert.match(await refund((gate) => { gates.push(gate); return true; }), /"refunded":40/);
  assert.deepEqual([gates[0].tool, gates[0].kind, gates[0].arguments.euros], ["refund_order", "approval", 40]);
  assert.match(await refund(async () => ({ decision: "deny", note: "not on a Friday" })), /not on a Friday/);
  const other = (gate) => ({ decision: "approve", arguments: { ...gate.arguments, euros: 5 } });
  assert.match(await refund(other), /"refunded":5/);
});

test("question is answered", async () => {
  const result = await client.run("e", "ask me", { onQuestion: () => "blue" });
  assert.match(result.text, /blue/);
});

test("question to a program that only approves stays open and the turn goes on", async (t) => {
  const warned = new Promise((resolve) => t.mock.method(console, "warn", resolve));
  const session = await client.start("e", "ask me", { onApproval: () => true });
  const turn = session.turn().result();
  const warning = await Promise.race([warned, turn.then((result) => assert.fail(`the turn ended: ${result.text}`))]);
  const [gate] = (await session.get()).gates;
  assert.match(warning, new RegExp(`waits for a question, and there is no onQuestion: the gate ${gate.gate} stays open`));
  const { arguments_sha256 } = gate;
  await client.api.sessionAnswer(session.id, gate.gate, { arguments_sha256, decision: "answer", content: "green" });
  assert.match((await turn).text, /green/);
});

test("text for an approval is refused before it is sent", async () => {
  const run = client.run("e", "Please refund it", { tools: [refundTool()], onApproval: () => "y" });
  await assert.rejects(run, /onApproval returned "y" for the gate .*: return true or false/);
});

test("failing callback ends the turn with its error", async () => {
  const onApproval = () => { throw new RangeError("no"); };
  await assert.rejects(client.run("e", "Please refund it", { tools: [refundTool()], onApproval }), RangeError);
});
