// Sessions as invocations of a service of Restate: each call of the model and of the tool is a step of its journal.

import cluster from "node:cluster";
import http from "node:http";
import http2 from "node:http2";
import * as restate from "@restatedev/restate-sdk";

const [model, port, processes] = process.argv.slice(2);
const TOOLS = [{
  type: "function",
  function: {
    name: "word_count",
    description: "Counts the words of a text.",
    parameters: {
      type: "object",
      properties: { text: { type: "string" }, part: { type: "integer" } },
      required: ["text"],
    },
  },
}];
const agent = new http.Agent({ keepAlive: true });

// Sends a request and returns the body of its answer. No client library is measured.
function post(url, body) {
  return new Promise((resolve, reject) => {
    const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(body) };
    const request = http.request(url, { method: "POST", agent, headers }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (part) => { text += part; });
      response.on("error", reject);
      response.on("end", () => {
        if (response.statusCode === 200) resolve(text);
        else reject(new Error(`the model server answered with ${response.statusCode}: ${text}`));
      });
    });
    request.on("error", reject);
    request.end(body);
  });
}

// The model's reply as a message.
async function askModel(messages) {
  const request = { model: "bench", stream: true, messages, tools: TOOLS };
  const text = await post(`${model}/chat/completions`, JSON.stringify(request));
  const message = { role: "assistant", content: "" };
  for (const line of text.split("\n")) {
    if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
    for (const { delta } of JSON.parse(line.slice(6)).choices) {
      message.content += delta.content ?? "";
      for (const part of delta.tool_calls ?? []) {
        message.tool_calls ??= [];
        message.tool_calls[part.index] ??= { id: "", type: "function", function: { name: "", arguments: "" } };
        const call = message.tool_calls[part.index];
        call.id += part.id ?? "";
        call.function.name += part.function.name ?? "";
        call.function.arguments += part.function.arguments ?? "";
      }
    }
  }
  return message;
}

// The tool's result as a message.
function runTool(call) {
  const words = JSON.parse(call.function.arguments).text.trim().split(/\s+/).length;
  return { role: "tool", tool_call_id: call.id, content: JSON.stringify({ words }) };
}

// A plain service: Restate's virtual objects and workflows would also keep a state by key, which no session needs.
const sessions = restate.service({
  name: "sessions",
  handlers: {
    // Returns the number of steps.
    run: async (ctx, prompt) => {
      const messages = [{ role: "user", content: prompt }];
      for (let steps = 1; ; steps += 1) {
        const reply = await ctx.run("model", () => askModel(messages));
        messages.push(reply);
        if (!reply.tool_calls) return steps;
        for (const call of reply.tool_calls) {
          messages.push(await ctx.run("tool", () => runTool(call)));
        }
      }
    },
  },
});

if (cluster.isPrimary && Number(processes) > 1) {
  let listening = 0;
  cluster.on("listening", () => {
    listening += 1;
    if (listening === Number(processes)) console.log("ready");
  });
  // Fewer processes than wanted must not be measured.
  cluster.on("exit", () => process.exit(1));
  for (let index = 0; index < Number(processes); index += 1) cluster.fork();
} else {
  // As `restate.serve` does, but on the loopback address alone.
  const server = http2.createServer(restate.createEndpointHandler({ services: [sessions] }));
  server.listen(Number(port), "127.0.0.1", () => {
    if (cluster.isPrimary) console.log("ready");
  });
}
