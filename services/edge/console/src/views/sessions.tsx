// The list of sessions, newest first, with filters that are part of the address.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { caller, can } from "../core/caller.ts";
import { rpc } from "../core/connection.ts";
import { isMore } from "../core/fold.ts";
import { firstLine, formatCount, formatMoney, plural, shortId, words } from "../core/format.ts";
import { useKeys } from "../core/keys.ts";
import { usePoll } from "../core/poll.ts";
import { go, links, route, setQuery } from "../core/route.ts";
import type { AgentList, ModelList, SessionPage, SessionSummary } from "../core/types.ts";
import { type ListHandle, VirtualList } from "../ui/list.tsx";
import { Age, Badge, Button, Empty, PageHead, phaseOf, Problem } from "../ui/parts.tsx";
import { Visible } from "../ui/text.tsx";

const POLL_MS = 2000;
const PAGE = 200;
/** The list is asked for once typing rests. */
const REST_MS = 150;
const ROW_PX = 48;

const PHASES = ["running", "idle", "paused", "ended"];
const STOP_REASONS = [
  "completed",
  "stopped",
  "error",
  "max_iterations",
  "timeout",
  "token_limit",
  "cost_limit",
  "tool_call_limit",
  "repetition",
  "no_progress",
];
/** Least cost in dollars. */
const COSTS: [string, string][] = [
  ["0.01", "from $0.01"],
  ["0.1", "from $0.10"],
  ["1", "from $1"],
  ["10", "from $10"],
];
const SINCE: [string, string, number][] = [
  ["1h", "last hour", 3600],
  ["24h", "last day", 86_400],
  ["7d", "last week", 604_800],
  ["30d", "last 30 days", 2_592_000],
];

export function SessionsView() {
  const { query } = route.value;
  const filter = (name: string) => query.get(name) ?? "";
  const text = useRested(filter("q"), REST_MS);
  const result = filter("result");
  const params = useMemo(() => {
    const found: Record<string, unknown> = { limit: PAGE, has_total: true };
    if (text !== "") found.text = text;
    for (const name of ["agent", "model", "phase"]) if (filter(name) !== "") found[name] = filter(name);
    if (result === "failed") found.is_failed = true;
    else if (result === "waiting") found.is_waiting = true;
    else if (result !== "") found.stop_reason = result;
    const cost = Number(filter("cost"));
    if (cost > 0) found.cost_usd_min = cost;
    if (filter("parent") !== "") found.parent = filter("parent");
    const since = SINCE.find(([id]) => id === filter("since"));
    if (since !== undefined)
      found.since = new Date(Math.floor((Date.now() - since[2] * 1000) / 60_000) * 60_000).toISOString();
    return found;
  }, [query.toString(), text]);
  const { data, error, isLoading } = usePoll<SessionPage>("session.list", params, POLL_MS);
  const [older, setOlder] = useState<{ key: string; sessions: SessionSummary[]; cursor?: string } | null>(null);
  const key = JSON.stringify(params);
  const more = older?.key === key ? older : null;

  const shown = useMemo(() => {
    const first = data?.sessions ?? [];
    const seen = new Set(first.map((session) => session.session_id));
    return [...first, ...(more?.sessions ?? []).filter((session) => !seen.has(session.session_id))];
  }, [data, more]);
  const cursor = more === null ? data?.next_cursor : more.cursor;
  const loadOlder = async () => {
    const page = await rpc.call<SessionPage>("session.list", { ...params, limit: 1000, cursor });
    setOlder({ key, sessions: [...(more?.sessions ?? []), ...page.sessions], cursor: page.next_cursor });
  };

  const [selected, setSelected] = useState("");
  const handle = useRef<ListHandle>(null);
  const filterInput = useRef<HTMLInputElement>(null);
  const select = (step: number) => {
    const index = shown.findIndex((session) => session.session_id === selected);
    const next = Math.max(0, Math.min(shown.length - 1, index + step));
    setSelected(shown[next]?.session_id ?? "");
    handle.current?.scrollToIndex(next);
  };
  const marked = filter("compare");
  const mark = () => {
    if (selected === "") return;
    if (marked === "" || marked === selected) setQuery({ compare: marked === selected ? undefined : selected });
    else go(links.compare(marked, selected));
  };
  useKeys([
    { keys: "/", text: "Filter by title", run: () => filterInput.current?.focus() },
    { keys: "j", text: "Next session", run: () => select(1) },
    { keys: "k", text: "Session before", run: () => select(-1) },
    { keys: "Enter", text: "Open the session", run: () => selected !== "" && go(links.session(selected)) },
    { keys: "c", text: "Mark a session, then another one, to compare", run: mark },
    { keys: "Escape", text: "Clear the filters", run: () => go(links.sessions()) },
  ]);
  useEffect(() => setSelected(""), [key]);
  const hasFilter = [...query.keys()].some((name) => name !== "compare");

  return (
    <div class="page page-fill">
      <PageHead
        title="Sessions"
        sub={
          data && (
            <span aria-live="polite">
              {plural(Math.max(data.total ?? 0, shown.length), "session")}
              {cursor !== undefined && (data.total === undefined ? " and older ones" : `, ${shown.length} loaded`)}
              {caller.value !== null && ` of the tenant ${caller.value.tenant}`}
            </span>
          )
        }
      >
        {can("session.start") && (
          <a class="button button-primary" href={links.start()}>
            New session
          </a>
        )}
      </PageHead>
      <Filters filterInput={filterInput} />
      {filter("parent") !== "" && (
        <p class="mark-note">
          Sessions that <a href={links.session(filter("parent"))}>{shortId(filter("parent"))}</a> started.{" "}
          <button type="button" class="link" onClick={() => setQuery({ parent: undefined })}>
            Show all
          </button>
        </p>
      )}
      {marked !== "" && (
        <p class="mark-note">
          Compare <code>{shortId(marked)}</code> with another session: press its <em>compare</em>, or <kbd>c</kbd>.{" "}
          <button type="button" class="link" onClick={() => setQuery({ compare: undefined })}>
            Forget it
          </button>
        </p>
      )}
      {error && <Problem error={error} />}
      <div class="table sessions" role="table" aria-label="Sessions" aria-rowcount={shown.length}>
        <div class="table-head session-row" role="row">
          <span role="columnheader">Title</span>
          <span role="columnheader">State</span>
          <span role="columnheader">Agent</span>
          <span role="columnheader">Model</span>
          <span role="columnheader" class="number">
            Steps
          </span>
          <span role="columnheader" class="number">
            Cost
          </span>
          <span role="columnheader" class="number">
            Changed
          </span>
        </div>
        {shown.length > 0 && (
          <VirtualList
            count={shown.length}
            estimate={ROW_PX}
            keyOf={(index) => shown[index]?.session_id ?? ""}
            handle={handle}
            role="rowgroup"
            render={(index) => {
              const session = shown[index];
              return (
                session && <SessionRow session={session} isSelected={session.session_id === selected} marked={marked} />
              );
            }}
          />
        )}
      </div>
      {shown.length === 0 &&
        !isLoading &&
        (hasFilter ? (
          <Empty title="No session matches">
            <button type="button" class="link" onClick={() => go(links.sessions())}>
              Clear the filters
            </button>
          </Empty>
        ) : (
          <Empty title="No sessions yet">
            Start one in the <a href={links.start()}>playground</a>, or with <code>ailoop run "…"</code>.
          </Empty>
        ))}
      {cursor !== undefined && (
        <div class="list-foot">
          <Button onClick={loadOlder}>Load older sessions</Button>
        </div>
      )}
    </div>
  );
}

/** A value that has not changed for so long. */
function useRested(value: string, restMs: number): string {
  const [rested, setRested] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setRested(value), restMs);
    return () => clearTimeout(timer);
  }, [value, restMs]);
  return rested;
}

function Filters({ filterInput }: { filterInput: { current: HTMLInputElement | null } }) {
  const { query } = route.value;
  const agents = usePoll<AgentList>("agents.list", {}, null);
  const models = usePoll<ModelList>("models.list", {}, null);
  const select = (name: string, label: string, options: [string, string][]) => {
    const value = query.get(name) ?? "";
    return (
      <select
        aria-label={label}
        value={value}
        class={value === "" ? "" : "is-set"}
        onChange={(event) => setQuery({ [name]: event.currentTarget.value })}
      >
        <option value="">{label}</option>
        {options.map(([id, text]) => (
          <option value={id}>{text}</option>
        ))}
        {value !== "" && !options.some(([id]) => id === value) && <option value={value}>{value}</option>}
      </select>
    );
  };
  return (
    <div class="filters" role="search">
      <input
        ref={filterInput}
        type="search"
        placeholder="Title or id"
        aria-label="Filter by title or id"
        value={query.get("q") ?? ""}
        onInput={(event) => setQuery({ q: event.currentTarget.value })}
      />
      {select("agent", "Any agent", agents.data?.agents.map((agent) => [agent.id, agent.name]) ?? [])}
      {select(
        "phase",
        "Any phase",
        PHASES.map((phase) => [phase, phase]),
      )}
      {select("result", "Any result", [
        ["waiting", "waits for somebody"],
        ["failed", "failed"],
        ...STOP_REASONS.map((reason): [string, string] => [reason, words(reason)]),
      ])}
      {select("model", "Any model", models.data?.models.map((model) => [model.id, model.id]) ?? [])}
      {select("cost", "Any cost", COSTS)}
      {select(
        "since",
        "Any time",
        SINCE.map(([id, text]) => [id, text]),
      )}
    </div>
  );
}

/** Says what the cost of a session in the list has. */
function costTitle({ spent, spent_own: own }: SessionSummary): string {
  const tokens = `${formatCount(spent.usage.input + spent.usage.output)} tokens`;
  if (own === undefined) return `${tokens}, with the sessions that it started`;
  return isMore(spent, own)
    ? `${tokens}, with the sessions that it started; ${formatMoney(own.cost_usd)} without them`
    : tokens;
}

function SessionRow({ session, isSelected, marked }: { session: SessionSummary; isSelected: boolean; marked: string }) {
  const phase = phaseOf(session);
  const steps = (session.tally?.iterations ?? 0) + session.step;
  return (
    <div class={`session-row ${isSelected ? "is-selected" : ""}`} role="row">
      <span role="cell" class="session-title">
        {session.parent !== undefined && (
          <span class="muted" title="Started by another session">
            ↳{" "}
          </span>
        )}
        <a href={links.session(session.session_id)}>
          <Visible text={firstLine(session.title) || "(no message yet)"} />
        </a>
        <code class="session-id" title={session.session_id}>
          {shortId(session.session_id)}
        </code>
        {marked !== "" && marked !== session.session_id && (
          <a class="row-compare" href={links.compare(marked, session.session_id)}>
            compare
          </a>
        )}
      </span>
      <span role="cell">
        <Badge tone={phase.tone}>{phase.text}</Badge>
      </span>
      <span role="cell" class="cell-agent">
        {session.agent}
      </span>
      <span role="cell" class="cell-model">
        {session.model}
      </span>
      <span role="cell" class="number cell-steps" title={plural(session.turn, "turn")}>
        {steps}
      </span>
      <span role="cell" class="number cell-cost" title={costTitle(session)}>
        {formatMoney(session.spent.cost_usd)}
      </span>
      <span role="cell" class="number cell-age">
        <Age at={session.updated} />
      </span>
    </div>
  );
}
