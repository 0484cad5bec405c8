// What the core of CopilotKit's front end does with an edge as its runtime: `node copilotkit.mjs URL KEY`.

const [url, key] = process.argv.slice(2);
// The package asks its runtime for agents in a page only.
globalThis.window = { location: { origin: url, href: `${url}/` } };
const { CopilotKitCore } = await import("@copilotkit/core");

const expect = (holds, seen) => {
  if (!holds) throw new Error(`unexpected: ${JSON.stringify(seen)}`);
  return seen;
};

const until = async (what, holds) => {
  for (let tries = 0; !holds(); tries += 1) {
    expect(tries < 200, what);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
};

const core = new CopilotKitCore({
  runtimeUrl: `${url}/ag-ui`,
  headers: { Authorization: `Bearer ${key}` },
  tools: [
    {
      name: "weather",
      description: "The weather of a city.",
      handler: async ({ city }) => `rain in ${city}`,
    },
  ],
});
await until("the agents of the runtime", () => core.getAgent("e"));
const agent = core.getAgent("e");
agent.threadId = crypto.randomUUID();
const say = (content) => agent.addMessage({ id: crypto.randomUUID(), role: "user", content });

say("Hello");
await core.runAgent({ agent });
expect(agent.messages.at(-1).content.includes("was: Hello"), agent.messages);
say("What is the weather?");
await core.runAgent({ agent });
expect(agent.messages.at(-1).content.includes("rain in Bonn"), agent.messages);

// Another page that opens the same thread.
const roles = agent.messages.map((message) => message.role).join(",");
agent.setMessages([]);
await core.connectAgent({ agent });
const shown = agent.messages.map((message) => message.role).join(",");
expect(shown === roles, [roles, shown]);

say("Take your time and say this slowly, word for word, so that there is time to stop it meanwhile");
const running = core.runAgent({ agent });
await new Promise((resolve) => setTimeout(resolve, 1000));
core.stopAgent({ agent });
await running;
say("Hello again");
await core.runAgent({ agent });
expect(agent.messages.at(-1).content.includes("Hello again"), agent.messages);
process.stdout.write(`run, tool, connect (${shown}), stop\n`);
process.exit(0);
