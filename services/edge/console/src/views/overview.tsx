// What runs, what waits for whom, what failed, and what it costs.

import { useMemo } from "preact/hooks";
import { isForbidden } from "../core/connection.ts";
import { formatBytes, formatCount, formatMoney, plural, words } from "../core/format.ts";
import { usePoll } from "../core/poll.ts";
import { links } from "../core/route.ts";
import type { Budget, FleetStatus, OfSession, OpenGate, SessionSummary, Stats } from "../core/types.ts";
import { Age, Badge, Empty, gateVerb, isFailure, Meter, PageHead, phaseOf, Problem } from "../ui/parts.tsx";
import { Visible } from "../ui/text.tsx";

const POLL_MS = 4000;
const DAY_MS = 86_400_000;
const HOURS = 24;

export function OverviewView() {
  const since = useMemo(() => new Date(Math.floor((Date.now() - DAY_MS) / 60_000) * 60_000).toISOString(), []);
  const recent = usePoll<{ sessions: SessionSummary[] }>("session.list", { since, limit: 1000 }, POLL_MS);
  const gates = usePoll<{ gates: (OpenGate & OfSession)[] }>("gates.list", { limit: 100 }, POLL_MS);
  const stats = usePoll<{ stats: Stats[] }>("session.stats", { since }, 10_000);
  const budgets = usePoll<{ budgets: Budget[] }>("budgets.list", {}, 10_000);
  const fleet = usePoll<FleetStatus>("fleet.status", {}, 10_000);
  const sessions = recent.data?.sessions ?? [];
  const running = sessions.filter(
    (session) => session.phase === "running" && !session.gates?.length && !session.client_calls?.length,
  );
  const failed = sessions.filter((session) => isFailure(session.stop_reason ?? ""));
  const spent = (stats.data?.stats ?? []).reduce((sum, line) => sum + line.spent.cost_usd, 0);
  const tokens = (stats.data?.stats ?? []).reduce(
    (sum, line) => sum + line.spent.usage.input + line.spent.usage.output,
    0,
  );
  const open = gates.data?.gates ?? [];
  return (
    <div class="page">
      <PageHead title="Overview" sub="The last 24 hours">
        <a class="button button-primary" href={links.start()}>
          New session
        </a>
      </PageHead>
      {recent.error && <Problem error={recent.error} />}
      <div class="tiles">
        <Tile name="Running" value={String(running.length)} href={links.sessions({ phase: "running" })} />
        <Tile
          name="Wait for a person"
          value={String(open.length)}
          href={links.inbox()}
          tone={open.length > 0 ? "wait" : undefined}
        />
        <Tile
          name="Failed"
          value={String(failed.length)}
          href={links.sessions({ result: "failed", since: "24h" })}
          tone={failed.length > 0 ? "bad" : undefined}
        />
        <Tile
          name="Sessions"
          value={sessions.length >= 1000 ? "1,000+" : String(sessions.length)}
          href={links.sessions({ since: "24h" })}
        />
        <Tile name="Spent" value={formatMoney(spent)} />
        <Tile name="Tokens" value={formatCount(tokens)} />
      </div>
      <div class="columns">
        <section class="section">
          <h2>Needs a person now</h2>
          <div class="card">
            {open.length === 0 ? (
              <p class="pad muted">Nobody waits for you.</p>
            ) : (
              <ul class="rows">
                {open.slice(0, 8).map((gate) => (
                  <li>
                    <Badge tone="wait">{gateVerb(gate.kind)}</Badge>
                    <a class="grow" href={links.inbox()}>
                      {gate.tool ?? ""}{" "}
                      <span class="muted">
                        <Visible text={gate.title.slice(0, 100)} isProse />
                      </span>
                    </a>
                    <span class="muted">{gate.agent}</span>
                  </li>
                ))}
              </ul>
            )}
          </div>
        </section>
        <SessionsCard title="Running" sessions={running} none="Nothing runs." />
        <SessionsCard title="Failed last" sessions={failed} none="No turn failed." />
        <section class="section">
          <h2>Sessions by hour</h2>
          <div class="card pad">
            <HourChart sessions={sessions} />
          </div>
        </section>
        <section class="section">
          <h2>Agents and models</h2>
          <div class="card table-scroll">
            {stats.data && stats.data.stats.length > 0 ? (
              <StatsTable stats={stats.data.stats} />
            ) : (
              <p class="pad muted">No turns yet.</p>
            )}
          </div>
        </section>
        <section class="section">
          <h2>Budgets</h2>
          <div class="card">
            {budgets.data?.budgets.length ? (
              budgets.data.budgets.map((budget) => <BudgetLine budget={budget} />)
            ) : (
              <p class="pad muted">{budgets.error ? "They cannot be read now." : "No budget is configured."}</p>
            )}
          </div>
        </section>
        {!isForbidden(fleet.error) && (
          <section class="section">
            <h2>Health</h2>
            <div class="card">
              {fleet.data ? (
                <Health fleet={fleet.data} />
              ) : (
                <p class="pad muted">{fleet.error ? fleet.error.message : "Asking the fleet …"}</p>
              )}
            </div>
          </section>
        )}
      </div>
      {sessions.length === 0 && !recent.isLoading && (
        <Empty title="No sessions in the last 24 hours">
          Start one in the <a href={links.start()}>playground</a>.
        </Empty>
      )}
    </div>
  );
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
    <section class="section">
      <h2>{title}</h2>
      <div class="card">
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
      </div>
    </section>
  );
}

/** Bars by hour, with a table of the same numbers for those who do not see them. */
function HourChart({ sessions }: { sessions: SessionSummary[] }) {
  const hours = useMemo(() => {
    const now = Date.now();
    const found = Array.from({ length: HOURS }, () => ({ all: 0, failed: 0 }));
    for (const session of sessions) {
      const ago = Math.floor((now - Date.parse(session.started)) / 3_600_000);
      const hour = found[HOURS - 1 - ago];
      if (hour === undefined) continue;
      hour.all += 1;
      if (isFailure(session.stop_reason ?? "")) hour.failed += 1;
    }
    return found;
  }, [sessions]);
  const most = Math.max(1, ...hours.map((hour) => hour.all));
  const failed = hours.reduce((sum, hour) => sum + hour.failed, 0);
  return (
    <figure>
      <svg
        class="chart"
        viewBox="0 0 480 96"
        preserveAspectRatio="none"
        role="img"
        aria-label={`Sessions by hour: ${plural(sessions.length, "session")}, of which ${failed} failed, at most ${most} in an hour`}
      >
        {hours.map((hour, index) => {
          const height = (hour.all / most) * 90;
          const bad = (hour.failed / most) * 90;
          return (
            <>
              <rect x={index * 20 + 2} width="16" y={96 - Math.max(1, height)} height={Math.max(1, height)} />
              {bad > 0 && <rect class="chart-bad" x={index * 20 + 2} width="16" y={96 - bad} height={bad} />}
            </>
          );
        })}
      </svg>
      <figcaption class="chart-labels">
        <span>24 hours ago</span>
        <span>
          at most {most} in an hour{failed > 0 && `, ${failed} failed`}
        </span>
        <span>now</span>
      </figcaption>
    </figure>
  );
}

export function StatsTable({ stats }: { stats: Stats[] }) {
  return (
    <table class="plain">
      <thead>
        <tr>
          <th scope="col">Agent</th>
          <th scope="col">Model</th>
          <th scope="col" class="number">
            Turns
          </th>
          <th scope="col" class="number">
            Completed
          </th>
          <th scope="col" class="number">
            Tools
          </th>
          <th scope="col" class="number">
            Cost
          </th>
        </tr>
      </thead>
      <tbody>
        {stats.map((line) => (
          <tr>
            <td>
              <a href={links.sessions({ agent: line.agent })}>{line.agent}</a>
            </td>
            <td>{line.model}</td>
            <td class="number">{line.turns}</td>
            <td
              class="number"
              title={Object.entries(line.stop_reasons)
                .map(([reason, count]) => `${words(reason)} ${count}`)
                .join(", ")}
            >
              {line.completed_rate === null ? "" : `${Math.round(line.completed_rate * 100)} %`}
            </td>
            <td class="number">{formatCount(line.tool_calls)}</td>
            <td class="number">{formatMoney(line.spent.cost_usd)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function BudgetLine({ budget }: { budget: Budget }) {
  const usd = budget.usd_max ?? 0;
  const tokens = budget.tokens_max ?? 0;
  const share = Math.max(usd > 0 ? budget.usd_spent / usd : 0, tokens > 0 ? budget.tokens_spent / tokens : 0);
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
