// A scripted model that speaks the chat completions protocol: what it answers follows from the messages alone.

import http from "node:http";

const WORD_MS = 40;
const LATE_MS = 6000;
export const HOSTILE_TEXT =
  '<script>window.harmed = 1</script><img src=x onerror="window.harmed = 2"> <b>bold</b>\n\n' +
  "[click](javascript:window.harmed=3) ![pixel](http://127.0.0.1:9/pixel.png) <i>inline</i> " +
  "\u001b[31mred\u001b[0m and \u202Etxt.exe\u202C and a\u200Bb.\n\n" +
  "```html\n<iframe src=javascript:window.harmed=4></iframe>\n```\n";
export const HOSTILE_ARGUMENTS = { path: "safe\u202Etxt.sh", content: "rm -rf / # \u200Bharmless\u001b[2K" };

/** Calls that a request asks for: its words, the tool, and the arguments by how often the tool was called. */
const SCRIPTS = [
  [
    "write the notes",
    "write_file",
    (n) => ({ path: "notes.txt", content: `# Notes\n\n- one\n- two\n- ${["three", "four"][n]}\n` }),
    2,
  ],
  ["write a file", "write_file", () => ({ path: "note.txt", content: "hello" }), 1],
  ["write it hostile", "write_file", () => HOSTILE_ARGUMENTS, 1],
  ["list the files", "list_files", () => ({ path: "." }), 1],
  [
    "ask me",
    "ask_user",
    () => ({ question: "Which colour should the report have?", choices: ["Blue", "Green"], default: "Blue" }),
    1,
  ],
  ["delegate it", "delegate", () => ({ agent: "w", task: "list the files" }), 1],
  ["read the selection", "read_selection", () => ({ trim: true }), 1],
];

function reply(body) {
  const { messages } = body;
  const user = messages.filter((message) => message.role === "user");
  const asked = textOf(user.at(-1).content);
  const tools = new Set((body.tools ?? []).map((tool) => tool.function.name));
  const since = messages.slice(messages.lastIndexOf(user.at(-1)) + 1);
  const results = since.filter((message) => message.role === "tool").length;
  const done = [["continuation", { status: "TERMINATE", reason: "The question is answered." }]];
  const many = /(\d+) calls in (\d+) steps/.exec(asked);
  if (many && tools.has("list_files")) {
    const [calls, steps] = [Number(many[1]), Number(many[2])];
    const step = since.filter((message) => message.role === "assistant").length;
    if (step < steps)
      return [
        `Step ${step + 1}.`,
        Array.from({ length: calls }, (_, n) => ["list_files", { path: ".", max: step * calls + n + 1 }]),
      ];
  }
  for (const [words, tool, args, times] of SCRIPTS) {
    if (asked.includes(words) && tools.has(tool) && results < times)
      return [`Let me do that with \`${tool}\`.`, [[tool, args(results)]]];
  }
  if (asked.includes("hostile"))
    return [HOSTILE_TEXT + (asked.includes("long line") ? "x".repeat(1_000_000) : ""), done];
  if (asked.includes("slowly"))
    return [
      `Slow words for **${asked}**: ${"one two three four five six seven eight nine ten ".repeat(asked.includes("very") ? 12 : 3)}done.`,
      done,
    ];
  if (asked.includes("table"))
    return [
      "| a | b |\n|---|---:|\n| one | 1 |\n| two | 2 |\n\n1. first\n2. second\n\n> quoted\n\n```diff\n-old\n+new\n```\n",
      done,
    ];
  const images = imagesOf(user.at(-1).content);
  if (images > 0) return [`I see ${images} image of ${asked}`, done];
  return [`Message ${user.length} was: ${asked}`, done];
}

function imagesOf(content) {
  return typeof content === "string" ? 0 : content.filter((part) => part.type === "image_url").length;
}

function textOf(content) {
  return typeof content === "string" ? content : content.map((part) => part.text ?? "").join(" ");
}

/** Serves the model on a free port of this machine. */
export async function startModel() {
  const server = http.createServer(async (request, response) => {
    if (request.url.includes("/broken")) {
      request.resume();
      response.writeHead(503).end("overloaded");
      return;
    }
    let text = "";
    for await (const chunk of request) text += chunk;
    const body = JSON.parse(text);
    const [words, calls] = reply(body);
    response.writeHead(200, { "content-type": "text/event-stream" });
    const send = (fields) => response.write(`data: ${JSON.stringify({ model: "scripted-1", ...fields })}\n\n`);
    const delta = (change, finish = null) => send({ choices: [{ index: 0, delta: change, finish_reason: finish }] });
    if (words.endsWith("answer late")) await new Promise((resolve) => setTimeout(resolve, LATE_MS));
    const isSlow = words.startsWith("Slow words");
    for (const piece of isSlow ? words.split(/(?<= )/) : (words.match(/[\s\S]{1,16000}/g) ?? [])) {
      if (response.destroyed) return;
      delta({ content: piece });
      if (isSlow) await new Promise((resolve) => setTimeout(resolve, WORD_MS));
    }
    calls.forEach(([name, args], index) => {
      delta({
        tool_calls: [
          { index, id: `call_${index}`, type: "function", function: { name, arguments: JSON.stringify(args) } },
        ],
      });
    });
    delta({}, "tool_calls");
    send({
      choices: [],
      usage: {
        prompt_tokens: Math.round(text.length / 4),
        completion_tokens: Math.round(words.length / 4),
        total_tokens: 13,
      },
    });
    response.end("data: [DONE]\n\n");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}/v1`, close: () => server.close() };
}
