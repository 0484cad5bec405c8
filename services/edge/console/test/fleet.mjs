// A fleet for the tests: `ailoop up` with a scripted model, and an edge of its own that can be killed.

import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { startModel } from "./model.mjs";

const START_MS_MAX = 60_000;

function agent(name, tools, asked = []) {
  return {
    name,
    prompt_file: "eamonn_executioner.md",
    tools: { allow: tools, approvals: asked.map((tool) => ({ tool, ask: "always" })) },
    continuation_config: {
      require_explicit_signal: true,
      max_iterations: 100,
      timeout: 600,
      limits: { repetition: 1000, no_progress: 1000 },
    },
  };
}

const AGENTS = {
  default_agent: "w",
  agents: {
    w: agent("Wanda the Writer", ["list_files", "read_file", "write_file", "ask_user", "send_mail"]),
    g: agent("Gwen the Guarded", ["list_files", "write_file", "ask_user"], ["write_file"]),
    d: agent("Dora the Director", ["list_files", "delegate"]),
  },
};

export class Fleet {
  static async start(ailoop) {
    const fleet = new Fleet();
    fleet.ailoop = ailoop;
    fleet.children = [];
    fleet.directory = mkdtempSync(path.join(tmpdir(), "ailoop-console-"));
    const config = path.join(fleet.directory, "config");
    mkdirSync(config);
    fleet.model = await startModel();
    writeFileSync(path.join(config, "agents.yaml"), JSON.stringify(AGENTS));
    writeFileSync(
      path.join(config, "models.yaml"),
      JSON.stringify({
        default: "scripted-model",
        providers: {
          scripted: { kind: "openai_chat", base_url: fleet.model.url },
          broken: { kind: "openai_chat", base_url: `${fleet.model.url}/broken`, limits: { requests_per_minute: 600 } },
        },
        models: {
          "scripted-model": { provider: "scripted", multi_tool: true, prices: { input: 0.5, output: 2 } },
          "broken-model": { provider: "broken", multi_tool: true },
          "scripted-other": { provider: "scripted", multi_tool: true, prices: { input: 1, output: 4 } },
        },
      }),
    );
    fleet.env = { ...process.env, AILOOP_CONFIG: config };
    const log = await fleet.spawn(
      ["up", "--no-credentials", "--ws-port", "0", "--grpc-port", "0"],
      {},
      "Ctrl-C ends it",
    );
    fleet.url = `http://${/ws:\/\/(\S+)\/ws/.exec(log)[1]}`;
    fleet.nats = /nats:\/\/\S+/.exec(log)[0];
    return fleet;
  }

  /** Starts an edge; on the port of an earlier one, where it is named. */
  async startEdge(port = 0, env = {}) {
    const log = await this.spawn(
      ["edge"],
      {
        AILOOP__NATS__URL: this.nats,
        AILOOP__EDGE__WS__LISTEN: `127.0.0.1:${port}`,
        AILOOP__EDGE__GRPC__LISTEN: "127.0.0.1:0",
        ...env,
      },
      "edge listens",
    );
    const found = /ws\W+127\.0\.0\.1:(\d+)/.exec(log);
    return { process: this.children.at(-1), port: Number(found[1]), url: `http://127.0.0.1:${found[1]}` };
  }

  spawn(args, env, word) {
    const child = spawn(this.ailoop, args, {
      cwd: this.directory,
      env: { ...this.env, ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.children.push(child);
    return new Promise((resolve, reject) => {
      let text = "";
      const timer = setTimeout(() => reject(new Error(`ailoop ${args[0]} did not start:\n${text}`)), START_MS_MAX);
      const read = (data) => {
        text += data;
        if (!text.includes(word)) return;
        clearTimeout(timer);
        resolve(text);
      };
      child.stdout.on("data", read);
      child.stderr.on("data", read);
      child.on("exit", (code) => reject(new Error(`ailoop ${args[0]} ended with ${code}:\n${text}`)));
    });
  }

  /** Makes an API key with these scopes, and the file that has it. */
  makeKey(name, scopes) {
    const file = path.join(this.directory, `${name}.yaml`);
    const args = ["api-key", "new", name, "--file", file, ...scopes.flatMap((scope) => ["--scope", scope])];
    const key = execFileSync(this.ailoop, args, {
      cwd: this.directory,
      env: this.env,
      encoding: "utf8",
      stdio: "pipe",
    });
    return { key: /ailoop_\S+/.exec(key)[0], file };
  }

  async post(route, body) {
    const response = await fetch(this.url + route, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    const result = await response.json();
    if (!response.ok) throw new Error(`${route}: ${JSON.stringify(result)}`);
    return result;
  }

  async get(route) {
    return (await fetch(this.url + route)).json();
  }

  async end() {
    for (const child of this.children) if (child.exitCode === null && child.signalCode === null) child.kill("SIGTERM");
    await Promise.all(
      this.children.map(
        (child) =>
          child.exitCode !== null || child.signalCode !== null || new Promise((resolve) => child.on("exit", resolve)),
      ),
    );
    this.model.close();
    rmSync(this.directory, { recursive: true, force: true });
  }
}
