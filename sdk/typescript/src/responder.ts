// Performs the calls of client tools and answers gates, while a turn is followed.

import type { Api } from "./api.js";
import { type ClientTool, perform } from "./client-tool.js";
import { Conflict, NotFound } from "./errors.js";
import { type Event, hasTopic } from "./event.js";
import { type Gate, type GateCallbacks, type OnApproval, type OnQuestion, gateOf, toDecision } from "./gates.js";
import type { CallWaiting, SessionSummary } from "./types.js";

/** Calls and callbacks of one turn that run at the same time. Further ones wait. */
const RUNNING_MAX = 32;
const UNCERTAIN =
  "The client was restarted, and may have performed this call before. Its outcome is unknown: find out what happened" +
  " before you call again.";

/** Answers what waits for the client. Each answer carries the id of its call or gate, so it counts once. */
export class Responder {
  /** Rejected when an answer fails. */
  readonly failure: Promise<never>;
  private fail: (error: unknown) => void = () => undefined;
  private readonly tools: Map<string, ClientTool>;
  private readonly running = new Map<string, AbortController>();
  private readonly waiting: (() => void)[] = [];
  private active = 0;
  private oldSeq = 0;
  private open = new Set<string>();

  constructor(
    private readonly api: Api,
    private readonly sessionId: string,
    tools: readonly ClientTool[],
    private readonly callbacks: GateCallbacks,
  ) {
    this.tools = new Map(tools.map((tool) => [tool.name, tool]));
    this.failure = new Promise((_, reject) => (this.fail = reject));
    // Nobody may be waiting for it when it happens.
    this.failure.catch(() => undefined);
  }

  /** Tells what was open when this client took up the session: of the events before, only that is answered. */
  skipAnswered(summary: SessionSummary): void {
    this.oldSeq = summary.seq;
    const calls = (summary.client_calls ?? []).map((call) => call.call);
    this.open = new Set([...calls, ...(summary.gates ?? []).map((gate) => gate.gate)]);
  }

  /** Takes an event: begins what it asks for, and aborts what has ended. */
  push(event: Event): void {
    const isOld = event.seq !== undefined && event.seq <= this.oldSeq;
    if (hasTopic(event, "tool_call.waiting")) {
      const tool = this.tools.get(event.data.tool);
      if (tool && (!isOld || this.open.has(event.data.call))) {
        this.begin(event.data.call, (signal) => this.perform(tool, event.data, isOld, signal));
      }
    } else if (hasTopic(event, "gate.opened")) {
      if (!isOld || this.open.has(event.data.gate)) this.openGate(gateOf(event));
    } else if (event.topic === "tool_call.result_processed" || event.topic === "gate.closed") {
      const id = String(event.data["call"] ?? event.data["gate"]);
      this.running.get(id)?.abort();
      this.running.delete(id);
    }
  }

  /** Aborts what runs. */
  close(): void {
    for (const controller of this.running.values()) controller.abort();
    this.running.clear();
  }

  private openGate(gate: Gate): void {
    const { onApproval, onQuestion } = this.callbacks;
    const isQuestion = gate.kind === "question";
    const callback = isQuestion ? onQuestion : onApproval;
    if (callback) {
      this.begin(gate.gate, () => this.decide(callback, gate));
    } else if (onApproval ?? onQuestion) {
      const [what, missing] = isQuestion ? ["a question", "onQuestion"] : ["an approval", "onApproval"];
      console.warn(
        `session ${gate.sessionId} waits for ${what}, and there is no ${missing}: the gate ${gate.gate} stays open until` +
          ` ${gate.expires}; give the callback, or answer with \`ailoop approvals\` or in the console`,
      );
    }
  }

  private begin(id: string, work: (signal: AbortSignal) => Promise<void>): void {
    if (this.running.has(id)) return;
    const controller = new AbortController();
    this.running.set(id, controller);
    void this.run(controller.signal, work);
  }

  private async run(signal: AbortSignal, work: (signal: AbortSignal) => Promise<void>): Promise<void> {
    if (this.active >= RUNNING_MAX) await new Promise<void>((resolve) => this.waiting.push(resolve));
    this.active += 1;
    try {
      if (!signal.aborted) await work(signal);
    } catch (error) {
      // Another answer counts, or the call has ended meanwhile.
      if (!(error instanceof Conflict) && !(error instanceof NotFound)) this.fail(error);
    } finally {
      this.active -= 1;
      this.waiting.shift()?.();
    }
  }

  private async perform(tool: ClientTool, data: CallWaiting, isOld: boolean, signal: AbortSignal): Promise<void> {
    const isUncertain = isOld && (tool.effect ?? "at_most_once") === "at_most_once";
    const call = { sessionId: this.sessionId, call: data.call, signal };
    const [outcome, content] = isUncertain ? (["error", UNCERTAIN] as const) : await perform(tool, data.arguments, call);
    if (signal.aborted) return;
    await this.api.sessionAnswerCall(this.sessionId, data.call, { outcome, content, command_id: data.call });
  }

  private async decide(callback: OnApproval | OnQuestion, gate: Gate): Promise<void> {
    const decision = toDecision(gate, await callback(gate));
    if (!decision) return;
    const given = { arguments_sha256: gate.argumentsSha256, ...decision };
    await this.api.sessionAnswer(this.sessionId, gate.gate, given);
  }
}
