// Tools and models, as the fleet knows them now.

import { useMemo, useState } from "preact/hooks";
import { formatBytes, formatCount, formatDuration, formatMoney, plural } from "../core/format.ts";
import { usePoll } from "../core/poll.ts";
import { links, route, setQuery } from "../core/route.ts";
import type { Model, Stats, Tool } from "../core/types.ts";
import { Badge, Empty, PageHead, Problem } from "../ui/parts.tsx";
import { DataBlock, Visible } from "../ui/text.tsx";

const EFFECTS: Record<string, string> = {
  pure: "Changes nothing. A lost call runs again.",
  idempotent: "A lost call runs again under the same id, and takes effect once.",
  at_most_once: "A lost call never runs again; its outcome is unknown.",
  reconcilable: "A lost call never runs again; the tool is asked what became of it.",
};

export function ToolsView() {
  const { data, error } = usePoll<{ tools: Tool[] }>("tools.list", {}, 10_000);
  const [text, setText] = useState("");
  const tools =
    data?.tools.filter((tool) => `${tool.name} ${tool.description}`.toLowerCase().includes(text.toLowerCase())) ?? [];
  const name = route.value.query.get("name");
  const current = tools.find((tool) => tool.name === name) ?? tools[0];
  return (
    <div class="split">
      <div class="pane">
        <div class="pad">
          <h1>Tools</h1>
          <p class="muted">{data && plural(data.tools.length, "tool")}</p>
          <p>
            <input
              type="search"
              aria-label="Filter tools"
              placeholder="Filter"
              value={text}
              onInput={(event) => setText(event.currentTarget.value)}
            />
          </p>
        </div>
        {error && <Problem error={error} />}
        {tools.map((tool) => (
          <button
            type="button"
            class="pick"
            aria-current={tool === current}
            onClick={() => setQuery({ name: tool.name })}
          >
            <code>{tool.name}</code>
            {tool.approval !== "never" && (
              <>
                {" "}
                <Badge tone="wait">approval</Badge>
              </>
            )}
            <span class="pick-sub">
              <Visible text={tool.description} isProse />
            </span>
          </button>
        ))}
      </div>
      <div class="pane pad">{current ? <ToolDetails tool={current} /> : data && <Empty title="No tool" />}</div>
    </div>
  );
}

function ToolDetails({ tool }: { tool: Tool }) {
  const { properties, required } = (tool.parameters ?? {}) as {
    properties?: Record<string, { type?: unknown; description?: string; enum?: unknown[] }>;
    required?: string[];
  };
  const fields = Object.entries(properties ?? {});
  return (
    <article class="cards">
      <div>
        <h2>
          <code>{tool.name}</code>
        </h2>
        <p class="prewrap">
          <Visible text={tool.description} isProse />
        </p>
      </div>
      <dl class="pairs">
        <div>
          <dt>Effect</dt>
          <dd>
            <code>{tool.effect}</code> {EFFECTS[tool.effect]}
          </dd>
        </div>
        <div>
          <dt>Approval</dt>
          <dd>
            {tool.approval === "never"
              ? "Runs without asking, unless an agent's rules ask."
              : "A person is asked before each call."}
          </dd>
        </div>
        {tool.timeout_ms !== undefined && (
          <div>
            <dt>Timeout</dt>
            <dd>{formatDuration(tool.timeout_ms)}</dd>
          </div>
        )}
        {tool.max_output !== undefined && (
          <div>
            <dt>Longest result</dt>
            <dd>{formatBytes(tool.max_output)} reach the model</dd>
          </div>
        )}
        {tool.version && (
          <div>
            <dt>Version</dt>
            <dd>{tool.version}</dd>
          </div>
        )}
      </dl>
      {fields.length > 0 && (
        <div class="table-scroll">
          <table class="plain">
            <caption class="sr-only">Arguments</caption>
            <thead>
              <tr>
                <th scope="col">Argument</th>
                <th scope="col">Type</th>
                <th scope="col">What it is</th>
              </tr>
            </thead>
            <tbody>
              {fields.map(([field, schema]) => (
                <tr>
                  <td>
                    <code>{field}</code>
                    {required?.includes(field) && <span class="badge-wait"> required</span>}
                  </td>
                  <td>{schema.enum ? schema.enum.map(String).join(", ") : String(schema.type ?? "any")}</td>
                  <td>
                    <Visible text={schema.description ?? ""} isProse />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {tool.instructions && <DataBlock source={tool.instructions} label="What it adds to the prompt" />}
      <DataBlock source={JSON.stringify(tool.parameters)} label="Schema of its arguments" />
    </article>
  );
}

function useStats(): Stats[] {
  return usePoll<{ stats: Stats[] }>("session.stats", {}, 15_000).data?.stats ?? [];
}

export function ModelsView() {
  const { data, error } = usePoll<{ models: Model[] }>("models.list", {}, 15_000);
  const stats = useStats();
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
              <th scope="col">
                <span class="sr-only">Start</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {data?.models.map((model) => {
              const lines = used.get(model.id) ?? [];
              return (
                <tr>
                  <td>
                    <code>{model.id}</code> {model.is_default && <span class="chip">default</span>}
                  </td>
                  <td>{model.provider}</td>
                  <td class="number">{model.context_window === null ? "–" : formatCount(model.context_window)}</td>
                  <td class="number">{model.max_output === null ? "–" : formatCount(model.max_output)}</td>
                  <td>
                    <span class="chips">
                      {model.multi_tool && <span class="chip">{model.max_parallel_tools} parallel tools</span>}
                      {model.reasoning && <span class="chip">reasoning</span>}
                      {model.structured_output && <span class="chip">structured output</span>}
                    </span>
                  </td>
                  <td class="number">{lines.reduce((sum, line) => sum + line.turns, 0)}</td>
                  <td class="number">{formatMoney(lines.reduce((sum, line) => sum + line.spent.cost_usd, 0))}</td>
                  <td>
                    <a href={links.start({ model: model.id })}>try</a>
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </div>
  );
}
