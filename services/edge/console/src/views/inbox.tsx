// What waits for a person, the most urgent first, and the calls that wait for a client.

import { useEffect, useState } from "preact/hooks";
import { rpc } from "../core/connection.ts";
import { useKeys } from "../core/keys.ts";
import { usePoll } from "../core/poll.ts";
import { go, links } from "../core/route.ts";
import type { CallList, GateList, OfSession, PendingGate, SessionSummary, Transcript } from "../core/types.ts";
import { Empty, PageHead, Problem } from "../ui/parts.tsx";
import { Visible } from "../ui/text.tsx";
import { ClientCallCard } from "./client_call.tsx";
import { GateCard } from "./gate.tsx";

const POLL_MS = 2000;
const SHOWN_MAX = 200;
/** Turns in which the call before is looked for. */
const TURNS_BACK = 20;

export function InboxView() {
  const gates = usePoll<GateList>("gates.list", { limit: SHOWN_MAX }, POLL_MS);
  const calls = usePoll<CallList>("calls.list", { limit: SHOWN_MAX }, POLL_MS);
  const [answered, setAnswered] = useState(new Set<string>());
  const [selected, setSelected] = useState("");
  const keyOf = (gate: PendingGate) => `${gate.session_id}/${gate.gate}`;
  const open = (gates.data?.gates ?? []).filter((gate) => !answered.has(keyOf(gate)));
  const performed = (calls.data?.calls ?? []).filter((call) => !answered.has(`${call.session_id}/${call.call}`));
  const current = open.find((gate) => keyOf(gate) === selected) ?? open[0];
  const move = (step: number) => {
    const index = current === undefined ? 0 : open.indexOf(current);
    const next = open[Math.max(0, Math.min(open.length - 1, index + step))];
    if (next === undefined) return;
    setSelected(keyOf(next));
    document.getElementById(`gate-${keyOf(next)}`)?.scrollIntoView({ block: "nearest" });
  };
  useKeys([
    { keys: "j", text: "Next request", run: () => move(1) },
    { keys: "k", text: "Request before", run: () => move(-1) },
    {
      keys: "Enter",
      text: "Open the session of the request",
      run: () => current && go(links.session(current.session_id)),
    },
  ]);
  const done = (key: string) => {
    setAnswered(new Set([...answered, key]));
    gates.refresh();
    calls.refresh();
  };
  const isEmpty = open.length === 0 && performed.length === 0;
  return (
    <div class="page">
      <PageHead title="Approvals and questions" sub={isEmpty ? undefined : "The most urgent first"} />
      {gates.error && <Problem error={gates.error} />}
      {isEmpty && !gates.isLoading && (
        <Empty title="Nobody waits for you">Calls that need approval and questions of agents appear here.</Empty>
      )}
      {open.map((gate) => (
        <div id={`gate-${keyOf(gate)}`} key={keyOf(gate)} onFocusCapture={() => setSelected(keyOf(gate))}>
          <Request gate={gate} isSelected={gate === current} onAnswered={() => done(keyOf(gate))} />
        </div>
      ))}
      {performed.length > 0 && (
        <section class="section">
          <h2>Calls that a client performs</h2>
          {performed.map((call) => (
            <ClientCallCard
              key={`${call.session_id}/${call.call}`}
              session={call.session_id}
              call={call}
              head={<Origin of={call} />}
              onAnswered={() => done(`${call.session_id}/${call.call}`)}
            />
          ))}
        </section>
      )}
    </div>
  );
}

function Origin({ of }: { of: OfSession }) {
  return (
    <span class="muted">
      {of.agent} in{" "}
      <a href={links.session(of.session_id)}>
        <Visible text={(of.title.split("\n", 1)[0] ?? "").slice(0, 80) || of.session_id} isProse />
      </a>
    </span>
  );
}

function Request({ gate, isSelected, onAnswered }: { gate: PendingGate; isSelected: boolean; onAnswered: () => void }) {
  // `null`: not looked for; `undefined`: there is none.
  const [before, setBefore] = useState<string | undefined | null>(null);
  const compare = async () => {
    const { turn } = await rpc.call<SessionSummary>("session.get", { session_id: gate.session_id });
    const { turns } = await rpc.call<Transcript>("session.transcript", {
      session_id: gate.session_id,
      after: Math.max(0, turn - TURNS_BACK),
      limit: TURNS_BACK,
    });
    const calls = turns.flatMap((turn) => turn.messages.flatMap((message) => message.tool_calls ?? []));
    const index = calls.findIndex((call) => call.id === gate.gate);
    const earlier = calls.slice(0, index < 0 ? calls.length : index).filter((call) => call.tool === gate.tool);
    setBefore(earlier.at(-1)?.arguments);
  };
  // The selected request is compared at once: it is the one that is answered next.
  const isCompared = isSelected && gate.kind === "approval";
  useEffect(() => {
    if (isCompared && before === null) void compare().catch(() => setBefore(undefined));
  }, [isCompared]);
  return (
    <GateCard
      session={gate.session_id}
      gate={gate}
      before={before ?? undefined}
      isSelected={isSelected}
      onAnswered={onAnswered}
      head={
        <>
          <Origin of={gate} />
          {gate.kind === "approval" && before === null && (
            <button type="button" class="link" onClick={() => void compare().catch(() => setBefore(undefined))}>
              compare with the call before
            </button>
          )}
          {before === undefined && (
            <span class="muted">no call of this tool before, in the last {TURNS_BACK} turns</span>
          )}
        </>
      }
    />
  );
}
