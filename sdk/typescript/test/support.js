// What the tests share: the fleet of the environment, and connections that break.
import { Client, clientTool } from "../dist/index.js";

export const client = new Client();

/** Kills the edge, and resolves when it listens again. */
export async function killEdge() {
  const response = await fetch(`${process.env.AILOOP_TEST_CONTROL}/kill`, { method: "POST" });
  if (!response.ok) throw new Error(`the edge was not killed: ${response.status}`);
}

export function weatherTool(settings = {}) {
  return clientTool({
    name: "weather",
    description: "The weather of a city.",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    parse: (args) => {
      if (typeof args.city !== "string") throw new Error("`city` is missing");
      return args;
    },
    run: ({ city }) => `rain in ${city}`,
    ...settings,
  });
}

export function refundTool() {
  return clientTool({
    name: "refund_order",
    description: "Pays back money.",
    parameters: { type: "object", properties: { order: { type: "string" }, euros: { type: "number" } } },
    run: async ({ order, euros }) => ({ refunded: euros, order }),
  });
}

/** A `fetch` that performs requests, and loses the responses to the first POSTs. */
export function lostResponses(count) {
  const lost = { left: count, paths: [] };
  lost.fetch = async (input, init) => {
    const response = await fetch(input, init);
    if (init.method === "POST") {
      lost.paths.push(new URL(input).pathname);
      if (lost.left > 0) {
        lost.left -= 1;
        throw new TypeError("fetch failed", { cause: new Error("the connection was reset") });
      }
    }
    return response;
  };
  return lost;
}

export async function textOf(turn) {
  let text = "";
  for await (const piece of turn) text += piece;
  return text.trim();
}
