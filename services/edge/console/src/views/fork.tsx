// Begins another session with the transcript of one up to a slot: to go on elsewhere, or to edit a message and run again.

import { useState } from "preact/hooks";
import { command, newId } from "../core/connection.ts";
import type { SessionView } from "../core/fold.ts";
import { go, links } from "../core/route.ts";
import type { CommandReply } from "../core/types.ts";
import { Button, Dialog, Field } from "../ui/parts.tsx";
import { AgentField, InteractiveField, ModelField } from "./session_fields.tsx";

/** Where a fork begins: after a slot, or at the end, with the text of its first message. */
export interface ForkPoint {
  slot?: number;
  text?: string;
}

export function ForkDialog({
  id,
  view,
  at,
  onClose,
}: {
  id: string;
  view: SessionView;
  at: ForkPoint;
  onClose: () => void;
}) {
  const { slot } = at;
  const [text, setText] = useState(at.text ?? "");
  const [agent, setAgent] = useState("");
  const [model, setModel] = useState("");
  const [isInteractive, setInteractive] = useState(true);
  const fork = async () => {
    const session = newId();
    await command<CommandReply>("session.start", {
      session_id: session,
      resume_from: { session_id: id, ...(slot === undefined ? {} : { at: slot }) },
      interactive: isInteractive,
      ...(text.trim() === "" ? {} : { prompt: text }),
      ...(agent === "" ? {} : { agent }),
      ...(model === "" ? {} : { model }),
    });
    onClose();
    go(links.session(session));
  };
  return (
    <Dialog title={slot === undefined ? "Fork this session" : `Fork from slot ${slot}`} onClose={onClose}>
      <p>
        The new session begins with the transcript {slot === undefined ? "of this session" : `up to slot ${slot}`}. This
        session does not change, and its calls are not repeated.
      </p>
      <Field label="Message">
        <textarea rows={4} autoFocus value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </Field>
      <div class="field-row">
        <AgentField value={agent} onChange={setAgent} unset={() => `the same (${view.agent})`} />
        <ModelField value={model} onChange={setModel} unset={`the same (${view.model})`} nameOf={(other) => other.id} />
      </div>
      <InteractiveField value={isInteractive} onChange={setInteractive} />
      <div class="form-actions">
        <Button onClick={onClose}>Cancel</Button>
        <Button kind="primary" icon="fork" isDisabled={!isInteractive && text.trim() === ""} onClick={fork}>
          Fork
        </Button>
      </div>
    </Dialog>
  );
}
