// What open consoles cost an edge. `make lab NAME=console-cost` runs it: it records what a page sends in a browser,
// sends the same as many times as there are consoles, each over a connection of its own, and reads the CPU time of the
// edge's process.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { performance } from "node:perf_hooks";
import { chromium } from "playwright-core";
import { Fleet } from "./fleet.mjs";

const AILOOP = process.env.AILOOP_UNDER_TEST;
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const CONSOLES = Number(process.env.CONSOLES || 100);
const SESSIONS = 200;
const RECORD_MS = 30_000;
const MEASURE_MS = 60_000;
const TICKS = Number(execFileSync("getconf", ["CLK_TCK"]).toString());

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Seconds of CPU that a process has used. */
function cpuSeconds(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) / TICKS;
}

/** The requests of a page, with the time of each since the first. */
async function record(url, hash) {
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
  const frames = [];
  const page = await browser.newPage();
  page.on("websocket", (socket) =>
    socket.on("framesent", ({ payload }) =>
      frames.push({ at: performance.now(), request: JSON.parse(String(payload)) }),
    ),
  );
  await page.goto(`${url}/${hash}`);
  await sleep(RECORD_MS);
  await browser.close();
  assert.ok(frames.length > 0, `the page ${hash} sends nothing`);
  return frames.map(({ at, request }) => ({ at: at - frames[0].at, request }));
}

/** Sends what was recorded, again and again, from a moment of its own. What a page asks once counts once in 30 s. */
async function openConsole(url, frames, counts) {
  const socket = new WebSocket(`${url.replace("http", "ws")}/ws`);
  await new Promise((resolve, reject) => {
    socket.onopen = resolve;
    socket.onerror = () => reject(new Error("the edge refuses a connection"));
  });
  const sent = new Map();
  let id = 0;
  socket.onmessage = ({ data }) => {
    counts.bytes += data.length;
    const { id: answered, error } = JSON.parse(data);
    if (error) counts.errors += 1;
    if (sent.has(answered)) counts.waits.push(performance.now() - sent.get(answered));
    sent.delete(answered);
  };
  const timers = new Set();
  const start = () => {
    for (const { at, request } of frames) {
      const timer = setTimeout(() => {
        timers.delete(timer);
        id += 1;
        counts.requests += 1;
        sent.set(id, performance.now());
        socket.send(JSON.stringify({ ...request, id }));
      }, at);
      timers.add(timer);
    }
    const again = setTimeout(start, RECORD_MS);
    timers.add(again);
  };
  setTimeout(start, Math.random() * RECORD_MS);
  return () => {
    for (const timer of timers) clearTimeout(timer);
    socket.close();
  };
}

async function measure(edge, name, hash) {
  const frames = await record(edge.url, hash);
  const counts = { requests: 0, errors: 0, bytes: 0, waits: [] };
  const closers = [];
  for (let n = 0; n < CONSOLES; n++) closers.push(await openConsole(edge.url, frames, counts));
  await sleep(RECORD_MS);
  Object.assign(counts, { requests: 0, errors: 0, bytes: 0, waits: [] });
  const [began, before] = [performance.now(), cpuSeconds(edge.process.pid)];
  await sleep(MEASURE_MS);
  const seconds = (performance.now() - began) / 1000;
  const cpu = ((cpuSeconds(edge.process.pid) - before) / seconds) * 100;
  for (const close of closers) close();
  counts.waits.sort((a, b) => a - b);
  const at = (share) => counts.waits[Math.floor((counts.waits.length - 1) * share)].toFixed(1);
  console.log(
    `${name}: ${CONSOLES} consoles: ${(counts.requests / seconds).toFixed(1)} requests/s, edge ${cpu.toFixed(1)} % of a core, ` +
      `${(counts.bytes / seconds / 1e6).toFixed(2)} MB/s, answered in ${at(0.5)} ms (median), ${at(0.99)} ms (99 %), ` +
      `${counts.errors} errors`,
  );
  assert.equal(counts.errors, 0, "some requests failed");
}

assert.ok(AILOOP, "set AILOOP_UNDER_TEST to the binary ailoop");
const fleet = await Fleet.start(AILOOP);
try {
  for (let n = 0; n < SESSIONS; n++)
    await fleet.post("/v1/sessions", { session_id: `cost-${n}`, prompt: "show a table", interactive: true });
  await sleep(5000);
  const edge = await fleet.startEdge();
  const idle = cpuSeconds(edge.process.pid);
  await sleep(10_000);
  console.log(
    `${SESSIONS} sessions; edge without consoles: ${((cpuSeconds(edge.process.pid) - idle) * 10).toFixed(1)} % of a core`,
  );
  await measure(edge, "list of sessions", "#/sessions");
  await measure(edge, "overview", "#/");
  await measure(edge, "a session at rest", "#/sessions/cost-1");
} finally {
  await fleet.end();
}
