// Begins another session with the transcript of one up to a slot: to go on elsewhere, or to edit a message and run again.

import { useState } from "preact/hooks";
import { command, newId } from "../core/connection.ts";
import type { SessionView } from "../core/fold.ts";
import { go, links } from "../core/route.ts";
import { usePoll } from "../core/poll.ts";
import type { Agent, CommandResult, Model } from "../core/types.ts";
import { Button, Dialog, Field } from "../ui/parts.tsx";

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
  const agents = usePoll<{ agents: Agent[] }>("agents.list", {}, null);
  const models = usePoll<{ models: Model[] }>("models.list", {}, null);
  const fork = async () => {
    const session = newId();
    await command<CommandResult>("session.start", {
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
        <Field label="Agent">
          <select value={agent} onChange={(event) => setAgent(event.currentTarget.value)}>
            <option value="">the same ({view.agent})</option>
            {agents.data?.agents.map((other) => (
              <option value={other.id}>{other.name}</option>
            ))}
          </select>
        </Field>
        <Field label="Model">
          <select value={model} onChange={(event) => setModel(event.currentTarget.value)}>
            <option value="">the same ({view.model})</option>
            {models.data?.models.map((other) => (
              <option value={other.id}>{other.id}</option>
            ))}
          </select>
        </Field>
      </div>
      <label class="check">
        <input
          type="checkbox"
          checked={isInteractive}
          onChange={(event) => setInteractive(event.currentTarget.checked)}
        />{" "}
        It takes more messages after its turn
      </label>
      <div class="form-actions">
        <Button onClick={onClose}>Cancel</Button>
        <Button kind="primary" icon="fork" isDisabled={!isInteractive && text.trim() === ""} onClick={fork}>
          Fork
        </Button>
      </div>
    </Dialog>
  );
}
