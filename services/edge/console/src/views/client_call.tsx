// A call that waits for a client: anybody who may run sessions can answer it by hand.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { can } from "../core/caller.ts";
import { command } from "../core/connection.ts";
import { formatAge, formatTime } from "../core/format.ts";
import { clock } from "../core/poll.ts";
import type { OpenCall } from "../core/types.ts";
import { Arguments } from "../ui/arguments.tsx";
import { Button, Field } from "../ui/parts.tsx";

interface Props {
  session: string;
  call: Pick<OpenCall, "call" | "tool" | "arguments" | "shortened"> & { deadline?: string };
  head?: ComponentChildren;
  onAnswered?: () => void;
}

export function ClientCallCard({ session, call, head, onAnswered }: Props) {
  const { tool, deadline } = call;
  const [isOpen, setOpen] = useState(false);
  const [content, setContent] = useState("");
  const answer = async (outcome: "ok" | "error") => {
    await command("session.answer_call", { session_id: session, call: call.call, outcome, content });
    onAnswered?.();
  };
  return (
    <section class="gate" aria-label={`Client call ${tool}`}>
      <header class="gate-head">
        <strong>
          A client performs <code>{tool}</code>
        </strong>
        {head}
        {deadline !== undefined && (
          <span class="expiry" title={formatTime(deadline)}>
            {formatAge(deadline, clock.value)} left
          </span>
        )}
      </header>
      <Arguments source={call.arguments} label={call.shortened ? "The beginning of the arguments" : "Arguments"} />
      {isOpen && (
        <Field label="Result that the model reads">
          <textarea
            class="code-input"
            rows={4}
            value={content}
            onInput={(event) => setContent(event.currentTarget.value)}
          />
        </Field>
      )}
      <div class="gate-actions">
        {!isOpen && can("session.answer_call") && <Button onClick={() => setOpen(true)}>Answer by hand …</Button>}
        {isOpen && (
          <>
            <Button kind="good" onClick={() => answer("ok")}>
              Send the result
            </Button>
            <Button kind="danger" onClick={() => answer("error")}>
              Send it as an error
            </Button>
          </>
        )}
      </div>
    </section>
  );
}
