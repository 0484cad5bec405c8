// Models, as the fleet knows them now, what they were used for, and how long their calls took.

import { useEffect, useMemo } from "preact/hooks";
import { can } from "../core/caller.ts";
import { connection } from "../core/connection.ts";
import { formatCount, formatDuration, formatMoney, formatTime, plural, words } from "../core/format.ts";
import { usePoll } from "../core/poll.ts";
import { links } from "../core/route.ts";
import { byName, measure, percentilesOf, sample } from "../core/sample.ts";
import type { AgentStats, FleetStatus, Model, ModelHealth, Replica } from "../core/types.ts";
import { Badge, PageHead, Problem } from "../ui/parts.tsx";

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

function useStats(): AgentStats[] {
  return usePoll<{ stats: AgentStats[] }>("session.stats", {}, 15_000).data?.stats ?? [];
}

export function ModelsView() {
  const { data, error } = usePoll<{ models: Model[] }>("models.list", {}, 15_000);
  const stats = useStats();
  const isOpen = connection.value.kind === "open";
  useEffect(() => {
    if (isOpen) void measure().catch(() => {});
  }, [isOpen]);
  const fleet = usePoll<FleetStatus>("fleet.status", can("fleet.status") ? {} : null, 10_000);
  const gateways = fleet.data?.replicas ?? [];
  const found = sample.value;
  const measured = useMemo(() => byName(found?.calls ?? [], "model"), [found]);
  const used = useMemo(
    () => new Map((data?.models ?? []).map((model) => [model.id, stats.filter((line) => line.model === model.id)])),
    [data, stats],
  );
  return (
    <div class="page">
      <PageHead title="Models" sub="Other models of a provider can be asked for as provider/name" />
      {error && <Problem error={error} />}
      <div class="card table-scroll">
        <table class="plain">
          <thead>
            <tr>
              <th scope="col">Model</th>
              <th scope="col">Provider</th>
              {fleet.data && <th scope="col">Health</th>}
              <th scope="col" title="Of the provider, in a minute: for all of its models and all gateways">
                Limit
              </th>
              <th scope="col" class="number">
                Context
              </th>
              <th scope="col" class="number">
                Longest reply
              </th>
              <th scope="col">Abilities</th>
              <th scope="col" class="number">
                Turns
              </th>
              <th scope="col" class="number">
                Spent
              </th>
              <th scope="col" class="number" title="In a sample of the newest sessions">
                Failed
              </th>
              <th scope="col" class="number" title="Half of the calls took at most this long">
                50 %
              </th>
              <th scope="col" class="number" title="95 of 100 calls took at most this long">
                95 %
              </th>
              <th scope="col">
                <span class="sr-only">Start</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {data?.models.map((model) => {
              const lines = used.get(model.id) ?? [];
              const calls = measured.get(model.id) ?? [];
              const figures = calls.length > 0 ? percentilesOf(calls) : null;
              return (
                <tr>
                  <td>
                    <code>{model.id}</code> {model.is_default && <span class="chip">default</span>}
                  </td>
                  <td>{model.provider}</td>
                  {fleet.data && (
                    <td>
                      <Health failing={failingOf(model, gateways)} />
                    </td>
                  )}
                  <td>
                    {limitsOf(model).map((limit) => (
                      <div class="nowrap">{limit}</div>
                    ))}
                  </td>
                  <td class="number">{model.context_window === null ? "–" : formatCount(model.context_window)}</td>
                  <td class="number">{model.max_output === null ? "–" : formatCount(model.max_output)}</td>
                  <td>
                    <span class="chips">
                      {model.multi_tool && <span class="chip">{plural(model.max_parallel_tools, "tool")} at once</span>}
                      {model.reasoning && <span class="chip">reasoning</span>}
                      {model.structured_output && <span class="chip">structured output</span>}
                    </span>
                  </td>
                  <td class="number">{lines.reduce((sum, line) => sum + line.turns, 0)}</td>
                  <td class="number">{formatMoney(lines.reduce((sum, line) => sum + line.spent_own.cost_usd, 0))}</td>
                  <td class={figures !== null && figures.failed > 0 ? "number bad-text" : "number"}>
                    {figures === null ? "–" : `${figures.failed} of ${figures.count}`}
                  </td>
                  <td class="number">{figures === null ? "–" : formatDuration(figures.p50)}</td>
                  <td class="number">{figures === null ? "–" : formatDuration(figures.p95)}</td>
                  <td>{can("session.start") && <a href={links.start({ model: model.id })}>try</a>}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
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
