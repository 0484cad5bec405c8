// The console in a browser, against a real fleet. `make console-test` runs it; ONLY=words picks checks by their names.

import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { performance } from "node:perf_hooks";
import { chromium } from "playwright-core";
import { Fleet } from "./fleet.mjs";
import { installMany } from "./many.mjs";

const AILOOP = process.env.AILOOP_UNDER_TEST;
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const ONLY = process.env.ONLY ?? "";
/** Where pictures go, if they are wanted. */
const PICTURES = process.env.PICTURES;
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const WAIT_MS = 120_000;
const PAGE_CPU_MS_MAX = 300;
const BYTES_MAX = 250 * 1024;
const FRAME_CPU_MS_MAX = 60;
const FRAMES = 120;
const PHONE = { width: 390, height: 844 };
const WIDE = { width: 1280, height: 800 };

const checks = [];
const check = (name, run) => checks.push({ name, run });
let fleet;
let browser;

/** A page with nothing kept from before, which fails its check on an error or a request to elsewhere. */
async function openPage(hash = "", options = {}) {
  const { base = fleet.url, viewport = WIDE, colorScheme = "light", prepare } = options;
  const context = await browser.newContext({ viewport, colorScheme, reducedMotion: "reduce" });
  const page = await context.newPage();
  page.setDefaultTimeout(WAIT_MS);
  page.problems = [];
  page.on("pageerror", (error) => page.problems.push(`error: ${error.message}`));
  page.sent = [];
  page.on("websocket", (socket) => socket.on("framesent", ({ payload }) => page.sent.push(String(payload))));
  page.on("dialog", (dialog) => page.problems.push(`dialog: ${dialog.message()}`));
  page.on("console", (message) => {
    if (/Content Security Policy|Trusted/.test(message.text())) page.problems.push(message.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(base) && !request.url().startsWith("data:"))
      page.problems.push(`request: ${request.url()}`);
  });
  await prepare?.(page);
  await page.goto(`${base}/${hash}`);
  return page;
}

/** Starts to count the CPU time of a page's thread. Unlike time, it does not grow while others use the machine. */
async function countCpu(page) {
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  const read = async () => {
    const { metrics } = await session.send("Performance.getMetrics");
    return metrics.find((metric) => metric.name === "TaskDuration").value * 1000;
  };
  const before = await read();
  return async () => (await read()) - before;
}

async function closePage(page) {
  assert.deepEqual(page.problems, []);
  await page.context().close();
}

async function start(id, prompt, more = {}) {
  await fleet.post("/v1/sessions", { session_id: id, prompt, interactive: true, ...more });
}

async function until(what, condition) {
  const end = Date.now() + WAIT_MS;
  for (;;) {
    const found = await condition();
    if (found) return found;
    if (Date.now() > end) throw new Error(`this did not happen: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function picture(page, name) {
  if (!PICTURES) return;
  mkdirSync(PICTURES, { recursive: true });
  await page.screenshot({ path: path.join(PICTURES, `${name}.png`) });
}

const conversation = (page) => page.getByRole("region", { name: "Conversation" });

check("page paints fast, is small, and asks nobody else", async () => {
  const paints = [];
  const contents = [];
  const cpus = [];
  let bytes = 0;
  // The first page of a new browser is not measured.
  for (let run = -1; run < 7; run++) {
    const context = await browser.newContext({ viewport: WIDE });
    const page = await context.newPage();
    const session = await context.newCDPSession(page);
    await session.send("Network.enable");
    const cpuMs = await countCpu(page);
    bytes = 0;
    session.on("Network.loadingFinished", (event) => {
      bytes += event.encodedDataLength;
    });
    await page.goto(`${fleet.url}/#/sessions`);
    await page.getByRole("heading", { name: "Sessions", exact: true }).waitFor();
    if (run < 0) {
      await context.close();
      continue;
    }
    contents.push(await page.evaluate(() => performance.now()));
    cpus.push(await cpuMs());
    paints.push(
      await page.evaluate(
        () =>
          new Promise((resolve) => {
            new PerformanceObserver((list) => {
              for (const entry of list.getEntriesByName("first-contentful-paint")) resolve(entry.startTime);
            }).observe({ type: "paint", buffered: true });
          }),
      ),
    );
    await context.close();
  }
  for (const times of [paints, contents, cpus]) times.sort((a, b) => a - b);
  let all = 0;
  for (const file of await distFiles())
    all +=
      (await (
        await fetch(fleet.url + file, { headers: { "accept-encoding": "gzip" } })
      ).headers.get("content-length")) | 0;
  console.log(
    `    first contentful paint: median ${Math.round(paints[3])} ms of ${paints.map((paint) => Math.round(paint)).join(", ")}; list of sessions: median ${Math.round(contents[3])} ms, CPU ${Math.round(cpus[3])} ms; transferred ${bytes} bytes; all files ${all} bytes compressed`,
  );
  assert.ok(cpus[3] < PAGE_CPU_MS_MAX, `the list of sessions takes ${cpus[3]} ms of CPU`);
  assert.ok(bytes < BYTES_MAX && all < BYTES_MAX, `${bytes} bytes, ${all} in all`);
});

/** Every file that the page and its parts name. */
async function distFiles() {
  const found = new Set();
  const pending = ["/"];
  while (pending.length > 0) {
    const file = pending.pop();
    if (found.has(file)) continue;
    found.add(file);
    const text = await (await fetch(fleet.url + file, { headers: { accept: "text/html" } })).text();
    for (const [, name] of text.matchAll(/["'](?:\.\/|\/console\/)((?:app|part)-[A-Z0-9]{8}\.(?:js|css))["']/g))
      pending.push(`/console/${name}`);
  }
  return found;
}

check("session from the playground streams, is steered, paused and resumed", async () => {
  const page = await openPage("#/start");
  await page.getByRole("textbox", { name: "Message" }).fill("tell me very slowly");
  await page.getByRole("combobox", { name: /^Agent/ }).selectOption("w");
  await page.getByRole("button", { name: "Start" }).click();
  await page.waitForURL(/#\/sessions\/.+/);
  const reply = conversation(page).getByRole("article", { name: "Step 1" });
  const first = await until("text streams", async () => {
    const text = await reply.textContent().catch(() => "");
    return text.includes("one two") && text;
  });
  assert.equal(await reply.getAttribute("aria-busy"), "true");
  await until("more text streams", async () => (await reply.textContent()).length > first.length + 20);
  await page.getByRole("button", { name: "Pause" }).click();
  await conversation(page).getByText("Paused").waitFor();
  await page.getByRole("textbox", { name: "Message" }).fill("and this too");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Resume" }).click();
  await conversation(page).getByText("Message 2 was: and this too").waitFor();
  await conversation(page)
    .getByText(/Turn \d: completed/)
    .first()
    .waitFor();
  await picture(page, "session");
  await closePage(page);
});

check(
  "call is approved, the next one is compared, edited and approved, and another is denied with a note",
  async () => {
    await start("approve", "Please write the notes of the meeting", { agent: "g" });
    const page = await openPage("#/sessions/approve");
    await page.getByText("May write_file run?").waitFor();
    assert.match(await conversation(page).textContent(), /- three/);
    await page.getByRole("button", { name: "Approve", exact: true }).click();
    await until("the second call asks", async () => /- four/.test(await conversation(page).textContent()));
    await page.getByRole("button", { name: "changes from the call before" }).click();
    const diff = await page.getByRole("region", { name: "Changes from the call before" }).textContent();
    assert.match(diff, /three/);
    assert.match(diff, /four/);
    await picture(page, "approval");
    await page.getByRole("button", { name: "Edit …" }).click();
    await page.getByLabel("Arguments, as JSON").fill('{"path": "notes.txt", "content": "edited"}');
    await page.getByRole("button", { name: "Approve the edited call" }).click();
    await conversation(page)
      .getByText(/Turn 1: completed/)
      .waitFor();
    assert.match(await conversation(page).textContent(), /edited/);
    assert.equal(readFileSync(path.join(fleet.directory, ".ailoop/out/notes.txt"), "utf8"), "edited");

    await page.getByRole("textbox", { name: "Message" }).fill("now write a file");
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Deny …" }).click();
    await page.getByLabel("Reason, for the model (optional)").fill("not today");
    await page.getByRole("button", { name: "Deny", exact: true }).click();
    await conversation(page)
      .getByText(/Turn 2: completed/)
      .waitFor();
    assert.match(JSON.stringify((await fleet.get("/v1/sessions/approve/history")).messages), /not today/);
    await closePage(page);
  },
);

check("inbox answers by keys, and a question by its choices", async () => {
  await start("ask", "ask me something", { agent: "w" });
  await start("keys", "now write a file", { agent: "g" });
  const page = await openPage("#/inbox");
  await page.getByText("Which colour should the report have?").waitFor();
  await picture(page, "approvals");
  await page.getByRole("button", { name: "Green" }).click();
  await page.getByText("Which colour should the report have?").waitFor({ state: "detached" });
  await page.getByText("May write_file run?").waitFor();
  await page.keyboard.press("y");
  await until("the call ran", async () => (await fleet.get("/v1/sessions/keys")).phase === "idle");
  assert.match(JSON.stringify((await fleet.get("/v1/sessions/ask/history")).messages), /Green/);
  await page.getByText("Nobody waits for you").waitFor();
  await closePage(page);
});

check("form that a key opens has the focus", async () => {
  await start("key-deny", "now write a file", { agent: "g" });
  await start("key-edit", "please write a file", { agent: "g" });
  const page = await openPage("#/sessions");
  await page.locator(".session-row a").first().waitFor();
  const focused = (label) => page.getByLabel(label).and(page.locator(":focus"));
  await page.keyboard.press("g");
  await page.keyboard.press("n");
  await focused("Message").waitFor();
  await page.goto(`${fleet.url}/#/inbox`);
  await until("both wait", async () => (await page.getByText("May write_file run?").count()) === 2);
  await page.keyboard.press("n");
  await focused("Reason, for the model (optional)").waitFor();
  await page.keyboard.type("not by y, n or e");
  await page.keyboard.press("Enter");
  await until("one waits", async () => (await page.getByText("May write_file run?").count()) === 1);
  await page.keyboard.press("e");
  await focused("Arguments, as JSON").waitFor();
  await page.getByLabel("Arguments, as JSON").fill('{"path": "keys.txt", "content": "by keys"}');
  await page.getByRole("button", { name: "Approve the edited call" }).click();
  await page.getByText("Nobody waits for you").waitFor();
  const histories = await Promise.all(["deny", "edit"].map((name) => fleet.get(`/v1/sessions/key-${name}/history`)));
  const text = JSON.stringify(histories);
  assert.match(text, /not by y, n or e/);
  assert.match(text, /by keys/);
  await closePage(page);
});

check("call of a client tool is listed and answered by hand", async () => {
  await start("client", "read the selection", {
    client_tools: [{ name: "read_selection", description: "Reads.", parameters: { type: "object" } }],
  });
  const page = await openPage("#/inbox");
  await page.getByRole("button", { name: "Answer by hand …" }).click();
  await page.getByLabel("Result that the model reads").fill("fn main() {}");
  await page.getByRole("button", { name: "Send the result" }).click();
  await until("the turn ends", async () => (await fleet.get("/v1/sessions/client")).phase === "idle");
  await closePage(page);
});

check("state is scrubbed, the session is forked from a slot, and both are compared", async () => {
  await start("source", "list the files", { agent: "w" });
  await until("the turn ends", async () => (await fleet.get("/v1/sessions/source")).phase === "idle");
  await fleet.post("/v1/sessions/source/messages", { content: "and a table" });
  await until("the next turn ends", async () => (await fleet.get("/v1/sessions/source")).turn === 2);
  let page = await openPage("#/sessions/source");
  // The first message, which may be drawn before the other, begins a session of its own.
  const message = conversation(page).getByRole("article", { name: "Message" }).filter({ hasText: "and a table" });
  await message.getByRole("button", { name: "edit and run again" }).click();
  const again = page.getByRole("dialog").getByRole("textbox", { name: "Message" });
  assert.equal(await again.inputValue(), "and a table");
  await again.fill("and nothing else");
  await page.getByRole("dialog").getByRole("button", { name: "Fork", exact: true }).click();
  await conversation(page).getByText("was: and nothing else").waitFor();
  assert.match(JSON.stringify(await conversation(page).textContent()), /Begins with \d+ messages/);
  await closePage(page);
  page = await openPage("#/sessions/source?tab=state");
  const slider = page.getByRole("slider", { name: "Slot of the log" });
  await slider.waitFor();
  const last = await slider.inputValue();
  assert.ok(Number(last) >= 3, last);
  const replays = () => page.sent.filter((frame) => frame.includes('"session.replay"'));
  const readBefore = replays().length;
  await slider.focus();
  await page.keyboard.press("Home");
  await page.getByText(/slot 0 of/).waitFor();
  await page.locator(".slot-events", { hasText: "session_started" }).waitFor();
  await page.keyboard.press("ArrowRight");
  await page.locator(".slot-events", { hasText: "message.ai_full_received" }).waitFor();
  assert.match(page.url(), /at=1/);
  const scrubbed = replays().slice(readBefore);
  assert.ok(scrubbed.length > 0 && scrubbed.every((frame) => frame.includes('"no_commits":true')), scrubbed.join("\n"));
  assert.match(await page.locator(".changes").textContent(), /core\.slots/);
  await picture(page, "state");
  await page.getByRole("button", { name: "Fork", exact: true }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("textbox", { name: "Message" }).fill("show a table");
  await dialog.getByRole("button", { name: "Fork", exact: true }).click();
  await page.waitForURL((url) => /#\/sessions\//.test(url.hash) && !url.hash.includes("source"));
  await conversation(page)
    .getByText(/Turn \d: completed/)
    .first()
    .waitFor();
  const fork = /sessions\/([^?]+)/.exec(page.url())[1];
  await page.goto(`${fleet.url}/#/sessions?compare=source`);
  await page
    .locator(".session-row", { hasText: "show a table" })
    .first()
    .getByRole("link", { name: "compare" })
    .click();
  await page.waitForURL(/#\/compare\?a=source&b=/);
  await page.getByText(/steps? of \d+ differ/).waitFor();
  await page.getByText("differs").first().waitFor();
  assert.ok(page.url().includes(fork));
  await picture(page, "compare");
  await closePage(page);
});

check("overview has spend, decisions and times, and leads to what failed or waits", async () => {
  await start("over-calls", "3 calls in 2 steps", { agent: "w" });
  await start("over-asks", "ask me something", { agent: "w" });
  await until("the turn ends", async () => (await fleet.get("/v1/sessions/over-calls")).phase === "idle");
  await until("a person is asked", async () => (await fleet.get("/v1/sessions?is_waiting=true")).sessions.length > 0);
  const page = await openPage("");
  const { stats, intervals } = await fleet.get(
    "/v1/stats?interval=3600&since=" + new Date(Date.now() - 864e5).toISOString(),
  );
  assert.ok(intervals.length >= 24 && intervals.at(-1).sessions > 0, JSON.stringify(intervals.at(-1)));
  const spend = page.getByRole("region", { name: "Spend" });
  await spend.getByRole("img", { name: /^Spend: \$0\.\d+, at most \$/ }).waitFor();
  const decisions = page.getByRole("region", { name: "Decisions" });
  await decisions.getByRole("row", { name: /tool calls/ }).waitFor();
  const counted = stats.reduce((sum, line) => sum + (line.decisions.tool_calls ?? 0), 0);
  await until("the decisions are those of the edge", async () =>
    (await decisions.getByRole("row", { name: /tool calls/ }).textContent()).includes(`tool calls${counted}`),
  );
  const latency = page.getByRole("region", { name: "Latency" });
  await latency.getByRole("row", { name: /^scripted-model \d/ }).waitFor();
  await latency.getByRole("row", { name: /^list_files \d/ }).waitFor();
  await latency.getByText(/calls? of the newest \d+ sessions?, with the time in queues/).waitFor();
  await picture(page, "overview");
  await page.getByRole("radio", { name: "7d" }).click();
  await page.getByText("The last 7 days").waitFor();
  assert.match(page.url(), /range=7d/);
  await page.getByRole("link", { name: /Wait for somebody/ }).click();
  await page.locator(".session-row", { hasText: "ask me something" }).first().waitFor();
  assert.equal(await page.locator(".session-row", { hasText: "3 calls in 2 steps" }).count(), 0);
  assert.ok(
    page.sent.some((frame) => frame.includes('"is_waiting":true')),
    "the edge picks the sessions",
  );
  await page.getByRole("combobox", { name: "Any cost" }).selectOption("10");
  await page.getByText("No session matches").waitFor();
  assert.match(page.url(), /cost=10/);
  await closePage(page);
});

check(
  "tool has its processes and times, and is tried: at once, or after an approval if it may change something",
  async () => {
    await start("tool-use", "3 calls in 1 steps", { agent: "w" });
    await until("the turn ends", async () => (await fleet.get("/v1/sessions/tool-use")).phase === "idle");
    const page = await openPage("#/tools?name=list_files");
    await page.getByRole("region", { name: "Calls" }).getByText("Longest").waitFor();
    const replicas = page.getByRole("region", { name: "Replicas" });
    await until("the process has counted the calls", async () =>
      replicas
        .getByRole("row")
        .nth(1)
        .getByRole("cell")
        .nth(3)
        .textContent()
        .then((count) => Number(count) >= 3)
        .catch(() => false),
    );
    await picture(page, "tool");
    await page.getByRole("tab", { name: "Try it" }).click();
    await page.getByRole("textbox", { name: "Arguments, as JSON" }).fill('{"path": "."}');
    await page.getByRole("button", { name: "Run it" }).click();
    await page.getByRole("region", { name: "Result", exact: true }).getByText("ok").waitFor();
    await page.goto(`${fleet.url}/#/tools?name=write_file&tab=trial`);
    const source = page.getByRole("textbox", { name: "Arguments, as JSON" });
    await source.fill('{"path": "tried.txt", "content": "from the console"}');
    await page.getByRole("button", { name: "Show what would run" }).click();
    const gate = page.getByRole("region", { name: "May write_file run?" });
    await gate.getByText("from the console").waitFor();
    const file = path.join(fleet.directory, ".ailoop/out/tried.txt");
    assert.equal(existsSync(file), false, "nothing has run");
    await picture(page, "tool-trial");
    await gate.getByRole("button", { name: "Approve and run" }).click();
    await page.getByRole("region", { name: "Result", exact: true }).getByText("ok").waitFor();
    assert.equal(readFileSync(file, "utf8"), "from the console");
    await closePage(page);
  },
);

check("tree shows who started whom, and a fork what it came from", async () => {
  await start("boss", "delegate it", { agent: "d" });
  await until("the turn ends", async () => (await fleet.get("/v1/sessions/boss")).phase === "idle");
  const page = await openPage("#/sessions/boss?tab=tree");
  const tree = page.getByRole("list", { name: "Sessions" });
  await tree.getByRole("listitem").nth(1).waitFor();
  assert.equal(await tree.getByRole("listitem").count(), 2);
  await page.getByText(/2 sessions, \$/).waitFor();
  await picture(page, "tree");
  await tree.getByRole("link", { name: "list the files" }).click();
  await page.waitForURL((url) => /tab=tree/.test(url.hash) && !url.hash.includes("boss"));
  await tree.getByRole("link", { name: "delegate it" }).waitFor();
  await fleet.post("/v1/sessions", {
    session_id: "boss-fork",
    resume_from: { session_id: "boss", at: 0 },
    prompt: "and a table",
    interactive: true,
  });
  await page.goto(`${fleet.url}/#/sessions/boss-fork`);
  await page.getByRole("link", { name: "fork of boss, slot 0" }).waitFor();
  await page.getByRole("link", { name: "compare with it" }).click();
  await page.waitForURL(/#\/compare\?a=boss&b=boss-fork/);
  await closePage(page);
});

check("image is attached, reaches the model and is shown", async () => {
  await start("image", "show a table", { agent: "w" });
  await until("the turn ends", async () => (await fleet.get("/v1/sessions/image")).phase === "idle");
  const page = await openPage("#/sessions/image");
  const pixels = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
  const image = { name: "screen.png", mimeType: "image/png", buffer: Buffer.from(pixels, "base64") };
  await page.getByLabel("Add images").setInputFiles([image, { ...image, name: "second.png" }]);
  const attached = page.getByRole("list", { name: "Images" });
  await attached.getByRole("button", { name: "Remove second.png" }).click();
  assert.equal(await attached.getByRole("img").count(), 1);
  await page
    .getByLabel("Add images")
    .setInputFiles([{ name: "a.svg", mimeType: "image/svg+xml", buffer: Buffer.from("<svg/>") }]);
  await page.getByText("a.svg is not a PNG, JPEG, GIF or WebP image.").waitFor();
  await page.getByRole("textbox", { name: "Message" }).fill("the screen");
  await picture(page, "attach");
  await page.keyboard.press("Enter");
  await conversation(page).getByText("I see 1 image of the screen").waitFor();
  const shown = conversation(page).getByRole("article", { name: "Message" }).last().getByRole("img");
  assert.equal(await shown.evaluate((element) => element.complete && element.naturalWidth), 1);
  await closePage(page);
});

check("slider dims what came after its slot", async () => {
  await start("scrub", "list the files", { agent: "w" });
  await until("the turn ends", async () => (await fleet.get("/v1/sessions/scrub")).phase === "idle");
  const page = await openPage("#/sessions/scrub?tab=state");
  const slider = page.getByRole("slider", { name: "Slot of the log" });
  await slider.waitFor();
  await slider.focus();
  await page.keyboard.press("Home");
  const reply = conversation(page).locator(".is-after").getByRole("article", { name: "Step 1" });
  await reply.waitFor();
  assert.equal(await conversation(page).locator(".is-after").getByRole("article", { name: "Message" }).count(), 0);
  await page.keyboard.press("End");
  await until("nothing is dimmed", async () => (await conversation(page).locator(".is-after").count()) === 0);
  await closePage(page);
});

check("key that may only watch is offered nothing else", async () => {
  await start("watched", "now write a file", { agent: "g" });
  await until("a person is asked", async () => (await fleet.get("/v1/sessions/watched/gates")).gates.length > 0);
  const [turn] = (await fleet.get("/v1/sessions/watched/trace")).turns;
  assert.deepEqual(turn.spans.map((span) => [span.name.split(" ")[0], span.is_open]).sort(), [
    ["chat", false],
    ["continuation.decide", false],
    ["gate", true],
    ["invoke_agent", true],
  ]);
  const { key, file } = fleet.makeKey("watcher", ["observe"]);
  const edge = await fleet.startEdge(0, { AILOOP__EDGE__KEYS_FILE: file });
  const page = await openPage("#/sessions/watched", { base: edge.url });
  const dialog = page.getByRole("dialog", { name: "This edge asks for a key" });
  await dialog.getByLabel("Key").fill(key);
  await dialog.getByRole("button", { name: "Connect" }).click();
  await page.getByText("Your key may not answer: it needs the scope approve.").waitFor();
  await page.getByText("Your key may watch, and not write.").waitFor();
  await picture(page, "watcher");
  for (const name of ["Approve", "Pause", "Stop", "Fork", "Send"])
    assert.equal(await page.getByRole("button", { name, exact: true }).count(), 0, name);
  for (const name of ["Fleet", "Dead letters", "Playground"])
    assert.equal(await page.getByRole("link", { name, exact: true }).count(), 0, name);
  await page.getByText("watcher · default").waitFor();
  await page.goto(`${edge.url}/#/mail`);
  await page.getByRole("heading", { name: "Mail", exact: true }).waitFor();
  assert.equal(await page.getByRole("button", { name: "Write a mail" }).count(), 0);
  await closePage(page);
  edge.process.kill("SIGTERM");
});

check("models have their limits, and those that fail say so", async () => {
  await start("broken", "show a table", { agent: "w", model: "broken-model" });
  const page = await openPage("#/models");
  const row = (name) => page.getByRole("row", { name: new RegExp(`^${name} `) });
  await row("broken-model").getByText("600 requests").waitFor();
  await row("broken-model")
    .getByText(/\d failures?|held back/)
    .waitFor();
  await row("scripted-model").getByText("ready").waitFor();
  await row("scripted-model").getByText("none").waitFor();
  await picture(page, "models");
  await fleet.post("/v1/sessions/broken/stop", {});
  await closePage(page);
});

check("timeline leads to the trace where the edge knows its address", async () => {
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  // Nobody listens there: the edge samples all the same.
  const edge = await fleet.startEdge(0, {
    AILOOP__EDGE__TRACE_URL: "https://traces.example.org/t/{trace_id}",
    AILOOP__TELEMETRY__OTLP_ENDPOINT: "http://127.0.0.1:9",
    AILOOP__TELEMETRY__SAMPLE_RATIO: "1",
  });
  const response = await fetch(`${edge.url}/v1/sessions`, {
    method: "POST",
    headers: { "content-type": "application/json", traceparent },
    body: JSON.stringify({ session_id: "traced", prompt: "show a table", interactive: true }),
  });
  assert.equal(response.status, 201);
  const page = await openPage("#/sessions/traced", { base: edge.url });
  const link = page.getByRole("link", { name: "open the trace" });
  await link.waitFor();
  const { turns } = await (await fetch(`${edge.url}/v1/sessions/traced/trace`)).json();
  assert.equal(await link.getAttribute("href"), `https://traces.example.org/t/${turns[0].trace_id}`);
  assert.match(await link.getAttribute("rel"), /noreferrer/);
  await closePage(page);
  edge.process.kill("SIGTERM");
});

check("agent is shown with the parts of its prompt, and replies are tried", async () => {
  const page = await openPage("#/agents?name=g");
  await page.getByRole("heading", { name: "Gwen the Guarded" }).waitFor();
  const described = await fleet.get("/v1/agents/g");
  const parts = page.locator(".prompt-part");
  await parts.first().waitFor();
  const names = await parts.locator("header code").allTextContents();
  assert.deepEqual(
    names.filter((name) => name !== "(between files)"),
    described.components.map((component) => component.name),
  );
  assert.ok(names.length >= 2, names.join(", "));
  const bytes = Buffer.from(described.prompt);
  for (const { name, start, bytes: length } of described.components) {
    const shown = await page.getByRole("region", { name, exact: true }).locator("pre").textContent();
    assert.equal(shown, bytes.subarray(start, start + length).toString(), name);
  }
  await page.getByRole("navigation", { name: "Parts of the prompt" }).getByRole("button").last().click();
  assert.ok(await parts.last().evaluate((part) => part === document.activeElement));
  await picture(page, "agent");
  await page.getByRole("tab", { name: "Settings" }).click();
  await page.getByText("write_file: always").waitFor();
  await page.getByRole("tab", { name: "Try a reply" }).click();
  await page.getByRole("textbox", { name: "Tools that it calls" }).fill("list_files");
  await page.getByText("Goes on: tool calls").waitFor();
  await page.getByRole("textbox", { name: "Tools that it calls" }).fill("");
  const signal = '{"continuation": {"status": "TERMINATE", "reason": "all is done"}}';
  await page.getByRole("textbox", { name: "Reply" }).fill(`Here it is. ${signal}`);
  await page.getByText("The turn ends: explicit · all is done").waitFor();
  await page.getByRole("region", { name: "What a user reads of it" }).getByText("Here it is.").waitFor();
  await picture(page, "reply-test");
  await closePage(page);
});

check("decisions have their reasons, and a reply is tried with another agent", async () => {
  await start("decided", "list the files", { agent: "w" });
  await until("the turn ends", async () => (await fleet.get("/v1/sessions/decided")).phase === "idle");
  const page = await openPage("#/sessions/decided?tab=decisions");
  const list = page.getByRole("region", { name: "Decisions" });
  await list.getByText("The question is answered.").waitFor();
  const text = await list.textContent();
  assert.match(text, /step 1 of 100: goes on.*tool calls/);
  assert.match(text, /step 2 of 100: the turn ends.*explicit · signal TERMINATE/);
  assert.ok(!page.sent.some((frame) => frame.includes('"session.trace"')), "no trace is read for it");
  await conversation(page)
    .getByRole("article", { name: "Step 1" })
    .getByRole("button", { name: "test", exact: true })
    .click();
  const dialog = page.getByRole("dialog", { name: "What would follow step 1?" });
  await dialog.getByText("Goes on: tool calls").waitFor();
  await dialog.getByRole("combobox", { name: "Agent" }).selectOption("g");
  await dialog.getByText("In this session: went on, tool calls").waitFor();
  await until("the other agent is asked", async () =>
    page.sent.some((frame) => frame.includes('"agents.test_reply"') && frame.includes('"agent":"g"')),
  );
  await picture(page, "what-follows");
  await closePage(page);
});

check("keys lead through the console", async () => {
  await start("keys-1", "show a table");
  const page = await openPage("");
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("s");
  await page.getByRole("heading", { name: "Sessions", exact: true }).waitFor();
  await page.locator(".session-row a").first().waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("keys-1");
  await page.keyboard.press("Escape");
  await until("the filter is in the address", async () => page.url().includes("q=keys-1"));
  await until("only what matches is listed", async () => (await page.locator(".session-row a").count()) === 1);
  assert.ok(
    page.sent.some((frame) => frame.includes('"text":"keys-1"')),
    "the edge picks the sessions",
  );
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForURL(/#\/sessions\/keys-1/);
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keys" }).waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("Escape");
  await page.waitForURL(/#\/sessions$/);
  await closePage(page);
});

check("short id that a row shows finds its session", async () => {
  const prompt = "show a table, twice";
  const ids = await Promise.all(
    [1, 2].map(async () => (await fleet.post("/v1/sessions", { prompt, interactive: true })).session_id),
  );
  const page = await openPage("#/sessions?q=show a table, twice");
  await until("both are listed", async () => (await page.locator(".session-row a").count()) === 2);
  const shown = await page.locator(".session-id").allTextContents();
  assert.deepEqual(shown.sort(), ids.map((id) => id.slice(-8)).sort());
  for (const short of shown) {
    await page.getByRole("searchbox", { name: "Filter by title or id" }).fill(short);
    const href = `#/sessions/${ids.find((id) => id.endsWith(short))}`;
    const listed = page.locator(".session-row a");
    await until("only its session is listed", async () => {
      const hrefs = await listed.evaluateAll((links) => links.map((link) => link.getAttribute("href")));
      return hrefs.length === 1 && hrefs[0] === href;
    });
  }
  await closePage(page);
});

check("quiet session says what it waits for and who has it", async () => {
  await start("late", "answer late");
  const page = await openPage("#/sessions/late");
  await page.getByText(/Waits for scripted-model .*, at /).waitFor();
  await conversation(page)
    .getByText(/Turn 1: completed/)
    .waitFor();
  await page.getByText(/Waits for scripted-model/).waitFor({ state: "detached" });
  await closePage(page);
});

check("phone has every view behind its bar", async () => {
  const page = await openPage("", { viewport: PHONE });
  await page.getByRole("button", { name: "More" }).click();
  await page.getByRole("link", { name: "Fleet" }).click();
  await page.getByRole("heading", { name: "Fleet" }).waitFor();
  await picture(page, "phone-more");
  await closePage(page);
});

check("hostile session harms nothing", async () => {
  await start("evil", "be hostile");
  await start("evil-line", "be hostile with a long line");
  await start("evil-call", "write it hostile", { agent: "g" });
  await start("<b>", "x").catch(() => {});
  let page = await openPage("#/sessions/evil");
  await conversation(page).getByText("window.harmed = 1").waitFor();
  const text = await conversation(page).textContent();
  for (const shown of ["<script>", "U+202E", "U+001B", "U+200B", "javascript:window.harmed=3"])
    assert.ok(text.includes(shown), `${shown} is not shown`);
  assert.equal(await conversation(page).locator("script, iframe, img, b, i").count(), 0);
  assert.equal(await conversation(page).locator('a[href^="javascript:"]').count(), 0);
  assert.equal(await page.evaluate(() => window.harmed), undefined);
  await closePage(page);
  page = await openPage("#/sessions/evil-call");
  await page.getByText("May write_file run?").waitFor();
  await page.getByText("3 characters are not visible").waitFor();
  await picture(page, "hidden-characters");
  await closePage(page);
  page = await openPage("#/sessions/evil-line");
  const began = performance.now();
  await page.getByRole("button", { name: /Show all of it/ }).click();
  await conversation(page).locator(".line").first().waitFor();
  console.log(`    a line of 1 MB opens in ${Math.round(performance.now() - began)} ms`);
  assert.ok((await page.evaluate(() => document.querySelectorAll(".line").length)) < 200);
  await closePage(page);
});

check("thousands of calls and sessions do not stutter", async () => {
  const page = await openPage("", {
    prepare: (page) => page.addInitScript(installMany, { sessions: 10_000, calls: 10_000 }),
  });
  for (const [hash, selector, name] of [
    ["#/sessions", ".sessions .list", "list of 10,000 sessions"],
    ["#/sessions/many", ".conversation", "session of 10,000 calls"],
  ]) {
    const began = performance.now();
    await page.goto(`${fleet.url}/${hash}`);
    if (hash === "#/sessions") {
      const more = page.getByRole("button", { name: "Load older sessions" });
      await until("all sessions are loaded", async () => {
        if ((await more.count()) > 0) await more.click({ timeout: 1000 }).catch(() => {});
        return /10,000 sessions(?!,)/.test(await page.locator(".page-title").textContent());
      });
    } else await page.getByText("Turn 1: completed").waitFor();
    const shown = performance.now() - began;
    const cpuMs = await countCpu(page);
    const frames = await page.evaluate(
      async ([target, count]) => {
        const list = document.querySelector(target);
        const times = [];
        let last = performance.now();
        for (let step = 0; step < count; step++) {
          list.scrollTop = (list.scrollHeight * step) / count;
          await new Promise(requestAnimationFrame);
          const now = performance.now();
          times.push(now - last);
          last = now;
        }
        times.sort((a, b) => a - b);
        const at = (share) => times[Math.floor(count * share)];
        return { median: at(0.5), p95: at(0.95), most: times.at(-1), nodes: document.querySelectorAll("*").length };
      },
      [selector, FRAMES],
    );
    const cpu = (await cpuMs()) / FRAMES;
    console.log(
      `    ${name}: shown after ${Math.round(shown)} ms, frame median ${frames.median.toFixed(1)} ms, 95 % ${frames.p95.toFixed(1)} ms, longest ${frames.most.toFixed(1)} ms, CPU of one ${cpu.toFixed(1)} ms, ${frames.nodes} nodes`,
    );
    assert.ok(cpu < FRAME_CPU_MS_MAX, `a frame takes ${cpu} ms of CPU`);
    assert.ok(frames.nodes < 4000, `${frames.nodes} nodes`);
  }
  await closePage(page);
});

check("edge is killed behind an open console, and another one takes over without a doubled event", async () => {
  let edge = await fleet.startEdge();
  await start("kill", "tell me very slowly");
  const page = await openPage("#/sessions/kill", { base: edge.url });
  await conversation(page).getByText("one two").waitFor();
  await page.evaluate(() => {
    window.isSamePage = true;
  });
  edge.process.kill("SIGKILL");
  await page.getByText("Disconnected.").waitFor();
  await page.getByRole("textbox", { name: "Message" }).fill("sent while nobody listens");
  await page.keyboard.press("Enter");
  edge = await fleet.startEdge(edge.port);
  await page.getByText("Disconnected.").waitFor({ state: "detached" });
  await conversation(page).getByText("was: sent while nobody listens").waitFor({ timeout: 30_000 });
  await conversation(page)
    .getByText(/Turn \d: completed/)
    .last()
    .waitFor();
  assert.equal(await page.evaluate(() => window.isSamePage), true);
  const { turns } = await fleet.get("/v1/sessions/kill/transcript");
  const messages = turns.flatMap((turn) => turn.messages);
  const expected = {
    user: messages.filter((message) => message.role === "user").length,
    reply: messages.filter((message) => message.role === "assistant").length,
  };
  assert.equal(expected.user, 2, "the message arrived once");
  assert.equal(await conversation(page).getByRole("article", { name: "Message" }).count(), expected.user);
  assert.equal(await conversation(page).getByRole("article", { name: /^Step/ }).count(), expected.reply);
  const shown = await conversation(page)
    .getByRole("article", { name: /^Step/ })
    .first()
    .locator(".markdown")
    .textContent();
  assert.equal(
    shown.trim().replace(/\s+/g, " "),
    messages
      .find((message) => message.role === "assistant")
      .text.replaceAll("*", "")
      .trim()
      .replace(/\s+/g, " "),
  );
  page.problems = page.problems.filter((problem) => !problem.startsWith("request:"));
  await closePage(page);
  edge.process.kill("SIGTERM");
});

check("edge with a token asks for it, once", async () => {
  const edge = await fleet.startEdge(0, { AILOOP__EDGE__TOKEN: "s3cret-token" });
  const page = await openPage("#/sessions", { base: edge.url });
  const dialog = page.getByRole("dialog", { name: "This edge asks for a key" });
  await dialog.waitFor();
  await picture(page, "key");
  await dialog.getByLabel("Key").fill("wrong");
  await dialog.getByRole("button", { name: "Connect" }).click();
  await dialog.getByText("The edge refused this key.").waitFor();
  await dialog.getByLabel("Key").fill("s3cret-token");
  await dialog.getByRole("button", { name: "Connect" }).click();
  await page.locator(".session-row a").first().waitFor();
  await page.reload();
  await page.locator(".session-row a").first().waitFor();
  assert.equal(await page.evaluate(() => localStorage.getItem("ailoop.key")), null);
  await closePage(page);
  edge.process.kill("SIGTERM");
});

check("every view is accessible, light and dark, wide and on a phone, and nothing is cut off", async () => {
  await start("axe", "Please write the notes of the meeting", { agent: "g" });
  await start("axe-ask", "ask me something", { agent: "w" });
  await start("axe-table", "show a table");
  await until("calls ask", async () => (await fleet.get("/v1/gates")).gates.length >= 2);
  const views = [
    "#/",
    "#/sessions",
    "#/sessions?q=nothing-at-all",
    "#/sessions/axe",
    "#/sessions/axe-table",
    "#/sessions/axe?tab=timeline",
    "#/sessions/axe?tab=decisions",
    "#/sessions/axe?tab=costs",
    "#/sessions/axe?tab=tree",
    "#/sessions/axe?tab=state",
    "#/sessions/axe?tab=details",
    "#/inbox",
    "#/start",
    "#/compare?a=axe&b=axe-table",
    "#/tools",
    "#/tools?name=write_file&tab=trial",
    "#/agents",
    "#/agents?tab=test",
    "#/agents?tab=settings",
    "#/models",
    "#/mail",
    "#/dead",
    "#/fleet",
  ];
  const found = [];
  for (const [viewport, colorScheme] of [
    [WIDE, "light"],
    [WIDE, "dark"],
    [PHONE, "light"],
    [PHONE, "dark"],
  ]) {
    const page = await openPage("", { viewport, colorScheme });
    for (const view of views) {
      await page.goto(`${fleet.url}/${view}`);
      await page.waitForFunction(() => document.querySelector(".nav-state.badge-good") !== null);
      await page.waitForTimeout(400);
      const size = `${viewport.width} ${colorScheme}`;
      await picture(page, `${size} ${view}`.replace(/[^A-Za-z0-9]+/g, "-"));
      const overflow = await page.evaluate(
        () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
      );
      if (overflow > 0) found.push(`${view} ${size}: ${overflow} px too wide`);
      await page.evaluate(AXE);
      const { violations } = await page.evaluate(() =>
        window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] }),
      );
      for (const { id, impact, nodes } of violations) {
        if (impact === "serious" || impact === "critical")
          found.push(
            `${view} ${size}: ${id} (${impact}): ${nodes
              .slice(0, 3)
              .map((node) => `${node.html.slice(0, 160)} ${node.failureSummary?.split("\n")[1] ?? ""}`)
              .join(" | ")}`,
          );
      }
    }
    await closePage(page);
  }
  assert.equal(found.length, 0, `\n${found.join("\n")}`);
  console.log(`    ${views.length} views, 4 times: nothing serious`);
});

async function main() {
  assert.ok(AILOOP, "set AILOOP_UNDER_TEST to the binary ailoop");
  fleet = await Fleet.start(AILOOP);
  browser = await chromium.launch({
    executablePath: CHROMIUM,
    args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"],
  });
  let failed = 0;
  const chosen = checks.filter(({ name }) => ONLY.split(",").some((words) => name.includes(words.trim())));
  assert.ok(chosen.length > 0, `no check is named like ${ONLY}`);
  for (const { name, run } of chosen) {
    const began = performance.now();
    try {
      await run();
      console.log(`ok      ${name} (${Math.round(performance.now() - began)} ms)`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED  ${name}\n${error.stack ?? error}`);
    }
  }
  console.log(`${chosen.length - failed} of ${chosen.length} checks hold`);
  return failed;
}

try {
  process.exitCode = (await main()) > 0 ? 1 : 0;
} finally {
  await browser?.close();
  await fleet?.end();
}
