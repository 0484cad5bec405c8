// A gate: exactly what would happen, and the ways to answer.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { can } from "../core/caller.ts";
import { command, rpc } from "../core/connection.ts";
import { formatAge, formatTime, words } from "../core/format.ts";
import { parseJson, prettyJson } from "../core/json.ts";
import { useKeys } from "../core/keys.ts";
import { clock } from "../core/poll.ts";
import type { CommandReply, GateKind, GateList, OpenGate } from "../core/types.ts";
import { Arguments } from "../ui/arguments.tsx";
import { Button, Field, gateVerb, JsonField, takeFocus } from "../ui/parts.tsx";
import { Visible } from "../ui/text.tsx";

interface Props {
  session: string;
  gate: OpenGate;
  /** What counts if nobody answers in time. */
  onExpiry?: string;
  before?: string;
  /** Whether the keys of the view are for this card. */
  isSelected?: boolean;
  onAnswered?: () => void;
  head?: ComponentChildren;
}

/** Sends an answer. The id is made by the card, so that two presses are one answer. */
export function GateCard({ session, gate: given, onExpiry, before, isSelected = false, onAnswered, head }: Props) {
  const gate = useWhole(session, given);
  const [mode, setMode] = useState<"" | "edit" | "deny">("");
  const [edited, setEdited] = useState("");
  const [note, setNote] = useState("");
  const answer = async (fields: Record<string, unknown>) => {
    await command<CommandReply>("session.answer", {
      session_id: session,
      gate: gate.gate,
      arguments_sha256: gate.arguments_sha256,
      ...fields,
    });
    onAnswered?.();
  };
  const isReady = gate.shortened !== true;
  const card = useRef<HTMLElement>(null);
  const press = (selector: string) => card.current?.querySelector<HTMLElement>(selector)?.click();
  const hasKeys = isSelected && can("session.answer") && mode === "" && gate.kind !== "question";
  useKeys(
    hasKeys
      ? [
          { keys: "y", text: "Approve the selected request", run: () => press(".button-good") },
          { keys: "n", text: "Deny the selected request", run: () => press(".button-danger") },
          { keys: "e", text: "Edit the selected request", run: () => press(".button-edit") },
        ]
      : [],
  );
  const parsed = useMemo(() => (mode === "edit" ? parseJson(edited) : null), [mode, edited]);
  return (
    <section
      ref={card}
      class={`gate ${isSelected ? "is-selected" : ""}`}
      aria-label={`${gateVerb(gate.kind)} ${gate.tool ?? ""}`}
    >
      <header class="gate-head">
        <strong>{title(gate)}</strong>
        {head}
        <Expiry at={gate.expires} onExpiry={onExpiry} />
      </header>
      {gate.kind === "question" && can("session.answer") ? (
        <Question gate={gate} answer={answer} />
      ) : (
        <>
          {gate.tool !== undefined && mode !== "edit" && (
            <Arguments
              source={gate.arguments}
              before={before}
              label={isReady ? "What runs" : "The beginning of what runs"}
            />
          )}
          {mode === "edit" && (
            <JsonField
              label="Arguments, as JSON"
              hint="The tool gets these in place of the model's. The log names you."
              error={parsed !== null && "error" in parsed ? parsed.error : undefined}
              rows={[2, 20]}
              takesFocus
              value={edited}
              onChange={setEdited}
            />
          )}
          {mode === "deny" && (
            <Field label="Reason, for the model (optional)">
              <input
                ref={takeFocus}
                value={note}
                onInput={(event) => setNote(event.currentTarget.value)}
                onKeyDown={(event) => event.key === "Enter" && !event.isComposing && press(".button-danger")}
              />
            </Field>
          )}
          {!can("session.answer") && <p class="muted">Your key may not answer: it needs the scope approve.</p>}
          <div class="gate-actions">
            {can("session.answer") && mode === "" && (
              <>
                <Button kind="good" icon="check" isDisabled={!isReady} onClick={() => answer({ decision: "approve" })}>
                  {approveText(gate.kind)}
                  {isSelected && <kbd>y</kbd>}
                </Button>
                <Button kind="danger" onClick={() => setMode("deny")}>
                  Deny{isSelected && <kbd>n</kbd>} …
                </Button>
                {gate.tool !== undefined && (
                  <Button
                    kind="edit"
                    isDisabled={!isReady}
                    onClick={() => {
                      setEdited(prettyJson(gate.arguments));
                      setMode("edit");
                    }}
                  >
                    Edit{isSelected && <kbd>e</kbd>} …
                  </Button>
                )}
              </>
            )}
            {mode === "edit" && (
              <Button
                kind="good"
                icon="check"
                isDisabled={parsed === null || "error" in parsed}
                onClick={() =>
                  answer({ decision: "approve", arguments: parsed !== null && "value" in parsed ? parsed.value : null })
                }
              >
                Approve the edited call
              </Button>
            )}
            {mode === "deny" && (
              <Button kind="danger" onClick={() => answer({ decision: "deny", ...(note === "" ? {} : { note }) })}>
                Deny
              </Button>
            )}
            {mode !== "" && <Button onClick={() => setMode("")}>Back</Button>}
          </div>
        </>
      )}
    </section>
  );
}

function title(gate: OpenGate): ComponentChildren {
  if (gate.kind === "approval")
    return (
      <>
        May <code>{gate.tool}</code> run?
      </>
    );
  if (gate.kind === "question") return "The agent asks";
  if ("limit" in gate.kind)
    return (
      <>
        The turn reached the limit <code>{words(gate.kind.limit)}</code>. May it use as much again?
      </>
    );
  return (
    <>
      The model call failed (<code>{words(gate.kind.error)}</code>). Try it again?
    </>
  );
}

function approveText(kind: GateKind): string {
  if (kind === "approval" || kind === "question") return "Approve";
  return "limit" in kind ? "Allow as much again" : "Try again";
}

function Expiry({ at, onExpiry }: { at: string; onExpiry?: string }) {
  const left = Date.parse(at) - clock.value;
  const then = onExpiry === "approve" ? "then it counts as approved" : "then it counts as denied";
  return (
    <span class={left < 60_000 ? "expiry expiry-soon" : "expiry"} title={`${formatTime(at)}, ${then}`}>
      {left > 0 ? `${formatAge(at, clock.value)} left` : "expired"}
    </span>
  );
}

/** A list shows the beginning of long arguments: all of them are read before anybody can approve. */
function useWhole(session: string, given: OpenGate): OpenGate {
  const [whole, setWhole] = useState<OpenGate>();
  useEffect(() => {
    if (given.shortened !== true) return;
    let isCurrent = true;
    rpc.call<GateList>("gates.list", { session_id: session }).then(
      ({ gates }) => isCurrent && setWhole(gates.find((gate) => gate.gate === given.gate)),
      () => {},
    );
    return () => {
      isCurrent = false;
    };
  }, [session, given.gate, given.shortened]);
  // The answer is bound to the hash that was shown.
  return whole?.arguments_sha256 === given.arguments_sha256 ? whole : given;
}

function Question({ gate, answer }: { gate: OpenGate; answer: (fields: Record<string, unknown>) => Promise<void> }) {
  const asked = useMemo(() => {
    const parsed = parseJson(gate.arguments);
    const value = ("value" in parsed ? parsed.value : null) as {
      question?: unknown;
      choices?: unknown;
      default?: unknown;
    } | null;
    return {
      question: typeof value?.question === "string" ? value.question : gate.arguments,
      choices: Array.isArray(value?.choices)
        ? value.choices.filter((choice): choice is string => typeof choice === "string")
        : [],
      byDefault: typeof value?.default === "string" ? value.default : "",
    };
  }, [gate.arguments]);
  const [text, setText] = useState("");
  const input = useRef<HTMLTextAreaElement>(null);
  const send = (content: string) => answer({ decision: "answer", content });
  return (
    <div class="question">
      <p class="question-text">
        <Visible text={asked.question} isProse />
      </p>
      {asked.choices.length > 0 && (
        <div class="choices">
          {asked.choices.map((choice) => (
            <Button onClick={() => send(choice)}>
              <Visible text={choice} isProse />
            </Button>
          ))}
        </div>
      )}
      <Field
        label={asked.choices.length > 0 ? "Or another answer" : "Your answer"}
        hint={asked.byDefault !== "" && `Without an answer in time: ${asked.byDefault}`}
      >
        <textarea ref={input} rows={2} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </Field>
      <div class="gate-actions">
        <Button kind="primary" isDisabled={text.trim() === ""} onClick={() => send(text)}>
          Answer
        </Button>
        <Button onClick={() => answer({ decision: "deny" })}>Decline to answer</Button>
      </div>
    </div>
  );
}
