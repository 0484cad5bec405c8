// Below a conversation: what the session waits for, and the box for messages.

import { useState } from "preact/hooks";
import { can } from "../core/caller.ts";
import { newId, rpc } from "../core/connection.ts";
import type { SessionView } from "../core/fold.ts";
import { plural } from "../core/format.ts";
import { clock, usePoll } from "../core/poll.ts";
import type { SessionDescription } from "../core/types.ts";
import { type Attached, AttachButton, Attachments, messageContent, useImages } from "../ui/images.tsx";
import { Age, Button } from "../ui/parts.tsx";
import { Visible } from "../ui/text.tsx";

/** Quiet time after which the fleet is asked what keeps the session. */
const QUIET_MS = 1500;

/** What a session that runs waits for, once it has been quiet for a moment: who has the call, and what failed so far. */
export function StatusLine({ id, view }: { id: string; view: SessionView; rev: number }) {
  const isQuiet =
    view.phase === "running" && view.openGates().length === 0 && clock.value - Date.parse(view.updated) > QUIET_MS;
  const isStreaming = view.rows.some((row) => row.kind === "reply" && row.isStreaming && row.text !== "");
  const { data } = usePoll<SessionDescription>(
    "session.describe",
    isQuiet && !isStreaming ? { session_id: id } : null,
    2000,
  );
  // An answer from before the last event is about another call.
  if (!isQuiet || isStreaming || data === undefined || Date.parse(data.now) < Date.parse(view.updated)) return null;
  const [wait] = data.waits;
  if (wait === undefined || !["model_call", "retry", "tool_call"].includes(wait.kind)) return null;
  const what =
    wait.kind === "tool_call" ? wait.tool : wait.kind === "retry" ? "the next attempt" : (wait.model ?? "the model");
  return (
    <p class="status-line" role="status">
      <span class="dot badge-live" aria-hidden="true" /> Waits for <code>{what}</code>
      {wait.since && (
        <>
          {" "}
          (<Age at={wait.since} />)
        </>
      )}
      {(wait.attempt ?? 1) > 1 && `, attempt ${wait.attempt}`}
      {wait.holder ? `, at ${wait.holder.replica}` : wait.kind === "retry" ? "" : ", in its queue"}
      {wait.holder?.note && (
        <>
          : <Visible text={wait.holder.note} isProse />
        </>
      )}
      {data.waits.length > 1 && ` and ${plural(data.waits.length - 1, "other call")}`}
    </p>
  );
}

type Mode = "steer" | "queue" | "interrupt";

const MODES: [Mode, string, string][] = [
  ["steer", "Steer", "The model reads it at its next step"],
  ["queue", "Queue", "It begins the next turn"],
  ["interrupt", "Interrupt", "It cancels the model call that runs"],
];

interface Outgoing {
  id: string;
  text: string;
  images: Attached[];
  error?: string;
}

export function Composer({ id, view, onFork }: { id: string; view: SessionView; onFork: () => void }) {
  const [text, setText] = useState("");
  const [mode, setMode] = useState<Mode>("steer");
  const images = useImages();
  const [outgoing, setOutgoing] = useState<Outgoing[]>([]);
  const isBusy = view.phase === "running" || view.phase === "paused";
  const arrived = new Set(view.rows.flatMap((row) => (row.kind === "user" ? [row.id] : [])));
  const waiting = outgoing.filter((message) => !arrived.has(message.id));
  const send = () => {
    const words = text.trim();
    if (words === "" && images.list.length === 0) return;
    const message: Outgoing = { id: newId(), text: words, images: images.list };
    setOutgoing([...waiting, message]);
    setText("");
    images.clear();
    const content = messageContent(words, message.images);
    rpc.call("session.send", { session_id: id, command_id: message.id, content, mode }).catch((error: Error) => {
      setOutgoing((list) =>
        list.map((other) => (other.id === message.id ? { ...other, error: error.message } : other)),
      );
    });
  };
  if (view.phase === "ended" || !can("session.send")) {
    return (
      <div class="composer composer-ended">
        <span class="muted">
          {view.phase === "ended" ? "This session has ended." : "Your key may watch, and not write."}
        </span>
        {can("session.start") && (
          <Button kind="primary" icon="fork" onClick={onFork}>
            Go on in a fork
          </Button>
        )}
      </div>
    );
  }
  return (
    <form
      class="composer"
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        event.preventDefault();
        images.take(event.dataTransfer);
      }}
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      {waiting.map((message) => (
        <p class={message.error ? "outgoing inline-error" : "outgoing muted"}>
          {message.error ? `Not sent: ${message.error}` : isBusy ? "Waits: " : "Sending: "}
          <Visible text={message.text.slice(0, 200)} isProse />
          {message.images.length > 0 && ` (${plural(message.images.length, "image")})`}
          {message.error && (
            <button
              type="button"
              class="link"
              onClick={() => {
                setText(message.text);
                images.restore(message.images);
                setOutgoing(waiting.filter((other) => other !== message));
              }}
            >
              edit
            </button>
          )}
        </p>
      ))}
      <Attachments images={images} />
      <textarea
        id="message"
        aria-label="Message"
        placeholder={isBusy ? MODES.find(([name]) => name === mode)?.[2] : "Message"}
        rows={Math.min(8, Math.max(1, text.split("\n").length))}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onPaste={(event) => {
          if (images.take(event.clipboardData)) event.preventDefault();
        }}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
          event.preventDefault();
          send();
        }}
      />
      <div class="composer-bar">
        {isBusy && (
          <div class="modes" role="radiogroup" aria-label="How the message is delivered">
            {MODES.map(([name, label, hint]) => (
              <button
                type="button"
                role="radio"
                aria-checked={mode === name}
                title={hint}
                onClick={() => setMode(name)}
              >
                {label}
              </button>
            ))}
          </div>
        )}
        <AttachButton images={images} />
        <span class="hint">Enter sends, Shift+Enter is a new line</span>
        <Button type="submit" kind="primary" icon="send" isDisabled={text.trim() === "" && images.list.length === 0}>
          Send
        </Button>
      </div>
    </form>
  );
}
