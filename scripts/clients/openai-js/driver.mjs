// What the npm package openai does with an edge: `node driver.mjs URL KEY`. It prints one line for each check.

import OpenAI from "openai";

const [url, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/openai/v1`, apiKey });

const expect = (holds, seen) => {
  if (!holds) throw new Error(`unexpected: ${JSON.stringify(seen)}`);
  return seen;
};

const weather = {
  type: "function",
  function: {
    name: "weather",
    description: "The weather of a city.",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    parse: JSON.parse,
    function: ({ city }) => `rain in ${city}`,
  },
};

const chat = client.chat.completions.stream({ model: "e", messages: [{ role: "user", content: "Hello slowly" }] });
expect((await chat.finalContent()).includes("Hello slowly"), "the text");

const runner = client.chat.completions.runTools({
  model: "e",
  messages: [{ role: "user", content: "What is the weather?" }],
  tools: [weather],
  stream: true,
});
expect((await runner.finalContent()).includes("rain in Bonn"), "the result of the tool");

const response = client.responses.stream({ model: "e", input: "Hello slowly" });
let pieces = 0;
response.on("response.output_text.delta", () => (pieces += 1));
const final = await response.finalResponse();
expect(pieces > 3 && final.output_text.includes("Hello slowly"), final);

const again = await client.responses.retrieve(final.id);
expect(again.output_text.trim() === final.output_text.trim(), again);
const replay = client.responses.stream({ response_id: final.id, starting_after: 3 });
expect((await replay.finalResponse()).output_text === again.output_text, "the replayed response");

const next = await client.responses.create({ model: "e", input: "Two", previous_response_id: final.id });
expect(next.output_text.startsWith("Message 2"), next.output_text);
const conversation = await client.conversations.create({});
const spoken = await client.responses.create({ model: "e", input: "One", conversation: conversation.id });
const items = [];
for await (const item of client.conversations.items.list(conversation.id, { order: "asc" })) items.push(item.type);
expect(items.join(" ") === "message message", items);

const failed = await client.responses.create({ model: "nobody", input: "x" }).catch((error) => error);
expect(failed instanceof OpenAI.NotFoundError && failed.code === "model_not_found", failed);
console.log(`${pieces} pieces, a tool of its own, ${spoken.output_text.trim()}`);
