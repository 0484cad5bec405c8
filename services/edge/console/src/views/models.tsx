// Models, as the fleet knows them now, what they were used for, and how long their calls took.

import { useMemo } from "preact/hooks";
import { can } from "../core/caller.ts";
import { formatCount, formatMoney, formatTime, plural, words } from "../core/format.ts";
import { usePoll } from "../core/poll.ts";
import { links } from "../core/route.ts";
import { byName, type Percentiles, percentilesOf, useSample } from "../core/sample.ts";
import type { AgentStats, FleetStatus, Model, ModelHealth, ModelList, Replica, StatsList } from "../core/types.ts";
import { Badge, PageHead, Problem } from "../ui/parts.tsx";
import { type Column, percentileColumns, Table } from "../ui/table.tsx";

function failingOf(model: Model, replicas: Replica[]): ModelHealth[] {
  return replicas.flatMap((replica) =>
    (replica.models ?? []).filter((other) => other.provider === model.provider && other.model === model.upstream),
  );
}

/** What gateways say of a model: nothing is good, and each gateway sees its own failures. */
function Health({ failing }: { failing: ModelHealth[] }) {
  const worst = failing.reduce<ModelHealth | undefined>(
    (a, b) => (a === undefined || (b.open_until ?? "") > (a.open_until ?? "") || b.failures > a.failures ? b : a),
    undefined,
  );
  if (worst === undefined) return <Badge tone="good">ready</Badge>;
  const what = `${plural(worst.failures, "failure")} in a row, the last one ${words(worst.last_failure)}`;
  return worst.open_until === undefined ? (
    <Badge tone="wait" title={what}>
      {plural(worst.failures, "failure")}
    </Badge>
  ) : (
    <Badge tone="bad" title={`${what}; no request before ${formatTime(worst.open_until)}`}>
      held back
    </Badge>
  );
}

function limitsOf(model: Model): string[] {
  const parts = [
    model.requests_per_minute === undefined ? "" : plural(model.requests_per_minute, "request"),
    model.tokens_per_minute === undefined ? "" : `${formatCount(model.tokens_per_minute)} tokens`,
  ];
  const found = parts.filter(Boolean);
  return found.length > 0 ? found : ["none"];
}

function countOrNone(count: number | null): string {
  return count === null ? "–" : formatCount(count);
}

interface Row {
  model: Model;
  used: AgentStats[];
  /** Of its calls in the sample; null if there are none. */
  figures: Percentiles | null;
}

export function ModelsView() {
  const { data, error } = usePoll<ModelList>("models.list", {}, 15_000);
  const stats = usePoll<StatsList>("session.stats", {}, 15_000).data?.stats ?? [];
  const fleet = usePoll<FleetStatus>("fleet.status", can("fleet.status") ? {} : null, 10_000);
  const found = useSample();
  const measured = useMemo(() => byName(found?.calls ?? [], "model"), [found]);
  const rows = (data?.models ?? []).map((model): Row => {
    const calls = measured.get(model.id) ?? [];
    return {
      model,
      used: stats.filter((line) => line.model === model.id),
      figures: calls.length > 0 ? percentilesOf(calls) : null,
    };
  });
  const health: Column<Row> = {
    head: "Health",
    cell: ({ model }) => <Health failing={failingOf(model, fleet.data?.replicas ?? [])} />,
  };
  return (
    <div class="page">
      <PageHead title="Models" sub="Other models of a provider can be asked for as provider/name" />
      {error && <Problem error={error} />}
      <div class="card table-scroll">
        <Table
          rows={rows}
          columns={[
            {
              head: "Model",
              cell: ({ model }) => (
                <>
                  <code>{model.id}</code> {model.is_default && <span class="chip">default</span>}
                </>
              ),
            },
            { head: "Provider", cell: ({ model }) => model.provider },
            ...(fleet.data === undefined ? [] : [health]),
            {
              head: "Limit",
              title: "Of the provider, in a minute: for all of its models and all gateways",
              cell: ({ model }) => limitsOf(model).map((limit) => <div class="nowrap">{limit}</div>),
            },
            { head: "Context", isNumber: true, cell: ({ model }) => countOrNone(model.context_window) },
            { head: "Longest reply", isNumber: true, cell: ({ model }) => countOrNone(model.max_output) },
            {
              head: "Abilities",
              cell: ({ model }) => (
                <span class="chips">
                  {model.multi_tool && <span class="chip">{plural(model.max_parallel_tools, "tool")} at once</span>}
                  {model.reasoning && <span class="chip">reasoning</span>}
                  {model.structured_output && <span class="chip">structured output</span>}
                </span>
              ),
            },
            { head: "Turns", isNumber: true, cell: ({ used }) => used.reduce((sum, line) => sum + line.turns, 0) },
            {
              head: "Spent",
              isNumber: true,
              cell: ({ used }) => formatMoney(used.reduce((sum, line) => sum + line.spent_own.cost_usd, 0)),
            },
            {
              head: "Failed",
              isNumber: true,
              title: "In a sample of the newest sessions",
              cellClass: ({ figures }) => figures !== null && figures.failed > 0 && "bad-text",
              cell: ({ figures }) => (figures === null ? "–" : `${figures.failed} of ${figures.count}`),
            },
            ...percentileColumns<Row>(({ figures }) => figures),
            {
              head: "Start",
              isHeadHidden: true,
              cell: ({ model }) => can("session.start") && <a href={links.start({ model: model.id })}>try</a>,
            },
          ]}
        />
      </div>
      {found !== null && (
        <p class="hint">
          Failures and times are those of {plural(found.calls.length, "call")} of the newest{" "}
          {plural(found.sessions, "session")}, with the time in the queue.
        </p>
      )}
    </div>
  );
}
