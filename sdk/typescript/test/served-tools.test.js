// Tools that are served over NATS keep the protocol.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import test, { after, before } from "node:test";
import { fileURLToPath } from "node:url";

import { client } from "./support.js";

const file = fileURLToPath(new URL("served-tools.js", import.meta.url));
let replica;

function ailoop(...args) {
  return new Promise((resolve) => {
    execFile(process.env.AILOOP_BINARY, args, (error, stdout, stderr) => resolve({ code: error?.code ?? 0, stdout, stderr }));
  });
}

before(async () => {
  replica = spawn(process.execPath, [file], { stdio: "inherit" });
  for (let tries = 0; tries < 200; tries += 1) {
    const { tools } = await client.api.toolsList();
    if (tools.some((tool) => tool.name === "js_pay")) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error("the tools are not in the catalogue");
});

after(() => replica.kill("SIGKILL"));

test("each tool passes verify", async (context) => {
  const cases = { js_words: { text: "a b" }, js_keep: { text: "a" }, js_ring: { seconds: 2.5 }, js_pay: { euros: 3 } };
  for (const [name, args] of Object.entries(cases)) {
    await context.test(name, async () => {
      const found = await ailoop("tools", "verify", name, "--yes", "--json", "--args", JSON.stringify(args));
      assert.equal(found.code, 0, found.stdout + found.stderr);
      const marks = Object.fromEntries(JSON.parse(found.stdout).checks.map(({ check, mark }) => [check, mark]));
      if (name === "js_ring") assert.deepEqual([marks.cancel, marks.progress], ["pass", "pass"]);
    });
  }
});

test("failure with unknown outcome is reported as such", async () => {
  const found = await ailoop("tools", "try", "js_pay", "--args", '{"euros": -1}');
  assert.match(found.stderr, /unknown/);
  assert.match(found.stderr, /does not answer/);
});

test("running call ends before a stopped replica", async () => {
  const call = spawn(process.env.AILOOP_BINARY, ["tools", "try", "js_ring", "--args", '{"seconds": 2}']);
  let stdout = "";
  call.stdout.on("data", (part) => (stdout += part));
  await once(call.stderr, "data");
  replica.kill("SIGTERM");
  const [[code]] = await Promise.all([once(replica, "exit"), once(call.stdout, "end")]);
  assert.deepEqual([stdout.trim(), code], ["rang", 0]);
});
