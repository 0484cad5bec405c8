// What runs, what waits for whom, what failed, and what it costs.

import { useMemo } from "preact/hooks";
import { can } from "../core/caller.ts";
import { isForbidden } from "../core/connection.ts";
import { formatBytes, formatCount, formatMoney, plural, words } from "../core/format.ts";
import { clock, usePoll } from "../core/poll.ts";
import { links, route, setQuery } from "../core/route.ts";
import { byName, measure, type Percentiles, percentilesOf, useSample } from "../core/sample.ts";
import type {
  AgentStats,
  Budget,
  BudgetList,
  FleetStatus,
  GateList,
  IntervalStats,
  PendingGate,
  SessionPage,
  SessionSummary,
  StatsList,
} from "../core/types.ts";
import { Range, Shares, TimeBars } from "../ui/chart.tsx";
import { Age, Badge, Empty, gateVerb, isFailure, Meter, PageHead, phaseOf, Problem, Section } from "../ui/parts.tsx";
import { percentileColumns, Table } from "../ui/table.tsx";
import { Visible } from "../ui/text.tsx";
import { Source } from "./conversation.tsx";

const POLL_MS = 4000;
const STATS_MS = 10_000;
const LISTED_MAX = 6;

/** Times that are looked back on: how long, in intervals of how many seconds. */
const RANGES = [
  { id: "1h", text: "last hour", seconds: 3600, interval: 120, each: "2 minutes" },
  { id: "24h", text: "last 24 hours", seconds: 86_400, interval: 3600, each: "an hour" },
  { id: "7d", text: "last 7 days", seconds: 604_800, interval: 21_600, each: "6 hours" },
  { id: "30d", text: "last 30 days", seconds: 2_592_000, interval: 86_400, each: "a day" },
] as const;

export function OverviewView() {
  const asked = route.value.query.get("range");
  const range = RANGES.find((other) => other.id === asked) ?? RANGES[1];
  // In steps of a minute, so that the requests do not change with every poll.
  const minute = Math.floor(clock.value / 60_000);
  const since = useMemo(() => new Date(minute * 60_000 - range.seconds * 1000).toISOString(), [range, minute]);
  const list = (filter: Record<string, unknown>) => ({ since, limit: LISTED_MAX, has_total: true, ...filter });
  const all = usePoll<SessionPage>("session.list", list({ limit: 1 }), POLL_MS);
  // Of the sessions that run, some wait for somebody: they are counted apart.
  const active = usePoll<SessionPage>("session.list", list({ phase: "running", since: undefined, limit: 50 }), POLL_MS);
  const held = usePoll<SessionPage>(
    "session.list",
    list({ phase: "running", is_waiting: true, since: undefined, limit: 1 }),
    POLL_MS,
  );
  const failed = usePoll<SessionPage>("session.list", list({ is_failed: true }), POLL_MS);
  const waiting = usePoll<SessionPage>("session.list", list({ is_waiting: true, since: undefined, limit: 1 }), POLL_MS);
  const gates = usePoll<GateList>("gates.list", { limit: 100 }, POLL_MS);
  const { interval } = range;
  const stats = usePoll<StatsList>("session.stats", { since, interval }, STATS_MS);
  const budgets = usePoll<BudgetList>("budgets.list", can("budgets.list") ? {} : null, STATS_MS);
  const fleet = usePoll<FleetStatus>("fleet.status", can("fleet.status") ? {} : null, STATS_MS);
  const lines = stats.data?.stats ?? [];
  const spent = lines.reduce((sum, line) => sum + line.spent_own.cost_usd, 0);
  const tokens = lines.reduce((sum, line) => sum + line.spent_own.usage.input + line.spent_own.usage.output, 0);
  const open = gates.data?.gates ?? [];
  const runningCount = Math.max(0, (active.data?.total ?? 0) - (held.data?.total ?? 0));
  const running = (active.data?.sessions ?? []).filter(
    (session) => !session.gates?.length && !session.client_calls?.length,
  );
  const hasSessions = (all.data?.total ?? 1) > 0;
  return (
    <div class="page">
      <PageHead title="Overview" sub={`The ${range.text}`}>
        <div class="modes" role="radiogroup" aria-label="Time">
          {RANGES.map(({ id, text }) => (
            <button
              type="button"
              role="radio"
              aria-checked={id === range.id}
              title={text}
              onClick={() => setQuery({ range: id === "24h" ? undefined : id })}
            >
              {id}
            </button>
          ))}
        </div>
        {can("session.start") && (
          <a class="button button-primary" href={links.start()}>
            New session
          </a>
        )}
      </PageHead>
      {all.error && <Problem error={all.error} />}
      <div class="tiles">
        <Tile
          name="Running"
          value={active.data ? String(runningCount) : "–"}
          href={links.sessions({ phase: "running" })}
        />
        <Tile
          name="Wait for somebody"
          value={totalOf(waiting.data)}
          href={links.sessions({ result: "waiting" })}
          tone={(waiting.data?.total ?? 0) > 0 ? "wait" : undefined}
        />
        <Tile
          name="Failed"
          value={totalOf(failed.data)}
          href={links.sessions({ result: "failed", since: range.id })}
          tone={(failed.data?.total ?? 0) > 0 ? "bad" : undefined}
        />
        <Tile name="Sessions" value={totalOf(all.data)} href={links.sessions({ since: range.id })} />
        <Tile name="Spent" value={formatMoney(spent)} />
        <Tile name="Tokens" value={formatCount(tokens)} />
      </div>
      <Attention gates={open} budgets={budgets.data?.budgets ?? []} fleet={fleet.data} />
      {hasSessions && (
        <div class="charts">
          <Section title="Spend" label="Spend" class="pad">
            <Spend intervals={stats.data?.intervals ?? []} range={range} />
          </Section>
          <Section title="Sessions" label="Sessions by time" class="pad">
            <Started intervals={stats.data?.intervals ?? []} range={range} />
          </Section>
          <Section title="What decided after each reply" label="Decisions" class="pad">
            <DecisionShares stats={lines} />
            <h3>How turns ended</h3>
            <EndShares stats={lines} />
          </Section>
          <Section title="Time of calls" label="Latency" class="pad">
            <Latency />
          </Section>
        </div>
      )}
      <div class="columns">
        <SessionsCard title="Running" sessions={running} none="Nothing runs." />
        <SessionsCard title="Failed last" sessions={failed.data?.sessions ?? []} none="No turn failed." />
        <Section title="Agents and models" class="table-scroll">
          {lines.length > 0 ? <StatsTable stats={lines} /> : <p class="pad muted">No turns yet.</p>}
        </Section>
        {can("budgets.list") && (
          <Section title="Budgets">
            {budgets.data?.budgets.length ? (
              budgets.data.budgets.map((budget) => <BudgetLine budget={budget} />)
            ) : (
              <p class="pad muted">{budgets.error ? "They cannot be read now." : "No budget is configured."}</p>
            )}
          </Section>
        )}
        {can("fleet.status") && !isForbidden(fleet.error) && (
          <Section title="Health">
            {fleet.data ? (
              <Health fleet={fleet.data} />
            ) : (
              <p class="pad muted">{fleet.error ? fleet.error.message : "Asking the fleet …"}</p>
            )}
          </Section>
        )}
      </div>
      {!hasSessions && (
        <Empty title={`No sessions in the ${range.text}`}>
          Start one in the <a href={links.start()}>playground</a>.
        </Empty>
      )}
    </div>
  );
}

/** Share of a budget from which a person should know. */
const BUDGET_SHARE_HIGH = 0.9;

/** What a person should look at, and where. */
function Attention({
  gates,
  budgets,
  fleet,
}: {
  gates: PendingGate[];
  budgets: Budget[];
  fleet: FleetStatus | undefined;
}) {
  const spent = budgets.filter((budget) => shareOf(budget) >= BUDGET_SHARE_HIGH);
  const letters = fleet?.dead_letters ?? 0;
  const isQuiet = gates.length === 0 && spent.length === 0 && letters === 0;
  return (
    <Section title="Needs a person now" label="Needs a person now">
      {isQuiet ? (
        <p class="pad muted">Nothing. Nobody waits for you.</p>
      ) : (
        <ul class="rows">
          {gates.slice(0, LISTED_MAX).map((gate) => (
            <li>
              <Badge tone="wait">{gateVerb(gate.kind)}</Badge>
              <a class="grow" href={links.inbox()}>
                {gate.tool ?? ""}{" "}
                <span class="muted">
                  <Visible text={gate.title.slice(0, 100)} isProse />
                </span>
              </a>
              <span class="muted">
                {gate.agent}, <Age at={gate.expires} /> left
              </span>
            </li>
          ))}
          {gates.length > LISTED_MAX && (
            <li>
              <a class="grow" href={links.inbox()}>
                {gates.length - LISTED_MAX} more
              </a>
            </li>
          )}
          {spent.map((budget) => (
            <li>
              <Badge tone="bad">budget</Badge>
              <span class="grow">
                {Math.round(shareOf(budget) * 100)} % of <code>{budget.budget}</code> are spent
              </span>
              <span class="muted">
                ends in <Age at={budget.ends} />
              </span>
            </li>
          ))}
          {letters > 0 && (
            <li>
              <Badge tone="bad">dead letters</Badge>
              <a class="grow" href={links.view("dead")}>
                {plural(letters, "message")} that were given up
              </a>
            </li>
          )}
        </ul>
      )}
    </Section>
  );
}

function shareOf(budget: Budget): number {
  const usd = budget.usd_max ?? 0;
  const tokens = budget.tokens_max ?? 0;
  return Math.max(usd > 0 ? budget.usd_spent / usd : 0, tokens > 0 ? budget.tokens_spent / tokens : 0);
}

function Tile({ name, value, href, tone }: { name: string; value: string; href?: string; tone?: "wait" | "bad" }) {
  const content = (
    <>
      <div class="tile-name">{name}</div>
      <div class={`tile-value ${tone ? `badge-${tone}` : ""}`}>{value}</div>
    </>
  );
  return href === undefined ? (
    <div class="tile card">{content}</div>
  ) : (
    <a class="tile card" href={href}>
      {content}
    </a>
  );
}

function SessionsCard({ title, sessions, none }: { title: string; sessions: SessionSummary[]; none: string }) {
  return (
    <Section title={title}>
      {sessions.length === 0 ? (
        <p class="pad muted">{none}</p>
      ) : (
        <ul class="rows">
          {sessions.slice(0, 6).map((session) => {
            const phase = phaseOf(session);
            return (
              <li>
                <Badge tone={phase.tone}>{phase.text}</Badge>
                <a class="grow" href={links.session(session.session_id)}>
                  <Visible text={session.title.slice(0, 100) || "(no message yet)"} isProse />
                </a>
                <span class="muted">
                  <Age at={session.updated} />
                </span>
              </li>
            );
          })}
        </ul>
      )}
    </Section>
  );
}

type TimeRange = (typeof RANGES)[number];

function totalOf(list: SessionPage | undefined): string {
  return list === undefined ? "–" : (list.total ?? list.sessions.length).toLocaleString("en");
}

/** When an interval began: the day where it is long, the time where it is short. */
function intervalName(start: string, range: TimeRange): string {
  const date = new Date(start);
  const day = date.toLocaleDateString(undefined, { weekday: "short", day: "numeric", month: "short" });
  const time = date.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });
  return range.interval >= 86_400 ? day : range.interval > 3600 ? `${day}, ${time}` : time;
}

/** Says which sessions are in no sum. */
function withoutOld(uncounted: number): string {
  return uncounted === 0 ? "" : ` ${plural(uncounted, "session")} of an older version of ailoop are left out.`;
}

function Spend({ intervals, range }: { intervals: IntervalStats[]; range: TimeRange }) {
  const total = intervals.reduce((sum, one) => sum + one.spent_own.cost_usd, 0);
  const most = Math.max(0, ...intervals.map((one) => one.spent_own.cost_usd));
  const uncounted = intervals.reduce((sum, one) => sum + one.uncounted, 0);
  return (
    <>
      <TimeBars
        label="Spend"
        from={`${range.id} ago`}
        summary={`${formatMoney(total)}, at most ${formatMoney(most)} in ${range.each}`}
        bars={intervals.map((one) => ({
          start: Date.parse(one.start),
          value: one.spent_own.cost_usd,
          text: `${intervalName(one.start, range)}: ${formatMoney(one.spent_own.cost_usd)}`,
        }))}
      />
      <p class="hint">What a session cost is counted when it began, and delegated work once.{withoutOld(uncounted)}</p>
    </>
  );
}

function Started({ intervals, range }: { intervals: IntervalStats[]; range: TimeRange }) {
  const failed = intervals.reduce((sum, one) => sum + one.failed, 0);
  const count = intervals.reduce((sum, one) => sum + one.sessions, 0);
  const inWords = (sessions: number, bad: number) => plural(sessions, "session") + (bad > 0 ? `, ${bad} failed` : "");
  return (
    <>
      <TimeBars
        label="Sessions"
        from={`${range.id} ago`}
        summary={inWords(count, failed)}
        bars={intervals.map((one) => ({
          start: Date.parse(one.start),
          value: one.sessions,
          bad: one.failed,
          text: `${intervalName(one.start, range)}: ${inWords(one.sessions, one.failed)}`,
        }))}
      />
      <p class="hint">Red: the last turn failed or ended at a limit.</p>
    </>
  );
}

function sumByName(all: Record<string, number>[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const [name, count] of all.flatMap((one) => Object.entries(one)))
    counts.set(name, (counts.get(name) ?? 0) + count);
  return counts;
}

function DecisionShares({ stats }: { stats: AgentStats[] }) {
  const counts = sumByName(stats.map((line) => line.decisions));
  if (counts.size === 0) return <p class="muted">No turn has ended yet.</p>;
  return (
    <Shares
      noun="Decisions by source"
      parts={[...counts].map(([source, value]) => ({ name: <Source source={source} />, value }))}
    />
  );
}

function EndShares({ stats }: { stats: AgentStats[] }) {
  const counts = sumByName(stats.map((line) => line.stop_reasons));
  if (counts.size === 0) return null;
  return (
    <Shares
      noun="Turns by how they ended"
      parts={[...counts].map(([reason, value]) => ({
        name: <span class={isFailure(reason) ? "bad-text" : ""}>{words(reason)}</span>,
        value,
        isBad: isFailure(reason),
      }))}
    />
  );
}

/** Percentiles of a sample: the newest sessions, of whatever time. */
function Latency() {
  const found = useSample();
  if (found === null) return <p class="muted">Reading the newest traces …</p>;
  if (found.calls.length === 0) return <p class="muted">No call has ended yet.</p>;
  const rows = (["model", "tool"] as const).flatMap((kind) =>
    [...byName(found.calls, kind)]
      .map(([name, calls]) => ({ kind, name, ...percentilesOf(calls) }))
      .sort((a, b) => b.count - a.count)
      .slice(0, LISTED_MAX),
  );
  const most = Math.max(...rows.map((row) => row.p95));
  return (
    <>
      <Table
        class="latency"
        rows={rows}
        columns={[
          {
            head: "Model or tool",
            cell: (row) => (
              <>
                <i class={`swatch bar-${row.kind}`} aria-hidden="true" /> <code>{row.name}</code>
                {row.failed > 0 && <span class="bad-text"> {row.failed} failed</span>}
              </>
            ),
          },
          { head: "Calls", isNumber: true, cell: (row) => row.count },
          { head: "Range", isHeadHidden: true, cell: (row) => <Range p50={row.p50} p95={row.p95} most={most} /> },
          ...percentileColumns<Percentiles>((row) => row),
        ]}
      />
      <p class="hint">
        {plural(found.calls.length, "call")} of the newest {plural(found.sessions, "session")}, with the time in queues,{" "}
        <Age at={new Date(found.at).toISOString()} /> ago.{" "}
        <button type="button" class="link" onClick={() => void measure(true).catch(() => {})}>
          measure again
        </button>
      </p>
    </>
  );
}

function StatsTable({ stats }: { stats: AgentStats[] }) {
  return (
    <Table
      rows={stats}
      columns={[
        { head: "Agent", cell: ({ agent }) => <a href={links.sessions({ agent })}>{agent}</a> },
        { head: "Model", cell: (line) => line.model },
        { head: "Turns", isNumber: true, cell: (line) => line.turns },
        {
          head: "Completed",
          isNumber: true,
          cellTitle: (line) =>
            Object.entries(line.stop_reasons)
              .map(([reason, count]) => `${words(reason)} ${count}`)
              .join(", "),
          cell: (line) => (line.completed_rate === null ? "" : `${Math.round(line.completed_rate * 100)} %`),
        },
        { head: "Tools", isNumber: true, cell: (line) => formatCount(line.tool_calls) },
        { head: "Cost", isNumber: true, cell: (line) => formatMoney(line.spent_own.cost_usd) },
      ]}
    />
  );
}

function BudgetLine({ budget }: { budget: Budget }) {
  const usd = budget.usd_max ?? 0;
  const tokens = budget.tokens_max ?? 0;
  const share = shareOf(budget);
  return (
    <div class="card-body">
      <div class="card-head">
        <strong>{budget.budget}</strong>
        <span class="muted">
          {usd > 0 && `${formatMoney(budget.usd_spent)} of ${formatMoney(usd)}`}{" "}
          {tokens > 0 && `${formatCount(budget.tokens_spent)} of ${formatCount(tokens)} tokens`}
        </span>
        <span class="muted">
          ends in <Age at={budget.ends} />
        </span>
      </div>
      <Meter
        value={Math.round(share * 100)}
        max={100}
        label={`Budget ${budget.budget}`}
        tone={share > 0.9 ? "bad" : share > 0.7 ? "wait" : "calm"}
      />
    </div>
  );
}

function Health({ fleet }: { fleet: FleetStatus }) {
  const warnings = fleet.replicas.flatMap((replica) =>
    [...replica.warnings, ...replica.waiting_for.map((part) => `waits for ${part}`)].map(
      (text) => `${replica.replica}: ${text}`,
    ),
  );
  const failing = fleet.replicas.flatMap((replica) => replica.models ?? []);
  const bytes = fleet.storage.reduce((sum, store) => sum + store.bytes, 0);
  const waiting = fleet.queues.reduce((sum, queue) => sum + queue.waiting, 0);
  return (
    <ul class="rows">
      <li>
        <Badge tone={warnings.length > 0 ? "wait" : "good"}>
          {warnings.length > 0 ? plural(warnings.length, "warning") : "ready"}
        </Badge>
        <a class="grow" href={links.view("fleet")}>
          {plural(fleet.replicas.length, "process").replace("processs", "processes")}
        </a>
      </li>
      {warnings.slice(0, 5).map((text) => (
        <li>
          <span class="badge-wait">
            <Visible text={text} isProse />
          </span>
        </li>
      ))}
      {failing.slice(0, 5).map((model) => (
        <li>
          <Badge tone={model.open_until === undefined ? "wait" : "bad"}>
            {model.open_until === undefined ? "fails" : "held back"}
          </Badge>
          <a class="grow" href={links.view("models")}>
            {model.provider} / {model.model}
          </a>
          <span class="muted">{words(model.last_failure)}</span>
        </li>
      ))}
      <li>
        <span class="grow">Items that wait for a worker</span>
        <span>{formatCount(waiting)}</span>
      </li>
      <li>
        <a class="grow" href={links.view("dead")}>
          Dead letters
        </a>
        <span class={fleet.dead_letters > 0 ? "badge-bad" : ""}>{fleet.dead_letters}</span>
      </li>
      <li>
        <span class="grow">Stored</span>
        <span>{formatBytes(bytes)}</span>
      </li>
    </ul>
  );
}
