// Calls a tool once, without a session. What may change something runs only after its arguments were shown and approved.

import { useMemo, useState } from "preact/hooks";
import { can } from "../core/caller.ts";
import { rpc } from "../core/connection.ts";
import { formatDuration, words } from "../core/format.ts";
import { parseObject } from "../core/json.ts";
import type { FleetTool, TriedTool } from "../core/types.ts";
import { Arguments } from "../ui/arguments.tsx";
import { Badge, Button, JsonField } from "../ui/parts.tsx";
import { TextBlock } from "../ui/text.tsx";
import { callTone } from "./conversation.tsx";

export function ToolTrial({ tool }: { tool: FleetTool }) {
  const [source, setSource] = useState(() => JSON.stringify(example(tool.parameters), null, 2));
  const [tried, setTried] = useState<TriedTool | null>(null);
  const parsed = useMemo(() => parseObject(source), [source]);
  const needsApproval = tool.approval !== "never" || tool.effect !== "pure";
  const send = async (approved?: string) => {
    if (!("value" in parsed)) return;
    const params = { tool: tool.name, arguments: parsed.value, ...(approved && { arguments_sha256: approved }) };
    // A call is never sent again after a break: it may have run.
    setTried(await rpc.call<TriedTool>("tools.try", params, false));
  };
  const isWaiting = tried !== null && tried.result === undefined;
  if (needsApproval && !can("session.answer"))
    return <p class="muted trial">A call of this tool needs an approval: your key needs the scope approve.</p>;
  return (
    <div class="trial">
      <JsonField
        label="Arguments, as JSON"
        hint="The call belongs to no session, and takes at most 30 s. The audit log names you."
        error={"error" in parsed ? parsed.error : undefined}
        rows={[3, 16]}
        value={source}
        onChange={(value) => {
          setSource(value);
          setTried(null);
        }}
      />
      {!isWaiting && (
        <Button kind="primary" icon="start" isDisabled={"error" in parsed} onClick={() => send()}>
          {needsApproval ? "Show what would run" : "Run it"}
        </Button>
      )}
      {isWaiting && (
        <section class="gate" aria-label={`May ${tool.name} run?`}>
          <header class="gate-head">
            <strong>
              May <code>{tool.name}</code> run?
            </strong>
            <span class="muted">It may change something ({words(tool.effect)}).</span>
          </header>
          <Arguments source={JSON.stringify(tried.arguments)} label="What runs" />
          <div class="gate-actions">
            <Button kind="good" icon="check" onClick={() => send(tried.arguments_sha256)}>
              Approve and run
            </Button>
            <Button onClick={() => setTried(null)}>Back</Button>
          </div>
        </section>
      )}
      {tried?.result !== undefined && (
        <section class="trial-result" aria-label="Result">
          <div class="trial-head">
            <Badge tone={callTone(tried.result.outcome)}>{words(tried.result.outcome)}</Badge>
            <span>{formatDuration(tried.result.duration_ms)}</span>
            {tried.result.code !== undefined && <code>{tried.result.code}</code>}
          </div>
          {tried.result.content === "" ? (
            <p class="muted">The result is empty.</p>
          ) : (
            <TextBlock text={tried.result.content} label="What a model would read" />
          )}
        </section>
      )}
    </div>
  );
}

/** An object with the fields that a schema requires, and an empty value for each. */
export function example(schema: unknown): Record<string, unknown> {
  const { properties, required } = (schema ?? {}) as {
    properties?: Record<string, { type?: unknown; enum?: unknown[]; default?: unknown; minimum?: number }>;
    required?: string[];
  };
  return Object.fromEntries((required ?? []).map((name) => [name, emptyValue(properties?.[name] ?? {})]));
}

function emptyValue(schema: { type?: unknown; enum?: unknown[]; default?: unknown; minimum?: number }): unknown {
  if (schema.default !== undefined) return schema.default;
  if (schema.enum !== undefined) return schema.enum[0];
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (type === "integer" || type === "number") return schema.minimum ?? 0;
  if (type === "boolean") return false;
  if (type === "array") return [];
  return type === "object" ? {} : "";
}
