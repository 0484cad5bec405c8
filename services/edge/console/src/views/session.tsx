// One session: the conversation as it streams, and beside it what happened, why, and what it cost.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { can } from "../core/caller.ts";
import { command } from "../core/connection.ts";
import { isMore, type ReplyRow, type SessionView as View, type UserRow } from "../core/fold.ts";
import { firstLine, formatCount, formatMoney, plural, shellQuote, shortId } from "../core/format.ts";
import { useKeys } from "../core/keys.ts";
import { go, links, route, setQuery } from "../core/route.ts";
import { useSession } from "../core/store.ts";
import type { CommandReply } from "../core/types.ts";
import type { ListHandle } from "../ui/list.tsx";
import { lazyPart } from "../ui/late.tsx";
import { Badge, Button, Dialog, Empty, Field, Problem, stateOf, Tabs } from "../ui/parts.tsx";
import { CopyButton, Visible } from "../ui/text.tsx";
import { Composer, StatusLine } from "./composer.tsx";
import { Conversation, conversationRows, type Shared, useOpenRows } from "./conversation.tsx";
import type { ForkPoint } from "./fork.tsx";
import { Costs, Decisions, Details, PlanPanel } from "./panels.tsx";
import { Timeline, useTrace } from "./timeline.tsx";

const Slots = lazyPart(() => import("./slots.tsx").then((part) => part.Slots));
const Tree = lazyPart(() => import("./tree.tsx").then((part) => part.Tree));
const ReplyTestDialog = lazyPart(() => import("./reply_test.tsx").then((part) => part.ReplyTestDialog));
const ForkDialog = lazyPart(() => import("./fork.tsx").then((part) => part.ForkDialog));

type Tab = "conversation" | "timeline" | "plan" | "decisions" | "costs" | "tree" | "state" | "details";

export function SessionView({ id }: { id: string }) {
  const followed = useSession(id);
  const { view } = followed;
  const rev = followed.rev.value;
  const { query } = route.value;
  const handle = useRef<ListHandle>(null);
  const openRows = useOpenRows();
  const rows = useMemo(() => conversationRows(view, openRows.open), [rev, view, view.rev, openRows.rev]);
  const [selected, setSelected] = useState("");
  const [forkAt, setForkAt] = useState<ForkPoint | null>(null);
  const [isStopping, setStopping] = useState(false);
  const [tested, setTested] = useState<ReplyRow | null>(null);
  const isWide = useWide();
  const asked = (query.get("tab") ?? "") as Tab | "";
  const tab: Tab =
    asked === "" || (isWide && asked === "conversation") ? (isWide ? "timeline" : "conversation") : asked;
  // The slider of the state shows where in the conversation its slot is.
  const at = query.get("at");
  const until = tab === "state" && at !== null ? Number(at) : undefined;
  useEffect(() => {
    if (until === undefined) return;
    const index = rows.findLastIndex((row) => row.slot !== undefined && row.slot <= until);
    if (index >= 0) handle.current?.scrollToIndex(index, "end");
  }, [until]);
  const trace = useTrace(id, view, tab === "timeline");
  const setTab = (next: Tab) => setQuery({ tab: next === (isWide ? "timeline" : "conversation") ? undefined : next });

  const show = (key: string, isOpening = true) => {
    const row = view.rows.find((other) => other.key === key);
    if (row?.kind === "call" && !rows.includes(row)) openRows.show(`g${row.turn}-${row.step}`);
    const index = conversationRows(view, openRows.open).findIndex((other) => other.key === key);
    if (index < 0) return;
    if (!isWide) setTab("conversation");
    if (isOpening && row?.kind === "call") openRows.show(key);
    setSelected(key);
    requestAnimationFrame(() => handle.current?.scrollToIndex(index, "center"));
  };
  const move = (step: number) => {
    const index = rows.findIndex((row) => row.key === selected);
    const next = Math.max(0, Math.min(rows.length - 1, index < 0 ? rows.length - 1 : index + step));
    setSelected(rows[next]?.key ?? "");
    handle.current?.scrollToIndex(next);
  };
  // The first message has nothing before it: its session begins anew.
  const rerun = (row: UserRow) => {
    if (row.slot === undefined || row.slot === 0)
      go(links.start({ prompt: row.text, agent: view.agent, model: view.model }));
    else setForkAt({ slot: row.slot - 1, text: row.text });
  };
  const failures = rows.filter(
    (row) =>
      (row.kind === "call" && ["error", "timeout", "unknown"].includes(row.state)) ||
      (row.kind === "note" && row.tone === "error"),
  );
  const nextFailure = () => {
    const at = rows.findIndex((row) => row.key === selected);
    const next = failures.find((row) => rows.indexOf(row) > at) ?? failures[0];
    if (next) show(next.key);
  };
  useKeys([
    { keys: "Escape", text: "Back to the sessions", run: () => go(links.sessions()) },
    { keys: "j", text: "Next row", run: () => move(1) },
    { keys: "k", text: "Row before", run: () => move(-1) },
    { keys: "Enter", text: "Open or close the row", run: () => selected !== "" && openRows.toggle(selected) },
    { keys: "x", text: "Next failure", run: nextFailure },
    { keys: "G", text: "End of the conversation", run: () => handle.current?.scrollToIndex(rows.length - 1, "end") },
    { keys: "m", text: "Write a message", run: () => document.querySelector<HTMLElement>("#message")?.focus() },
    { keys: "p", text: "Pause or resume", run: () => document.querySelector<HTMLElement>("[data-pause]")?.click() },
  ]);

  const error = followed.error.value;
  if (error !== null && view.seq === 0) {
    return (
      <div class="page">
        <Problem error={error} />
        <Empty title="This session cannot be shown">
          <a href={links.sessions()}>Back to the sessions</a>
        </Empty>
      </div>
    );
  }
  const tabs: { id: Tab; text: string; count?: number }[] = [
    ...(isWide ? [] : [{ id: "conversation" as const, text: "Conversation" }]),
    { id: "timeline", text: "Timeline" },
    ...(view.plan === null ? [] : [{ id: "plan" as const, text: "Plan" }]),
    { id: "decisions", text: "Decisions", count: view.decisions.size },
    { id: "costs", text: "Costs" },
    { id: "tree", text: "Tree" },
    { id: "state", text: "State" },
    { id: "details", text: "Details" },
  ];
  const shared: Shared = {
    session: id,
    view,
    open: openRows.open,
    toggle: openRows.toggle,
    onFork: (row) => setForkAt({ slot: row.slot }),
    onRerun: rerun,
    onTest: setTested,
  };
  const conversation = (
    <div class="talk">
      {view.isPartial && <p class="hint talk-hint">The beginning of this session is no longer in the log.</p>}
      <Conversation shared={shared} rows={rows} handle={handle} selected={selected} until={until} />
      <StatusLine id={id} view={view} rev={view.rev} />
      <Composer id={id} view={view} onFork={() => setForkAt({})} />
    </div>
  );
  const panels: Record<Tab, () => ComponentChildren> = {
    conversation: () => conversation,
    timeline: () => <Timeline trace={trace} view={view} onSelect={show} />,
    plan: () => <PlanPanel view={view} rev={view.rev} />,
    decisions: () => <Decisions view={view} onSelect={(key) => show(key, false)} />,
    costs: () => <Costs view={view} onSelect={(key) => show(key, false)} />,
    tree: () => <Tree id={id} view={view} rev={view.rev} />,
    state: () => <Slots id={id} seq={view.seq} onFork={(slot: number) => setForkAt({ slot })} />,
    details: () => <Details id={id} view={view} rev={view.rev} />,
  };
  return (
    <div class="session">
      <SessionHead
        id={id}
        view={view}
        failures={failures.length}
        onFailure={nextFailure}
        onStop={() => setStopping(true)}
        onFork={() => setForkAt({})}
      />
      <div class="session-body">
        {isWide && conversation}
        <aside class="side" aria-label="What happened">
          <Tabs label="What happened" tabs={tabs} current={tab} onChange={setTab} />
          <div class="side-body" role="tabpanel" tabIndex={-1}>
            {panels[tab]?.()}
          </div>
        </aside>
      </div>
      {forkAt !== null && <ForkDialog id={id} view={view} at={forkAt} onClose={() => setForkAt(null)} />}
      {tested !== null && <ReplyTestDialog view={view} row={tested} onClose={() => setTested(null)} />}
      {isStopping && <StopDialog id={id} onClose={() => setStopping(false)} />}
    </div>
  );
}

function SessionHead({
  id,
  view,
  failures,
  onFailure,
  onStop,
  onFork,
}: {
  id: string;
  view: View;
  failures: number;
  onFailure: () => void;
  onStop: () => void;
  onFork: () => void;
}) {
  const isEnded = view.phase === "ended";
  const state = stateOf(view);
  const first = view.rows.find((row) => row.kind === "user");
  const title = first?.kind === "user" ? firstLine(first.text).slice(0, 200) : "";
  const send = (method: string) => command<CommandReply>(method, { session_id: id });
  const tokens = view.spent.usage.input + view.spent.usage.output;
  const copyCli = () => `ailoop watch ${shellQuote(id)}`;
  return (
    <header class="session-head">
      <div class="session-head-main">
        <a class="back" href={links.sessions()} aria-label="Back to the sessions">
          ‹
        </a>
        <div class="session-names">
          <h1>
            <Visible text={title || "Session"} isProse />
          </h1>
          <div class="facts">
            <Badge tone={state.tone}>{state.text}</Badge>
            <span>{view.agentName || view.agent}</span>
            <span>{view.model}</span>
            <span>{plural(view.turn, "turn")}</span>
            <span>{formatCount(tokens)} tokens</span>
            {view.spent.cost_usd > 0 && <span>{formatMoney(view.spent.cost_usd)}</span>}
            {view.own !== null && isMore(view.spent, view.own) && (
              <span>delegated work included; {formatMoney(view.own.cost_usd)} without it</span>
            )}
            {failures > 0 && (
              <button type="button" class="link bad-text" onClick={onFailure} title="Jump to the next failure (x)">
                {plural(failures, "failure")}
              </button>
            )}
            {view.parent !== "" && <a href={links.session(view.parent)}>started by {shortId(view.parent)}</a>}
            {view.source !== null && (
              <>
                <a href={links.session(view.source.session, { at: view.source.at?.toString(), tab: "state" })}>
                  fork of {shortId(view.source.session)}
                  {view.source.at !== undefined && `, slot ${view.source.at}`}
                </a>
                <a href={links.compare(view.source.session, id)}>compare with it</a>
              </>
            )}
            <CopyButton text={id} label={shortId(id)} title={`Copy the id ${id}`} />
            <CopyButton text={copyCli} label="copy as command" />
          </div>
        </div>
      </div>
      <div class="page-actions">
        {!isEnded &&
          can("session.pause") &&
          (view.phase === "paused" ? (
            <Button kind="primary" icon="start" onClick={() => send("session.resume")}>
              <span data-pause>Resume</span>
            </Button>
          ) : (
            <Button icon="pause" onClick={() => send("session.pause")}>
              <span data-pause>Pause</span>
            </Button>
          ))}
        {!isEnded && can("session.cancel_turn") && (
          <Button
            isDisabled={view.phase !== "running" && view.phase !== "paused"}
            onClick={() => send("session.cancel_turn")}
            title="End the running turn; the session stays open"
          >
            Cancel turn
          </Button>
        )}
        {!isEnded && can("session.stop") && (
          <Button kind="danger" icon="stop" onClick={onStop}>
            Stop
          </Button>
        )}
        {can("session.start") && (
          <Button icon="fork" onClick={onFork}>
            Fork
          </Button>
        )}
        <a class="button" href={links.sessions({ compare: id })}>
          Compare
        </a>
      </div>
    </header>
  );
}

function StopDialog({ id, onClose }: { id: string; onClose: () => void }) {
  const [reason, setReason] = useState("");
  return (
    <Dialog title="Stop this session?" onClose={onClose}>
      <p>The session ends, and its running calls are cancelled. It takes no more messages; its log stays.</p>
      <Field label="Reason (optional)">
        <input value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
      </Field>
      <div class="form-actions">
        <Button onClick={onClose}>Keep it</Button>
        <Button
          kind="danger"
          icon="stop"
          onClick={() =>
            command("session.stop", { session_id: id, ...(reason === "" ? {} : { reason }) }).then(onClose)
          }
        >
          Stop the session
        </Button>
      </div>
    </Dialog>
  );
}

const WIDE = "(min-width: 900px)";

function useWide(): boolean {
  const [isWide, setWide] = useState(() => matchMedia(WIDE).matches);
  useEffect(() => {
    const media = matchMedia(WIDE);
    const changed = () => setWide(media.matches);
    media.addEventListener("change", changed);
    return () => media.removeEventListener("change", changed);
  }, []);
  return isWide;
}
