// Two messages of a user with the AI SDK, which keeps the history: `node history.mjs URL KEY API MARKER FIRST SECOND`.
// API is `chat`, `responses`, or `responses-unstored`. It prints its last request.

import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, tool } from "ai";
import { z } from "zod";

const [url, apiKey, api, marker, first, second] = process.argv.slice(2);
let sent;
const openai = createOpenAI({
  baseURL: `${url}/openai/v1`,
  apiKey,
  fetch: (address, options) => {
    sent = options.body;
    return fetch(address, options);
  },
});
const weather = tool({
  description: "The weather of a city.",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `${marker} in ${city}`,
});

let messages = [];
for (const content of [first, second]) {
  messages.push({ role: "user", content });
  const answer = await generateText({
    model: api === "chat" ? openai.chat("e") : openai.responses("e"),
    providerOptions: api === "responses-unstored" ? { openai: { store: false } } : {},
    tools: { weather },
    stopWhen: stepCountIs(4),
    messages,
  });
  messages = [...messages, ...answer.responseMessages];
}
console.log(sent);
