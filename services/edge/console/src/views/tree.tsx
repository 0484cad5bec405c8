// The sessions that belong together: who started whom, from the first one down, and what each did and cost.

import { useEffect, useState } from "preact/hooks";
import { connection, rpc } from "../core/connection.ts";
import { isMore, type SessionView } from "../core/fold.ts";
import { firstLine, formatCount, formatMoney, plural } from "../core/format.ts";
import { links } from "../core/route.ts";
import type { SessionPage, SessionSummary } from "../core/types.ts";
import { Age, Badge, Meter, phaseOf, Problem } from "../ui/parts.tsx";
import { Visible } from "../ui/text.tsx";

const POLL_MS = 5000;
/** More sessions of one tree are not read. */
const NODES_MAX = 60;
const CHILDREN_MAX = 50;
const ANCESTORS_MAX = 20;

interface Node {
  session: SessionSummary;
  children: Node[];
  /** Whether it has children that were not read. */
  hasMore: boolean;
}

/** Reads the whole tree: up to the session that nobody started, then down. */
async function readTree(id: string): Promise<Node> {
  const get = (session: string) => rpc.call<SessionSummary>("session.get", { session_id: session });
  let root = await get(id);
  for (let depth = 0; root.parent !== undefined && depth < ANCESTORS_MAX; depth++) {
    // The session that started this one may be erased.
    const above = await get(root.parent).catch(() => null);
    if (above === null) break;
    root = above;
  }
  const top: Node = { session: root, children: [], hasMore: false };
  const pending = [top];
  let count = 1;
  for (let node = pending.shift(); node !== undefined; node = pending.shift()) {
    if (count >= NODES_MAX) {
      node.hasMore = true;
      continue;
    }
    const { sessions, next_cursor } = await rpc.call<SessionPage>("session.list", {
      parent: node.session.session_id,
      limit: CHILDREN_MAX,
    });
    // The list has the newest first.
    node.children = sessions.reverse().map((session) => ({ session, children: [], hasMore: false }));
    node.hasMore = next_cursor !== undefined;
    count += sessions.length;
    pending.push(...node.children);
  }
  return top;
}

interface Total {
  sessions: number;
  cost: number;
  /** Sessions whose own cost is not known, and that are not in `cost`. */
  uncounted: number;
}

/** Adds up what each session spent itself: what it spent with those below it would count these again. */
function total({ session, children }: Node): Total {
  const own = session.spent_own;
  return children.map(total).reduce(
    (sum, one) => ({
      sessions: sum.sessions + one.sessions,
      cost: sum.cost + one.cost,
      uncounted: sum.uncounted + one.uncounted,
    }),
    { sessions: 1, cost: own?.cost_usd ?? 0, uncounted: own === undefined ? 1 : 0 },
  );
}

export function Tree({ id, view }: { id: string; view: SessionView; rev: number }) {
  const [tree, setTree] = useState<Node | null>(null);
  const [error, setError] = useState<unknown>(null);
  const isOpen = connection.value.kind === "open";
  useEffect(() => {
    if (!isOpen) return;
    let isCurrent = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const read = async () => {
      try {
        if (document.visibilityState === "visible") {
          const found = await readTree(id);
          if (isCurrent) setTree(found);
        }
      } catch (failed) {
        if (isCurrent) setError(failed);
      }
      if (isCurrent) timer = setTimeout(read, POLL_MS);
    };
    void read();
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [id, isOpen]);
  if (tree === null) return error === null ? <p class="muted pad">Reading the tree …</p> : <Problem error={error} />;
  const { sessions, cost, uncounted } = total(tree);
  return (
    <div class="pad scroll">
      <p class="muted">
        {sessions === 1
          ? "No session started this one, and it started none."
          : `${plural(sessions, "session")}, ${formatMoney(cost)} in all`}
        {uncounted > 0 && ` The sum is without ${plural(uncounted, "session")} of an older version of ailoop.`}
      </p>
      {view.source !== null && (
        <p>
          It begins with the transcript of <a href={links.session(view.source.session)}>{view.source.session}</a>
          {view.source.at !== undefined && ` up to slot ${view.source.at}`}.{" "}
          <a href={links.compare(view.source.session, id)}>Compare them</a>
        </p>
      )}
      <ul class="tree" aria-label="Sessions">
        <Branch node={tree} current={id} most={cost} />
      </ul>
    </div>
  );
}

function Branch({ node, current, most }: { node: Node; current: string; most: number }) {
  const { session, children } = node;
  const phase = phaseOf(session);
  const isCurrent = session.session_id === current;
  const own = session.spent_own;
  const shown = own ?? session.spent;
  return (
    <li aria-current={isCurrent ? "true" : undefined}>
      <div class={`tree-node ${isCurrent ? "is-current" : ""}`}>
        <div class="tree-title">
          <Badge tone={phase.tone}>{phase.text}</Badge>
          {isCurrent ? (
            <strong>
              <Visible text={titleOf(session)} isProse />
            </strong>
          ) : (
            <a href={links.session(session.session_id, { tab: "tree" })}>
              <Visible text={titleOf(session)} isProse />
            </a>
          )}
        </div>
        <div class="tree-facts muted">
          <span>{session.agent}</span>
          <span>{session.model}</span>
          <span>{plural(session.turn, "turn")}</span>
          <span>{formatCount(shown.usage.input + shown.usage.output)} tokens</span>
          <span>{formatMoney(shown.cost_usd)}</span>
          {own === undefined && <span>with the sessions below it</span>}
          {own !== undefined && isMore(session.spent, own) && (
            <span>{formatMoney(session.spent.cost_usd)} with the sessions below it</span>
          )}
          <Age at={session.updated} />
        </div>
        {most > 0 && own !== undefined && (
          <Meter value={own.cost_usd} max={most} label={`Cost of ${titleOf(session)}`} />
        )}
      </div>
      {children.length > 0 && (
        <ul>
          {children.map((child) => (
            <Branch key={child.session.session_id} node={child} current={current} most={most} />
          ))}
        </ul>
      )}
      {node.hasMore && (
        <p class="hint">
          <a href={links.sessions({ parent: session.session_id })}>All sessions that it started</a>
        </p>
      )}
    </li>
  );
}

function titleOf(session: SessionSummary): string {
  return firstLine(session.title).slice(0, 120) || session.session_id;
}
