// Calls an agent with an SDK of MCP, and prints what it saw as JSON. Arguments: package, URL, key.
const [, , name, url, key] = process.argv;
const isFirst = name === "@modelcontextprotocol/sdk";
const { Client } = await import(isFirst ? `${name}/client/index.js` : name);
const { StreamableHTTPClientTransport } = await import(isFirst ? `${name}/client/streamableHttp.js` : name);

const options = { capabilities: { elicitation: {} } };
if (!isFirst) options.versionNegotiation = { mode: "auto" };
const client = new Client({ name: "check", version: "1" }, options);
const answer = async () => ({ action: "accept", content: { answer: "green" } });
if (isFirst) {
  const { ElicitRequestSchema } = await import(`${name}/types.js`);
  client.setRequestHandler(ElicitRequestSchema, answer);
} else {
  client.setRequestHandler("elicitation/create", answer);
}
const headers = { authorization: `Bearer ${key}` };
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));

let progress = 0;
const call = (tool, args, more = {}) => {
  const params = { name: tool, arguments: args };
  return isFirst ? client.callTool(params, undefined, more) : client.callTool(params, more);
};
const tools = (await client.listTools()).tools.map((tool) => tool.name);
const done = await call("e", { prompt: "Hello slowly" }, { onprogress: () => (progress += 1) });
const asked = await call("helper", { prompt: "Please ask me" });
const failed = await call("session_status", { session_id: "nowhere" });
const version = isFirst ? "2025-11-25" : client.getNegotiatedProtocolVersion?.();
console.log(JSON.stringify({
  tools, progress, version, answer: done.content[0].text, asked: asked.content[0].text,
  error: failed.structuredContent.code,
}));
await client.close();
