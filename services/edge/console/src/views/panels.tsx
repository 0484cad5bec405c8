// The smaller panels beside a conversation: plan, decisions, costs and details.

import { useMemo } from "preact/hooks";
import { isMore, type ReplyRow, type SessionView, tokensOf } from "../core/fold.ts";
import { formatCount, formatDuration, formatMoney, formatTime, plural, shellQuote, words } from "../core/format.ts";
import { usePoll } from "../core/poll.ts";
import { links } from "../core/route.ts";
import type { SessionDescription, Spent } from "../core/types.ts";
import { Icon } from "../ui/icons.tsx";
import { VirtualList } from "../ui/list.tsx";
import { Age, Badge, Empty, gateVerb, Meter, Problem } from "../ui/parts.tsx";
import { Figures, Pair, Table } from "../ui/table.tsx";
import { CopyButton, DataBlock, Visible } from "../ui/text.tsx";
import { Source } from "./conversation.tsx";

export function PlanPanel({ view }: { view: SessionView; rev: number }) {
  const { plan } = view;
  if (plan === null) return <Empty title="No plan">The model has not said which steps there are.</Empty>;
  const total = plan.total ?? plan.done.length + plan.left.length;
  return (
    <div class="pad">
      {plan.percent !== null && (
        <div class="plan-head">
          <Meter value={plan.percent} max={100} label="Progress" tone="live" />
          <span>{plan.percent} %</span>
        </div>
      )}
      <p class="muted">
        {plan.current === null ? "" : `Step ${plan.current}`}
        {total > 0 && ` of ${total}`}, as the model says
      </p>
      <ol class="plan">
        {plan.done.map((step) => (
          <li class="plan-done">
            <Icon name="check" />
            <span>
              <Visible text={step} isProse />
            </span>
          </li>
        ))}
        {plan.left.map((step, index) => (
          <li class={index === 0 && view.phase === "running" ? "plan-now" : ""}>
            <span class="plan-dot" aria-hidden="true" />
            <span>
              <Visible text={step} isProse />
            </span>
          </li>
        ))}
      </ol>
    </div>
  );
}

export function Decisions({ view, onSelect }: { view: SessionView; onSelect: (key: string) => void }) {
  const rows = [...view.decisions.values()];
  if (rows.length === 0)
    return <Empty title="No decision yet">After each reply, the loop decides whether to take another step.</Empty>;
  return (
    <VirtualList
      class="fill"
      label="Decisions"
      count={rows.length}
      estimate={64}
      keyOf={(index) => rows[index]?.key ?? ""}
      render={(index) => {
        const row = rows[index];
        if (row === undefined) return null;
        return (
          <button type="button" class="decision" onClick={() => onSelect(`r${row.turn}-${row.iteration}`)}>
            <Icon name={row.continues ? "down" : "check"} />
            <span class="decision-text">
              <strong>
                Turn {row.turn}, step {row.iteration} of {row.max}: {row.continues ? "goes on" : "the turn ends"}
              </strong>
              <span>
                <Source source={row.source} />
                {row.status !== "" && row.status !== "UNKNOWN" && <> · signal {row.status}</>}
                {row.confidence !== undefined && ` · confidence ${row.confidence}`}
              </span>
              {row.reason && (
                <span>
                  <Visible text={row.reason} isProse />
                </span>
              )}
              {row.nudge && (
                <span>
                  The model is told: “<Visible text={row.nudge} isProse />”
                </span>
              )}
              {row.tools.length > 0 && <span class="muted">{row.tools.join(", ")}</span>}
            </span>
          </button>
        );
      }}
    />
  );
}

type Counted = ReplyRow & { spent: Spent };

export function Costs({ view, onSelect }: { view: SessionView; onSelect: (key: string) => void }) {
  const replies = view.rows.filter((row): row is Counted => row.kind === "reply" && row.spent !== undefined);
  const children = [...view.calls.values()].filter((call) => call.usedUsd !== undefined);
  const { usage, cost_usd } = view.spent;
  const most = Math.max(1, ...replies.map((row) => tokensOf(row.spent)));
  const own = view.own !== null && isMore(view.spent, view.own) ? view.own : null;
  const figures: [string, string][] = [
    ["Cost", formatMoney(cost_usd)],
    ...(own === null ? [] : [["Without delegated work", formatMoney(own.cost_usd)] as [string, string]]),
    ["Read", formatCount(usage.input)],
    ["of it cached", formatCount(usage.cached)],
    ["Written", formatCount(usage.output)],
    ["of it thinking", formatCount(usage.reasoning)],
  ];
  return (
    <div class="pad scroll">
      <Figures figures={figures} />
      <Table
        caption="Tokens and cost by step"
        rows={replies.slice(-300)}
        columns={[
          {
            head: "Step",
            cell: (row) => (
              <button type="button" class="link" onClick={() => onSelect(row.key)}>
                {row.turn}.{row.step}
              </button>
            ),
          },
          {
            head: "Tokens",
            cellClass: () => "bar-cell",
            cell: (row) => <Meter value={tokensOf(row.spent)} max={most} label={`Tokens of step ${row.step}`} />,
          },
          { head: "Read", isNumber: true, cell: (row) => formatCount(row.spent.usage.input) },
          { head: "Written", isNumber: true, cell: (row) => formatCount(row.spent.usage.output) },
          { head: "Cost", isNumber: true, cell: (row) => formatMoney(row.spent.cost_usd) },
        ]}
      >
        {children.map((call) => (
          <tr>
            <td colSpan={4}>child session of {call.call}</td>
            <td class="number">{formatMoney(call.usedUsd ?? 0)}</td>
          </tr>
        ))}
      </Table>
      {replies.length > 300 && <p class="hint">The last 300 steps of {replies.length}.</p>}
    </div>
  );
}

export function Details({ id, view }: { id: string; view: SessionView; rev: number }) {
  const { data, error } = usePoll<SessionDescription>(
    "session.describe",
    { session_id: id },
    view.phase === "ended" ? null : 3000,
  );
  const { traceId } = view;
  const commands: [string, string][] = [
    ["Follow it", `ailoop watch ${shellQuote(id)}`],
    ["Why it waits", `ailoop describe ${shellQuote(id)}`],
    ["Fork it", `ailoop fork ${shellQuote(id)} "…"`],
    ["Read it over HTTP", `curl ${location.origin}/v1/sessions/${encodeURIComponent(id)}/transcript`],
  ];
  const settings = useMemo(() => JSON.stringify(view.settings), [view.settings]);
  return (
    <div class="pad scroll details">
      <h2>Now</h2>
      {error && <Problem error={error} />}
      {data && <Waits data={data} />}
      <h2>Session</h2>
      <dl class="pairs">
        <Pair name="Id">
          <code>{id}</code> <CopyButton text={id} />
        </Pair>
        <Pair name="Trace">
          <code>{traceId}</code> <CopyButton text={traceId} />
        </Pair>
        <Pair name="Started">{formatTime(view.started)}</Pair>
        <Pair name="Events">{view.seq}</Pair>
        <Pair name="Takes more messages">{view.isInteractive ? "yes" : "no: it ends with its turn"}</Pair>
        {view.parent !== "" && (
          <Pair name="Started by">
            <a href={links.session(view.parent)}>{view.parent}</a>
          </Pair>
        )}
      </dl>
      <h2>As a command</h2>
      <dl class="pairs">
        {commands.map(([name, text]) => (
          <Pair name={name}>
            <code>{text}</code> <CopyButton text={text} />
          </Pair>
        ))}
      </dl>
      <h2>System prompt</h2>
      {view.prompt === "" ? <p class="muted">None.</p> : <DataBlock source={view.prompt} label="The composed prompt" />}
      <h2>Settings</h2>
      <DataBlock source={settings} label="As the session was started and configured" />
      <h2>Events as rows</h2>
      <p>
        <CopyButton text={() => JSON.stringify(view.rows, null, 2)} label="copy the folded session as JSON" />
      </p>
    </div>
  );
}

function Waits({ data }: { data: SessionDescription }) {
  if (data.phase === "ended")
    return <p>The session has ended{data.stop_reason ? `: ${words(data.stop_reason)}` : ""}.</p>;
  return (
    <>
      {data.findings.map((finding) => (
        <div class="problem problem-wait">
          <Icon name="warning" />
          <div>
            <strong>{finding.what}</strong> {finding.advice}
          </div>
        </div>
      ))}
      {data.waits.length === 0 && <p>An orchestrator has the next step to take.</p>}
      <ul class="waits">
        {data.waits.map((wait) => (
          <li>
            <Badge tone={wait.holder ? "live" : "wait"}>
              {wait.gate_kind === undefined ? words(wait.kind) : gateVerb(wait.gate_kind)}
            </Badge>{" "}
            {[
              wait.tool ?? wait.model,
              (wait.call ?? wait.gate) && `call ${wait.call ?? wait.gate}`,
              (wait.attempt ?? 1) > 1 && `attempt ${wait.attempt}`,
              wait.count !== undefined && plural(wait.count, "call"),
            ]
              .filter(Boolean)
              .join(", ")}
            {wait.since && (
              <>
                {" "}
                for <Age at={wait.since} />
              </>
            )}
            {wait.holder ? (
              <div class="muted">
                run by {wait.holder.replica} for {formatDuration(wait.holder.held_ms)}
                {wait.holder.delivery > 1 && `, delivery ${wait.holder.delivery}`}
                {wait.holder.note && `: ${wait.holder.note}`}
              </div>
            ) : (
              ["model_call", "tool_call"].includes(wait.kind) && <div class="muted">in its queue, or just taken</div>
            )}
            {wait.child && (
              <div>
                <a href={links.session(wait.child)}>the session that performs it</a>
              </div>
            )}
          </li>
        ))}
      </ul>
      {data.waiting_inputs > 0 && <p>{plural(data.waiting_inputs, "input")} not handled yet.</p>}
      {data.errors.length > 0 && (
        <>
          <h3>Last errors</h3>
          <ul>
            {data.errors.map((error) => (
              <li>
                <code>{error.code}</code> <Visible text={error.message} isProse /> (<Age at={error.time} /> ago)
              </li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}
