// Server-sent events, without a fleet.
import assert from "node:assert/strict";
import test from "node:test";

import { readEvents } from "../dist/event.js";

const frame = (topic, data) => `event: ${topic}\ndata: ${JSON.stringify(data)}\n\n`;

test("failed watch is no event of the log", async () => {
  const failure = { code: "model_auth", message: "no key", retryable: false, during: "model" };
  const event = { session_id: "s", seq: 2, time: "2026-01-01T00:00:00.000Z", data: failure };
  const problem = { status: 503, title: "draining", detail: "connect again", code: "draining" };
  const body = new Blob([frame("error", event), frame("watch.failed", problem)]).stream();
  const seen = [];
  const reading = (async () => {
    for await (const one of readEvents(body)) seen.push([one.topic, one.seq, one.data]);
  })();
  await assert.rejects(reading, { code: "draining", message: "connect again" });
  assert.deepEqual(seen, [["error", 2, failure]]);
});
