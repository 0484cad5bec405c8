// An edge with more than a test can make: a list of many sessions, and a session of many calls. It runs in the page, in
// place of the WebSocket, so that what is measured is the console.

export function installMany({ sessions, calls }) {
  const NOW = Date.parse("2026-01-01T00:00:00Z");
  const SPENT = { usage: { input: 1000, output: 100, cached: 0, reasoning: 0 }, cost_usd: 0.001 };
  // Calls of one reply, few enough that they are not a group.
  const PER_STEP = 5;
  const EVENTS_AT_ONCE = 500;

  const summary = (n) => ({
    session_id: `s-${n}`,
    tenant: "default",
    phase: ["ended", "idle", "running", "paused"][n % 4],
    agent: "w",
    model: "scripted-model",
    title: `Session ${n}`,
    turn: 1,
    step: 0,
    seq: 10,
    started: new Date(NOW - n * 1000).toISOString(),
    updated: new Date(NOW - n * 1000).toISOString(),
    spent: SPENT,
    stop_reason: "completed",
    tally: { iterations: 3 },
  });

  const results = {
    "session.list": ({ limit = 100, cursor = "0" }) => {
      const from = Number(cursor);
      const to = Math.min(sessions, from + limit);
      return {
        sessions: Array.from({ length: to - from }, (_, n) => summary(from + n)),
        total: sessions,
        ...(to < sessions ? { next_cursor: String(to) } : {}),
      };
    },
    "session.watch": () => ({ session_id: "many", seq: 1, phase: "idle" }),
    "session.trace": () => ({ session_id: "many", turns: [trace()] }),
    "caller.get": () => ({
      subject: "test",
      tenant: "default",
      scopes: [],
      methods: ["session.start", "session.send"],
    }),
    "gates.list": () => ({ gates: [] }),
    "calls.list": () => ({ calls: [] }),
    "agents.list": () => ({ agents: [] }),
    "models.list": () => ({ models: [] }),
    "session.describe": () => ({ now: new Date().toISOString(), waits: [] }),
  };

  globalThis.WebSocket = class {
    constructor() {
      setTimeout(() => this.onopen?.());
    }
    send(text) {
      const { id, method, params } = JSON.parse(text);
      const answer = results[method]
        ? { result: results[method](params) }
        : { error: { code: -32601, message: `no ${method} here`, data: { code: "unknown_method" } } };
      setTimeout(() => this.deliver({ jsonrpc: "2.0", id, ...answer }));
      if (method === "session.watch") setTimeout(() => this.stream(events()));
    }
    deliver(message) {
      this.onmessage?.({ data: JSON.stringify(message) });
    }
    stream(source) {
      for (let n = 0; n < EVENTS_AT_ONCE; n++) {
        const next = source.next();
        if (next.done) return;
        this.deliver(next.value);
      }
      setTimeout(() => this.stream(source));
    }
    close() {}
  };

  function trace() {
    const spans = [{ id: "root", name: "invoke_agent w", start_ms: NOW, end_ms: NOW + calls * 10, attributes: {} }];
    for (let n = 0; n < calls; n++) {
      spans.push({
        id: `s${n}`,
        parent: "root",
        name: "execute_tool read_file",
        start_ms: NOW + n * 10,
        end_ms: NOW + n * 10 + 8,
        attributes: {
          "gen_ai.operation.name": "execute_tool",
          "ailoop.call": `c1-${Math.floor(n / PER_STEP) + 1}-${(n % PER_STEP) + 1}`,
          "ailoop.outcome": "ok",
        },
      });
    }
    return { turn: 1, trace_id: "0".repeat(32), has_ended: true, is_sampled: false, spans };
  }

  function* events() {
    let seq = 0;
    const event = (topic, data) => {
      seq += 1;
      return {
        jsonrpc: "2.0",
        method: topic,
        params: {
          id: `many-${seq}-1`,
          session_id: "many",
          tenant: "default",
          seq,
          time: new Date(NOW + seq).toISOString(),
          data,
        },
      };
    };
    yield event("session_started", {
      agent: { id: "w", name: "Wanda" },
      model: { id: "m" },
      interactive: true,
      prompt: "",
    });
    yield event("message.user_processed", { message_id: "m", content: "Make many calls", mode: "queue" });
    for (let n = 0; n < calls; n++) {
      const step = Math.floor(n / PER_STEP) + 1;
      if (n % PER_STEP === 0)
        yield event("message.ai_full_received", {
          call: `m1-${step}`,
          turn: 1,
          step,
          text: `Step ${step} reads **files**.`,
          finish_reason: "tool_calls",
          spent: SPENT,
          provider: "p",
          model: "m",
          latency_ms: 5,
        });
      const call = `c1-${step}-${(n % PER_STEP) + 1}`;
      yield event("tool_call.identified", {
        call,
        tool: "read_file",
        arguments: { path: `src/file-${n}.rs` },
        effect: "pure",
        approval: "never",
      });
      yield event("tool_call.result_processed", {
        call,
        tool: "read_file",
        outcome: "ok",
        content: `{"n":${n}}`,
        duration_ms: 8,
      });
    }
    yield event("turn.completed", { turn: 1, stop_reason: "completed", iterations: calls / PER_STEP, spent: SPENT });
  }
}
