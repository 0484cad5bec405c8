// Agents: the composed prompt with where its parts come from, the settings, and what follows a reply.

import { useMemo, useRef } from "preact/hooks";
import { can } from "../core/caller.ts";
import { formatBytes, formatCount, formatDuration, formatMoney, plural, words } from "../core/format.ts";
import { usePoll } from "../core/poll.ts";
import { type PromptPart, splitPrompt } from "../core/prompt.ts";
import { links, route, setQuery } from "../core/route.ts";
import type { Agent, AgentDescription, AgentList, AgentStats, ModelList, StatsList } from "../core/types.ts";
import { Icon } from "../ui/icons.tsx";
import { Empty, Problem, Tabs } from "../ui/parts.tsx";
import { Figures, Pair } from "../ui/table.tsx";
import { CopyButton, DataBlock, TextBlock, Visible } from "../ui/text.tsx";
import { ReplyTest } from "./reply_test.tsx";

/** Longer parts are drawn as they are scrolled. */
const DRAWN_MAX = 12_000;

export function AgentsView() {
  const { data, error } = usePoll<AgentList>("agents.list", {}, 15_000);
  const stats = usePoll<StatsList>("session.stats", {}, 15_000).data?.stats ?? [];
  const name = route.value.query.get("name");
  const agents = data?.agents ?? [];
  const current = agents.find((agent) => agent.id === name) ?? agents[0];
  return (
    <div class="split">
      <div class="pane">
        <div class="pad">
          <h1>Agents</h1>
          <p class="muted">{data && plural(agents.length, "agent")}</p>
        </div>
        {error && <Problem error={error} />}
        {agents.map((agent) => (
          <button
            type="button"
            class="pick"
            aria-current={agent === current}
            onClick={() => setQuery({ name: agent.id, model: undefined })}
          >
            {agent.name} {agent.is_default && <span class="chip">default</span>}
            <span class="pick-sub">
              {agent.id} · {agent.model ?? "the default model"}
            </span>
          </button>
        ))}
      </div>
      <div class="pane pad">
        {current ? (
          <AgentDetails key={current.id} agent={current} stats={stats.filter((line) => line.agent === current.id)} />
        ) : (
          data && <Empty title="No agent" />
        )}
      </div>
    </div>
  );
}

type Tab = "prompt" | "test" | "settings";

function AgentDetails({ agent, stats }: { agent: Agent; stats: AgentStats[] }) {
  const { query } = route.value;
  const model = query.get("model") ?? "";
  const tab = (query.get("tab") ?? "prompt") as Tab;
  const models = usePoll<ModelList>("models.list", {}, null);
  const params = { agent: agent.id, ...(model === "" ? {} : { model }) };
  const { data, error } = usePoll<AgentDescription>("agents.describe", params, 15_000);
  return (
    <article>
      <div class="card-head">
        <h2>{agent.name}</h2>
        <code>{agent.id}</code>
        {agent.aliases.map((alias) => (
          <span class="chip">{alias}</span>
        ))}
        {can("session.start") && <a href={links.start({ agent: agent.id })}>Start a session</a>}
        <a href={links.sessions({ agent: agent.id })}>Its sessions</a>
      </div>
      <Totals stats={stats} />
      {error && <Problem error={error} />}
      {data?.warnings.map((warning) => (
        <div class="problem problem-wait">
          <Icon name="warning" />
          <div>
            <Visible text={warning} isProse />
          </div>
        </div>
      ))}
      <Tabs<Tab>
        label="The agent"
        tabs={[
          { id: "prompt", text: "Prompt" },
          { id: "test", text: "Try a reply" },
          { id: "settings", text: "Settings" },
        ]}
        current={tab}
        onChange={(next) => setQuery({ tab: next === "prompt" ? undefined : next })}
      />
      <div role="tabpanel">
        {tab === "test" && <ReplyTest agent={agent.id} />}
        {tab === "settings" && data && <Settings data={data} />}
        {tab === "prompt" && (
          <>
            <div class="agent-bar">
              <label>
                Composed for{" "}
                <select
                  aria-label="Model"
                  value={model}
                  onChange={(event) => setQuery({ model: event.currentTarget.value })}
                >
                  <option value="">its model</option>
                  {models.data?.models.map((other) => (
                    <option value={other.id}>{other.id}</option>
                  ))}
                </select>
              </label>
              {data && <CopyButton text={data.prompt} label="copy the prompt" />}
            </div>
            {data && <Prompt data={data} />}
          </>
        )}
      </div>
    </article>
  );
}

/** The prompt, with a margin that names the file of each part. */
function Prompt({ data }: { data: AgentDescription }) {
  const parts = useMemo(() => splitPrompt(data.prompt, data.components), [data.fingerprint]);
  const sections = useRef<(HTMLElement | null)[]>([]);
  const total = Math.max(
    1,
    parts.reduce((sum, part) => sum + part.bytes, 0),
  );
  const show = (index: number) => {
    const section = sections.current[index];
    section?.scrollIntoView({ block: "start" });
    section?.focus({ preventScroll: true });
  };
  if (parts.length === 0) return <Empty title="The prompt is empty" />;
  return (
    <>
      <p class="muted">
        For <code>{data.model}</code>: {formatBytes(total)} of {plural(data.components.length, "file")}, fingerprint{" "}
        <code title={data.fingerprint}>{data.fingerprint.slice(0, 12)}</code>
      </p>
      <nav aria-label="Parts of the prompt">
        <ol class="prompt-list">
          {parts.map((part, index) =>
            part.name === undefined ? null : (
              <li>
                <button type="button" class="prompt-jump" onClick={() => show(index)}>
                  <code>{nameOf(part)}</code>
                  <span class="number">{formatBytes(part.bytes)}</span>
                  <span class="number muted">{Math.round((part.bytes / total) * 100)} %</span>
                </button>
              </li>
            ),
          )}
        </ol>
      </nav>
      <div class="prompt">
        {parts.map((part, index) => (
          <section
            class="prompt-part"
            aria-label={nameOf(part)}
            tabIndex={-1}
            ref={(element) => {
              sections.current[index] = element;
            }}
          >
            <header>
              <code title={part.sha256 && `SHA-256 ${part.sha256}`}>{nameOf(part)}</code>
              <span class="muted">{formatBytes(part.bytes)}</span>
            </header>
            {part.text.length > DRAWN_MAX ? (
              <TextBlock text={part.text} label={nameOf(part)} />
            ) : (
              <pre class="prompt-text">
                <Visible text={part.text} />
              </pre>
            )}
          </section>
        ))}
      </div>
    </>
  );
}

function nameOf(part: PromptPart): string {
  return part.name ?? "(between files)";
}

function Settings({ data }: { data: AgentDescription }) {
  const { continuation, tools, approvals } = data;
  const patterns: [string, string[]][] = [
    ["Go on", continuation.continuation_patterns],
    ["End the turn", continuation.termination_patterns],
  ];
  const limits = Object.entries(continuation.limits).map(([name, max]) => `${words(name)} ${max}`);
  return (
    <div class="details">
      <h2>Continuation</h2>
      <dl class="pairs">
        <Pair name="Goes on by itself">{yes(continuation.enabled)}</Pair>
        <Pair name="Needs a signal">{yes(continuation.require_explicit_signal)}</Pair>
        <Pair name="Reads the words">{yes(continuation.detect_intent)}</Pair>
        <Pair name="Steps of a turn">{continuation.max_iterations}</Pair>
        <Pair name="Time of a turn">{formatDuration(continuation.timeout * 1000)}</Pair>
        <Pair name="Limits">{limits.join(", ") || "none"}</Pair>
        <Pair name="Judge">{continuation.judge ?? "none"}</Pair>
      </dl>
      {patterns.map(([name, texts]) => (
        <>
          <h3>
            {name}: {plural(texts.length, "pattern")}
          </h3>
          <ul class="patterns">
            {texts.map((text) => (
              <li>
                <code>
                  <Visible text={text} />
                </code>
              </li>
            ))}
          </ul>
        </>
      ))}
      <h2>Tools</h2>
      <p>
        <span class="chips">
          {tools.allow.map((tool) => (
            <a class="chip" href={links.view("tools", { name: tool })}>
              {tool}
            </a>
          ))}
        </span>
      </p>
      {tools.deny.length > 0 && <p>Not: {tools.deny.join(", ")}</p>}
      <h2>Approvals</h2>
      {(approvals ?? []).length === 0 ? (
        <p class="muted">As each tool says.</p>
      ) : (
        <ul class="patterns">
          {approvals?.map((rule) => (
            <li>
              <code>{rule.tool}</code>: {words(rule.ask)}
              {Object.entries(rule.when ?? {}).map(([pointer, pattern]) => (
                <>
                  {" "}
                  if <code>{pointer}</code> matches <code>{pattern}</code>
                </>
              ))}
            </li>
          ))}
        </ul>
      )}
      <h2>As JSON</h2>
      <DataBlock
        source={JSON.stringify({ continuation, tools, approvals })}
        label="After all layers of the configuration"
      />
    </div>
  );
}

function yes(is: boolean): string {
  return is ? "yes" : "no";
}

function Totals({ stats }: { stats: AgentStats[] }) {
  const sum = (pick: (line: AgentStats) => number) => stats.reduce((total, line) => total + pick(line), 0);
  const turns = sum((line) => line.turns);
  const completed = sum((line) => line.stop_reasons.completed ?? 0);
  const figures: [string, string][] = [
    ["Sessions", formatCount(sum((line) => line.sessions))],
    ["Turns", formatCount(turns)],
    ["Completed", turns === 0 ? "–" : `${Math.round((completed / turns) * 100)} %`],
    ["Steps", formatCount(sum((line) => line.iterations))],
    ["Tool calls", formatCount(sum((line) => line.tool_calls))],
    ["Spent", formatMoney(sum((line) => line.spent_own.cost_usd))],
  ];
  return <Figures figures={figures} class="agent-figures" />;
}
