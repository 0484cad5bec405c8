// Dead letters: messages that were given up, with the reason, and what can be done about each.

import { useState } from "preact/hooks";
import { isForbidden, rpc } from "../core/connection.ts";
import { formatTime, plural, shortId } from "../core/format.ts";
import { usePoll } from "../core/poll.ts";
import { links } from "../core/route.ts";
import type { DeadLetter, DeadLetterList } from "../core/types.ts";
import { Age, Button, Empty, PageHead, Problem } from "../ui/parts.tsx";
import { DataBlock, Visible } from "../ui/text.tsx";

export function DeadView() {
  const { data, error, refresh } = usePoll<DeadLetterList>("dead.list", {}, 8000);
  if (isForbidden(error))
    return (
      <div class="page">
        <Empty title="Your key may not see dead letters">They need the scope administer.</Empty>
      </div>
    );
  return (
    <div class="page">
      <PageHead title="Dead letters" sub={data && plural(data.dead.length, "message")} />
      {error && <Problem error={error} />}
      {data?.dead.length === 0 && <Empty title="No dead letters">No message was given up.</Empty>}
      <div class="cards">
        {data?.dead.map((letter) => (
          <Letter key={`${letter.session_id}/${letter.kind}/${letter.id}`} letter={letter} onDone={refresh} />
        ))}
      </div>
    </div>
  );
}

function Letter({ letter, onDone }: { letter: DeadLetter; onDone: () => void }) {
  const [body, setBody] = useState<string | null>(null);
  const name = { session_id: letter.session_id, kind: letter.kind, id: letter.id };
  // They may not be repeated: after a break nobody knows whether they were done.
  const act = (method: string) => rpc.call(method, name, false).then(onDone);
  return (
    <article class="card card-body">
      <div class="card-head">
        <h2>
          <code>{letter.code}</code>
        </h2>
        <span>
          {letter.kind} <code>{letter.id}</code>
        </span>
        <a href={links.session(letter.session_id)}>session {shortId(letter.session_id)}</a>
        <span class="muted" title={formatTime(letter.stored_at)}>
          <Age at={letter.stored_at} /> ago, delivered {letter.delivered} times
        </span>
      </div>
      <p class="prewrap">
        <Visible text={letter.reason} isProse />
      </p>
      {body !== null && <DataBlock source={body} label="Body" />}
      <div class="gate-actions">
        {body === null && (
          <Button onClick={async () => setBody(JSON.stringify((await rpc.call<DeadLetter>("dead.show", name)).body))}>
            Show its body
          </Button>
        )}
        {letter.kind === "control" && <Button onClick={() => act("dead.retry")}>Send it again</Button>}
        <Button kind="danger" onClick={() => act("dead.drop")}>
          Drop it
        </Button>
      </div>
    </article>
  );
}
