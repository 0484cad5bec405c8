// What the loop would do after a reply: the settings of an agent, applied to a text. No model is asked.

import { useEffect, useState } from "preact/hooks";
import { connection, rpc } from "../core/connection.ts";
import type { ReplyRow, SessionView } from "../core/fold.ts";
import { usePoll } from "../core/poll.ts";
import type { AgentList, ReplyDecision } from "../core/types.ts";
import { Icon } from "../ui/icons.tsx";
import { Dialog, Field, Problem } from "../ui/parts.tsx";
import { TextBlock, Visible } from "../ui/text.tsx";
import { Source } from "./conversation.tsx";

/** The agent is asked once typing rests. */
const REST_MS = 300;

export interface SampleReply {
  text: string;
  /** Names of the tools that the reply calls. */
  calls: string[];
  isCut: boolean;
  step: number;
}

/** The last answer stays while the next one is on its way. */
function useDecision(agent: string, sample: SampleReply): { decision: ReplyDecision | null; error: unknown } {
  const [answer, setAnswer] = useState<{ decision: ReplyDecision | null; error: unknown }>({
    decision: null,
    error: null,
  });
  const { text, calls, isCut, step } = sample;
  const isOpen = connection.value.kind === "open";
  const params = JSON.stringify({ agent, text, calls, is_cut: isCut, step });
  useEffect(() => {
    if (!isOpen || agent === "") return;
    let isCurrent = true;
    const timer = setTimeout(() => {
      rpc.call<ReplyDecision>("agents.test_reply", JSON.parse(params)).then(
        (decision) => isCurrent && setAnswer({ decision, error: null }),
        (error) => isCurrent && setAnswer({ decision: null, error }),
      );
    }, REST_MS);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [params, isOpen]);
  return answer;
}

function Answer({ agent, sample }: { agent: string; sample: SampleReply }) {
  const { decision, error } = useDecision(agent, sample);
  return (
    <div class="verdict" aria-live="polite">
      {error !== null && <Problem error={error} />}
      {decision !== null && (
        <>
          <p class="verdict-line">
            <Icon name={decision.continues ? "down" : "check"} />
            <span>
              <strong>{decision.continues ? "Goes on" : "The turn ends"}</strong>: <Source source={decision.source} />
              {decision.reason !== "" && (
                <>
                  {" "}
                  · <Visible text={decision.reason} isProse />
                </>
              )}
            </span>
          </p>
          {decision.visible !== sample.text && (
            <>
              <p class="muted">What a user reads of it:</p>
              <TextBlock text={decision.visible || "(nothing)"} label="What a user reads of it" />
            </>
          )}
        </>
      )}
    </div>
  );
}

/** The form in the view of an agent. */
export function ReplyTest({ agent }: { agent: string }) {
  const [text, setText] = useState("");
  const [calls, setCalls] = useState("");
  const [isCut, setCut] = useState(false);
  const [step, setStep] = useState("1");
  const names = calls.split(/[\s,]+/).filter(Boolean);
  const isEmpty = text === "" && names.length === 0;
  return (
    <div class="reply-test">
      <p class="muted">Applies the agent's continuation settings to a reply. No model is asked.</p>
      <Field label="Reply">
        <textarea
          rows={6}
          value={text}
          placeholder="Next, I will read the configuration."
          onInput={(event) => setText(event.currentTarget.value)}
        />
      </Field>
      <div class="field-row">
        <Field label="Tools that it calls">
          <input
            class="code-input"
            value={calls}
            placeholder="read_file write_file"
            onInput={(event) => setCalls(event.currentTarget.value)}
          />
        </Field>
        <Field label="Step of the turn">
          <input type="number" min={1} value={step} onInput={(event) => setStep(event.currentTarget.value)} />
        </Field>
      </div>
      <label class="check">
        <input type="checkbox" checked={isCut} onChange={(event) => setCut(event.currentTarget.checked)} /> It was cut
        at the output limit
      </label>
      {!isEmpty && (
        <Answer agent={agent} sample={{ text, calls: names, isCut, step: Math.max(1, Number(step) || 1) }} />
      )}
    </div>
  );
}

/** What an agent would do after a reply of a session, beside what happened. */
export function ReplyTestDialog({ view, row, onClose }: { view: SessionView; row: ReplyRow; onClose: () => void }) {
  const agents = usePoll<AgentList>("agents.list", {}, null);
  const [agent, setAgent] = useState(view.agent);
  const calls = [...view.calls.values()].filter((call) => call.turn === row.turn && call.step === row.step);
  const decided = view.decisions.get(`${row.turn}-${row.step}`);
  const sample = {
    text: row.raw ?? row.text,
    calls: calls.map((call) => call.tool),
    isCut: row.finish === "length",
    step: row.step,
  };
  return (
    <Dialog title={`What would follow step ${row.step}?`} onClose={onClose}>
      <Field label="Agent">
        <select value={agent} onChange={(event) => setAgent(event.currentTarget.value)}>
          {(agents.data?.agents ?? [{ id: view.agent, name: view.agentName || view.agent }]).map((other) => (
            <option value={other.id}>{other.name}</option>
          ))}
        </select>
      </Field>
      <Answer agent={agent} sample={sample} />
      {decided !== undefined && (
        <p class="muted">
          In this session: {decided.continues ? "went on" : "the turn ended"}, <Source source={decided.source} />
        </p>
      )}
      <p class="hint">
        The agent's settings of now, applied to the text as the model wrote it
        {sample.calls.length > 0 && `, with its calls of ${[...new Set(sample.calls)].join(", ")}`}. A signal that the
        model gave as a call of <code>continuation</code> is not part of the reply.
      </p>
    </Dialog>
  );
}
