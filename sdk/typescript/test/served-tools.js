// The tools of served-tools.test.js, in a process of their own.
import { setTimeout as sleep } from "node:timers/promises";

import { ToolError, serve, tool } from "../dist/tool/index.js";

const done = new Map();
const object = (properties) => ({
  type: "object", properties, required: Object.keys(properties), additionalProperties: false,
});
const check = (name, type) => (args) => {
  if (typeof args[name] !== type) throw new Error(`${name} must be a ${type}`);
  return args;
};

await serve([
  tool({
    name: "js_words", description: "Counts words.", effect: "pure", parameters: object({ text: { type: "string" } }),
    parse: check("text", "string"), run: ({ text }) => ({ words: text.split(/\s+/).length }),
  }),
  tool({
    name: "js_keep", description: "Keeps a note.", effect: "idempotent", parameters: object({ text: { type: "string" } }),
    parse: check("text", "string"),
    run: ({ text }, call) => done.get(call.id) ?? done.set(call.id, `kept ${text}`).get(call.id),
  }),
  tool({
    name: "js_ring", description: "Rings.", effect: "at_most_once", timeoutSeconds: 10,
    parameters: object({ seconds: { type: "number", minimum: 0, maximum: 60 } }), parse: check("seconds", "number"),
    run: async ({ seconds }, call) => {
      for (let left = seconds * 10; left > 0; left -= 1) {
        call.progress(`rings in ${left / 10} s`);
        await sleep(100, undefined, { signal: call.signal });
      }
      return "rang";
    },
  }),
  tool({
    name: "js_pay", description: "Pays.", effect: "reconcilable", parameters: object({ euros: { type: "number" } }),
    parse: check("euros", "number"),
    run: ({ euros }, call) => {
      if (euros < 0) throw new ToolError("the bank\ndoes not answer", { isUnknown: true });
      done.set(call.id, `paid ${euros}`);
      return done.get(call.id);
    },
    probe: (_, call) => done.get(call.id),
  }),
]);
