import assert from "node:assert/strict";
import { test } from "node:test";
import { type ConnectionState, RpcClient, RpcError, type Socket, type WatchSink } from "../../src/core/rpc.ts";
import type { Envelope } from "../../src/core/types.ts";

class FakeSocket implements Socket {
  onopen: (() => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: ((event: { code: number; reason: string }) => void) | null = null;
  readonly sent: { id: number; method: string; params: Record<string, unknown> }[] = [];
  send(text: string): void {
    this.sent.push(JSON.parse(text));
  }
  close(): void {}
  receive(message: unknown): void {
    this.onmessage?.({ data: JSON.stringify(message) });
  }
  answer(method: string, result: unknown): void {
    const request = this.sent.find((other) => other.method === method);
    assert.ok(request, `no ${method} was sent`);
    this.receive({ jsonrpc: "2.0", id: request.id, result });
  }
  refuse(method: string, code: string, data: Record<string, unknown> = {}): void {
    const request = this.sent.findLast((other) => other.method === method);
    this.receive({ jsonrpc: "2.0", id: request?.id, error: { code: -32000, message: code, data: { code, ...data } } });
  }
  event(seq: number, method = "error"): void {
    this.receive({ jsonrpc: "2.0", method, params: { session_id: "s", seq, data: {} } });
  }
}

/** A client whose sockets, time and timers the test holds. */
class World {
  readonly sockets: FakeSocket[] = [];
  readonly states: ConnectionState[] = [];
  readonly timers: { task: () => void; at: number }[] = [];
  now = 0;
  probed: "ok" | "locked" | "unreachable" = "unreachable";
  readonly client = new RpcClient(
    {
      connect: () => {
        const socket = new FakeSocket();
        this.sockets.push(socket);
        return socket;
      },
      probe: async () => this.probed,
      now: () => this.now,
      random: () => 1,
      schedule: (task, milliseconds) => {
        const timer = { task, at: this.now + milliseconds };
        this.timers.push(timer);
        return () => void this.timers.splice(this.timers.indexOf(timer), 1);
      },
    },
    (state) => this.states.push(state),
  );

  get socket(): FakeSocket {
    return this.sockets.at(-1) as FakeSocket;
  }

  async open(): Promise<void> {
    this.client.connect();
    this.socket.onopen?.();
    await settle();
  }

  async lose(code = 1006): Promise<void> {
    this.socket.onclose?.({ code, reason: "" });
    await settle();
  }

  async advance(milliseconds: number): Promise<void> {
    this.now += milliseconds;
    for (const timer of this.timers.filter((other) => other.at <= this.now)) {
      this.timers.splice(this.timers.indexOf(timer), 1);
      timer.task();
    }
    await settle();
  }
}

async function settle(): Promise<void> {
  for (let n = 0; n < 10; n++) await Promise.resolve();
}

class Sink implements WatchSink {
  readonly seqs: number[] = [];
  resets = 0;
  error: RpcError | null = null;
  event(_: string, envelope: Envelope): void {
    if (envelope.seq !== undefined) this.seqs.push(envelope.seq);
  }
  reset(): void {
    this.resets += 1;
  }
  failed(error: RpcError): void {
    this.error = error;
  }
}

test("command_is_sent_again_under_its_id_after_a_break", async () => {
  const world = new World();
  await world.open();
  const sent = world.client.call<{ done: boolean }>("session.send", { session_id: "s", command_id: "c1", text: "x" });
  await world.lose();
  await world.advance(1000);
  world.socket.onopen?.();
  assert.deepEqual(
    world.socket.sent.map((request) => request.params.command_id),
    ["c1"],
  );
  world.socket.answer("session.send", { done: true });
  assert.deepEqual(await sent, { done: true });
});

test("request_that_may_not_be_repeated_fails_with_the_connection", async () => {
  const world = new World();
  await world.open();
  const sent = world.client.call("dead.retry", {}, false);
  const failed = assert.rejects(sent, (error: RpcError) => error.code === "disconnected");
  await world.lose();
  await failed;
  await world.advance(1000);
  world.socket.onopen?.();
  assert.equal(world.socket.sent.length, 0);
});

test("watch_goes_on_after_its_last_event_and_doubled_events_are_dropped", async () => {
  const world = new World();
  await world.open();
  const sink = new Sink();
  world.client.watch("s", 0, sink);
  assert.equal(world.socket.sent[0]?.params.from_seq, 1);
  world.socket.answer("session.watch", { seq: 3 });
  await settle();
  for (const seq of [1, 2, 3]) world.socket.event(seq);
  await world.lose();
  await world.advance(1000);
  world.socket.onopen?.();
  assert.equal(world.socket.sent[0]?.params.from_seq, 4);
  world.socket.answer("session.watch", { seq: 5 });
  await settle();
  for (const seq of [2, 3, 4, 5]) world.socket.event(seq);
  assert.deepEqual(sink.seqs, [1, 2, 3, 4, 5]);
});

test("event_of_an_older_watch_does_not_move_the_cursor_of_a_new_one", async () => {
  const world = new World();
  await world.open();
  const stop = world.client.watch("s", 0, new Sink());
  world.socket.answer("session.watch", {});
  await settle();
  stop();
  const sink = new Sink();
  world.client.watch("s", 0, sink);
  world.socket.event(57);
  const second = world.socket.sent.findLast((request) => request.method === "session.watch");
  world.socket.receive({ jsonrpc: "2.0", id: second?.id, result: {} });
  await settle();
  world.socket.event(1);
  assert.deepEqual(sink.seqs, [1]);
});

test("ended_session_is_not_watched_again", async () => {
  const world = new World();
  await world.open();
  world.client.watch("s", 0, new Sink());
  world.socket.answer("session.watch", {});
  await settle();
  world.socket.event(1, "session_ended");
  await world.lose();
  await world.advance(1000);
  world.socket.onopen?.();
  assert.deepEqual(world.socket.sent, []);
});

test("resync_begins_anew_and_the_second_one_where_the_edge_says", async () => {
  const world = new World();
  await world.open();
  const sink = new Sink();
  world.client.watch("s", 41, sink);
  world.socket.refuse("session.watch", "resync", { seq: 20 });
  await settle();
  assert.equal(world.socket.sent.at(-1)?.params.from_seq, 1);
  world.socket.refuse("session.watch", "resync", { seq: 20 });
  await settle();
  assert.equal(world.socket.sent.at(-1)?.params.from_seq, 20);
  assert.equal(sink.resets, 2);
});

test("refused_watch_is_told_to_the_view", async () => {
  const world = new World();
  await world.open();
  const sink = new Sink();
  world.client.watch("s", 0, sink);
  world.socket.refuse("session.watch", "unknown_session");
  await settle();
  assert.equal(sink.error?.code, "unknown_session");
});

test("waits_between_tries_grow_to_ten_seconds_and_are_short_again_after_success", async () => {
  const world = new World();
  world.client.connect();
  const waits: number[] = [];
  for (let n = 0; n < 8; n++) {
    await world.lose();
    const state = world.client.state;
    assert.equal(state.kind, "waiting");
    if (state.kind === "waiting") waits.push(state.until - world.now);
    await world.advance(10_000);
  }
  assert.deepEqual(waits, [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
  world.socket.onopen?.();
  await world.lose();
  assert.equal(world.client.state.kind === "waiting" && world.client.state.until - world.now, 250);
});

test("refused_key_asks_for_another_one_and_does_not_try_again", async () => {
  const world = new World();
  world.probed = "locked";
  world.client.connect();
  await world.lose();
  assert.equal(world.client.state.kind, "locked");
  await world.advance(60_000);
  assert.equal(world.sockets.length, 1);
});

test("revoked_key_of_an_open_connection_is_noticed", async () => {
  const world = new World();
  world.probed = "locked";
  await world.open();
  await world.lose(1008);
  assert.equal(world.client.state.kind, "locked");
});

test("socket_that_does_not_answer_is_replaced", async () => {
  const world = new World();
  await world.open();
  void world.client.call("session.list");
  await world.advance(45_000);
  assert.equal(world.client.state.kind, "waiting");
  await world.advance(1000);
  world.socket.onopen?.();
  assert.deepEqual(
    world.socket.sent.map((request) => request.method),
    ["session.list"],
  );
});
