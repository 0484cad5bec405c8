// The mailbox of people, and those of agents to look at.

import { useState } from "preact/hooks";
import { can } from "../core/caller.ts";
import { command } from "../core/connection.ts";
import { usePoll } from "../core/poll.ts";
import { route, setQuery } from "../core/route.ts";
import type { Agent, AgentList, Mail, MailList } from "../core/types.ts";
import { Age, Button, Empty, Field, PageHead, Problem, takeFocus } from "../ui/parts.tsx";
import { Visible } from "../ui/text.tsx";

const USER = "user";

export function MailView() {
  const mailbox = route.value.query.get("mailbox") ?? USER;
  const mails = usePoll<MailList>("mail.list", { mailbox }, 5000);
  const agents = usePoll<AgentList>("agents.list", {}, null);
  const [isWriting, setWriting] = useState(false);
  return (
    <div class="page">
      <PageHead
        title="Mail"
        sub={mailbox === USER ? "Mails of agents to people" : "This mailbox can only be read here"}
      >
        <select
          aria-label="Mailbox"
          value={mailbox}
          onChange={(event) =>
            setQuery({ mailbox: event.currentTarget.value === USER ? undefined : event.currentTarget.value })
          }
        >
          <option value={USER}>People</option>
          {agents.data?.agents.map((agent) => (
            <option value={agent.id}>{agent.name}</option>
          ))}
        </select>
        {can("mail.send") && (
          <Button kind="primary" icon="mail" onClick={() => setWriting(true)}>
            Write a mail
          </Button>
        )}
      </PageHead>
      {mails.error && <Problem error={mails.error} />}
      {isWriting && <Write agents={agents.data?.agents ?? []} onDone={() => setWriting(false)} />}
      {mails.data?.mails.length === 0 && (
        <Empty title="No mail waits">A mail stays here until somebody answers or closes it.</Empty>
      )}
      <div class="cards">
        {mails.data?.mails.map((mail) => (
          <MailCard key={mail.id} mail={mail} canReply={mailbox === USER && can("mail.reply")} onDone={mails.refresh} />
        ))}
      </div>
      {(mails.data?.more ?? 0) > 0 && <p class="hint">{mails.data?.more} more wait.</p>}
    </div>
  );
}

function MailCard({ mail, canReply, onDone }: { mail: Mail; canReply: boolean; onDone: () => void }) {
  const [text, setText] = useState<string | null>(null);
  const reply = (words: string) => command("mail.reply", { id: mail.id, text: words }).then(onDone);
  return (
    <article class="card card-body">
      <div class="card-head">
        <h2>
          <Visible text={mail.subject} isProse />
        </h2>
        <span class="muted">
          from {mail.from}, <Age at={mail.sent} /> ago
        </span>
      </div>
      {mail.answers && (
        <p class="muted">
          Answers “<Visible text={mail.answers.subject} isProse />
          ”: <Visible text={mail.answers.excerpt} isProse />
        </p>
      )}
      <p class="prewrap">
        <Visible text={mail.text} isProse />
      </p>
      {canReply && (
        <div class="gate-actions">
          {text === null ? (
            <>
              <Button onClick={() => setText("")}>Answer …</Button>
              <Button onClick={() => reply("")} title="Close it without an answer">
                Close
              </Button>
            </>
          ) : (
            <>
              <Field label="Answer">
                <textarea
                  ref={takeFocus}
                  rows={3}
                  value={text}
                  onInput={(event) => setText(event.currentTarget.value)}
                />
              </Field>
              <Button kind="primary" isDisabled={text.trim() === ""} onClick={() => reply(text)}>
                Send
              </Button>
              <Button onClick={() => setText(null)}>Back</Button>
            </>
          )}
        </div>
      )}
    </article>
  );
}

function Write({ agents, onDone }: { agents: Agent[]; onDone: () => void }) {
  const [to, setTo] = useState(agents[0]?.id ?? "");
  const [subject, setSubject] = useState("");
  const [text, setText] = useState("");
  return (
    <form class="card card-body section" onSubmit={(event) => event.preventDefault()}>
      <div class="field-row">
        <Field label="To">
          <select value={to} onChange={(event) => setTo(event.currentTarget.value)}>
            {agents.map((agent) => (
              <option value={agent.id}>{agent.name}</option>
            ))}
            <option value={USER}>People</option>
          </select>
        </Field>
        <Field label="Subject">
          <input ref={takeFocus} value={subject} onInput={(event) => setSubject(event.currentTarget.value)} />
        </Field>
      </div>
      <Field label="Text" hint="It waits until a session of the agent checks the mailbox.">
        <textarea rows={4} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </Field>
      <div class="form-actions">
        <Button onClick={onDone}>Cancel</Button>
        <Button
          kind="primary"
          isDisabled={subject.trim() === "" || text.trim() === "" || to === ""}
          onClick={() => command("mail.send", { to, subject, text }).then(onDone)}
        >
          Send
        </Button>
      </div>
    </form>
  );
}
