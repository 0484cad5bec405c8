// Tools, as the fleet knows them now: what they take, which processes serve them, how their calls went, and a trial.

import { useMemo, useState } from "preact/hooks";
import { can } from "../core/caller.ts";
import { formatBytes, formatCount, formatDuration, plural } from "../core/format.ts";
import { usePoll } from "../core/poll.ts";
import { route, setQuery } from "../core/route.ts";
import { byName, percentilesOf, useSample } from "../core/sample.ts";
import type { FleetTool, FleetToolList, ToolReplica, ToolReplicaList } from "../core/types.ts";
import { Age, Badge, Empty, Problem, Tabs } from "../ui/parts.tsx";
import { Figures, Pair, Table } from "../ui/table.tsx";
import { DataBlock, Visible } from "../ui/text.tsx";
import { ToolTrial } from "./tool_trial.tsx";

/** The loop performs these itself: no process serves them. */
const OWN_TOOLS = new Set(["ask_user", "delegate"]);

const EFFECTS: Record<string, string> = {
  pure: "Changes nothing. A lost call runs again.",
  idempotent: "A lost call runs again under the same id, and takes effect once.",
  at_most_once: "A lost call never runs again; its outcome is unknown.",
  reconcilable: "A lost call never runs again; the tool is asked what became of it.",
};

export function ToolsView() {
  const { data, error } = usePoll<FleetToolList>("tools.list", {}, 10_000);
  const canAsk = can("tools.replicas");
  const replicas = usePoll<ToolReplicaList>("tools.replicas", canAsk ? {} : null, 10_000);
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
      <div class="pane pad">
        {current ? (
          <ToolDetails
            key={current.name}
            tool={current}
            replicas={replicas.data?.replicas.filter((replica) => replica.tool === current.name)}
          />
        ) : (
          data && <Empty title="No tool" />
        )}
      </div>
    </div>
  );
}

type Tab = "about" | "trial";

function ToolDetails({ tool, replicas }: { tool: FleetTool; replicas: ToolReplica[] | undefined }) {
  const tab = (route.value.query.get("tab") ?? "about") as Tab;
  return (
    <article>
      <h2>
        <code>{tool.name}</code>
      </h2>
      <p class="prewrap">
        <Visible text={tool.description} isProse />
      </p>
      {can("tools.try") && !OWN_TOOLS.has(tool.name) && (
        <Tabs<Tab>
          label="The tool"
          tabs={[
            { id: "about", text: "About" },
            { id: "trial", text: "Try it" },
          ]}
          current={tab}
          onChange={(next) => setQuery({ tab: next === "about" ? undefined : next })}
        />
      )}
      {tab === "trial" ? <ToolTrial tool={tool} /> : <About tool={tool} replicas={replicas} />}
    </article>
  );
}

/** How the calls of the tool went, in a sample of the newest sessions. */
function CallFigures({ tool }: { tool: FleetTool }) {
  const found = useSample();
  const calls = useMemo(() => byName(found?.calls ?? [], "tool").get(tool.name) ?? [], [found, tool.name]);
  if (found === null) return <p class="muted">Reading the newest traces …</p>;
  if (calls.length === 0) return <p class="muted">No call in the newest {plural(found.sessions, "session")}.</p>;
  const figures = percentilesOf(calls);
  const shown: [string, string][] = [
    ["Calls", formatCount(figures.count)],
    ["Failed", `${figures.failed} (${Math.round((figures.failed / figures.count) * 100)} %)`],
    ["50 %", formatDuration(figures.p50)],
    ["95 %", formatDuration(figures.p95)],
    ["Longest", formatDuration(figures.most)],
    ["Waited, 95 %", formatDuration(figures.waitedP95)],
  ];
  return (
    <>
      <Figures figures={shown} class="agent-figures" />
      <p class="hint">A sample: the newest {plural(found.sessions, "session")}, with the time in the queue.</p>
    </>
  );
}

function Replicas({ replicas }: { replicas: ToolReplica[] }) {
  if (replicas.length === 0) return <p class="muted">No process answers that it serves this tool.</p>;
  return (
    <div class="table-scroll">
      <Table
        rows={replicas}
        columns={[
          { head: "Process", cell: (replica) => <code>{replica.instance}</code> },
          { head: "Version", cell: (replica) => replica.version },
          { head: "Up", cell: (replica) => replica.started && <Age at={replica.started} /> },
          { head: "Calls", isNumber: true, cell: (replica) => formatCount(replica.calls) },
          {
            head: "Failed",
            isNumber: true,
            cellClass: (replica) => replica.errors > 0 && "bad-text",
            cell: (replica) => formatCount(replica.errors),
          },
          {
            head: "Mean time",
            isNumber: true,
            cell: ({ average_ms }) => (average_ms === undefined ? "–" : formatDuration(average_ms)),
          },
          { head: "Last error", cell: (replica) => <Visible text={replica.last_error ?? ""} isProse /> },
        ]}
      />
    </div>
  );
}

function About({ tool, replicas }: { tool: FleetTool; replicas: ToolReplica[] | undefined }) {
  const { properties, required } = (tool.parameters ?? {}) as {
    properties?: Record<string, { type?: unknown; description?: string; enum?: unknown[] }>;
    required?: string[];
  };
  const fields = Object.entries(properties ?? {});
  return (
    <div class="cards tool-about">
      <dl class="pairs">
        <Pair name="Effect">
          <code>{tool.effect}</code> {EFFECTS[tool.effect]}
        </Pair>
        <Pair name="Approval">
          {tool.approval === "never"
            ? "Runs without asking, unless an agent's rules ask."
            : "A person is asked before each call."}
        </Pair>
        {tool.timeout_ms !== undefined && <Pair name="Timeout">{formatDuration(tool.timeout_ms)}</Pair>}
        {tool.max_output !== undefined && (
          <Pair name="Longest result">{formatBytes(tool.max_output)} reach the model</Pair>
        )}
        {tool.version && <Pair name="Version">{tool.version}</Pair>}
      </dl>
      <section aria-label="Calls">
        <h3>How its calls went</h3>
        <CallFigures tool={tool} />
      </section>
      {replicas !== undefined && !OWN_TOOLS.has(tool.name) && (
        <section aria-label="Replicas">
          <h3>Processes that serve it</h3>
          <Replicas replicas={replicas} />
        </section>
      )}
      {fields.length > 0 && (
        <div class="table-scroll">
          <Table
            caption="Arguments"
            rows={fields}
            columns={[
              {
                head: "Argument",
                cell: ([field]) => (
                  <>
                    <code>{field}</code>
                    {required?.includes(field) && <span class="badge-wait"> required</span>}
                  </>
                ),
              },
              {
                head: "Type",
                cell: ([, schema]) => (schema.enum ? schema.enum.map(String).join(", ") : String(schema.type ?? "any")),
              },
              { head: "What it is", cell: ([, schema]) => <Visible text={schema.description ?? ""} isProse /> },
            ]}
          />
        </div>
      )}
      {tool.instructions && <DataBlock source={tool.instructions} label="What it adds to the prompt" />}
      <DataBlock source={JSON.stringify(tool.parameters)} label="Schema of its arguments" />
    </div>
  );
}
