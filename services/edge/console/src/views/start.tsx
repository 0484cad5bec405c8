// The playground: starts a session with any of its settings, and goes to it.

import { useMemo, useState } from "preact/hooks";
import { command, newId } from "../core/connection.ts";
import { shellQuote } from "../core/format.ts";
import { parseObject } from "../core/json.ts";
import { usePoll } from "../core/poll.ts";
import { go, links, route } from "../core/route.ts";
import type { Agent, CommandReply, FleetToolList } from "../core/types.ts";
import { AttachButton, Attachments, messageContent, useImages } from "../ui/images.tsx";
import { Button, Field, JsonField, PageHead, takeFocus } from "../ui/parts.tsx";
import { CopyButton } from "../ui/text.tsx";
import { AgentField, InteractiveField, ModelField } from "./session_fields.tsx";

export function StartView() {
  const { query } = route.value;
  const tools = usePoll<FleetToolList>("tools.list", {}, null);
  const [agent, setAgent] = useState(query.get("agent") ?? "");
  const [model, setModel] = useState(query.get("model") ?? "");
  const [prompt, setPrompt] = useState(query.get("prompt") ?? "");
  const images = useImages();
  const [isInteractive, setInteractive] = useState(true);
  const [system, setSystem] = useState("");
  const [chosen, setChosen] = useState<Set<string>>(new Set());
  const [steps, setSteps] = useState("");
  const [features, setFeatures] = useState("");
  const [without, setWithout] = useState("");
  const [more, setMore] = useState("");
  const extra = useMemo(() => parseObject(more.trim() === "" ? "{}" : more), [more]);
  const extraError = "error" in extra ? extra.error : undefined;

  const params = (): Record<string, unknown> => ({
    interactive: isInteractive,
    ...(agent && { agent }),
    ...(model && { model }),
    ...((prompt.trim() || images.list.length > 0) && { prompt: messageContent(prompt, images.list) }),
    ...(system.trim() && { ai_config: { system_prompt: system } }),
    ...(chosen.size > 0 && { tools: [...chosen] }),
    ...(steps && { continuation: { max_iterations: Number(steps) } }),
    ...((features || without) && { features: { enable: list(features), disable: list(without) } }),
    ...("value" in extra && extra.value),
  });
  const start = async () => {
    const session = newId();
    await command<CommandReply>("session.start", { session_id: session, ...params() });
    go(links.session(session));
  };
  const asCommand = () =>
    [
      "ailoop run",
      agent && `--agent ${shellQuote(agent)}`,
      model && `--model ${shellQuote(model)}`,
      steps && `--max-iterations ${steps}`,
      system.trim() && `--system-prompt ${shellQuote(system)}`,
      shellQuote(prompt),
    ]
      .filter(Boolean)
      .join(" ");
  return (
    <div class="page start">
      <PageHead title="Playground" sub="Start a session and watch it" />
      <form
        onSubmit={(event) => event.preventDefault()}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey))
            document.querySelector<HTMLElement>(".start .button-primary")?.click();
        }}
      >
        <Field label="Message">
          <textarea
            rows={5}
            ref={takeFocus}
            value={prompt}
            placeholder="What should the agent do?"
            onInput={(event) => setPrompt(event.currentTarget.value)}
            onPaste={(event) => {
              if (images.take(event.clipboardData)) event.preventDefault();
            }}
          />
        </Field>
        <Attachments images={images} />
        <div class="field-row">
          <AgentField value={agent} onChange={setAgent} unset={defaultAgent} />
          <ModelField
            value={model}
            onChange={setModel}
            unset="That of the agent"
            nameOf={(other) => `${other.id} (${other.provider})`}
          />
        </div>
        <div class="start-bar">
          <AttachButton images={images} />
          <InteractiveField value={isInteractive} onChange={setInteractive} />
        </div>
        <details>
          <summary>More options</summary>
          <div class="field-row">
            <Field label="Most steps in a turn">
              <input
                type="number"
                min={1}
                max={1000}
                value={steps}
                onInput={(event) => setSteps(event.currentTarget.value)}
              />
            </Field>
            <Field label="Features to switch on" hint="Names with commas">
              <input value={features} onInput={(event) => setFeatures(event.currentTarget.value)} />
            </Field>
            <Field label="Features to switch off" hint="Names with commas">
              <input value={without} onInput={(event) => setWithout(event.currentTarget.value)} />
            </Field>
          </div>
          <Field label="System prompt, in place of the agent's">
            <textarea rows={4} value={system} onInput={(event) => setSystem(event.currentTarget.value)} />
          </Field>
          <fieldset class="tools-choice">
            <legend class="field-label">Only these tools of the agent (none chosen: all of them)</legend>
            <div class="chips">
              {tools.data?.tools.map((tool) => (
                <label class="chip chip-choice" title={tool.description}>
                  <input
                    type="checkbox"
                    checked={chosen.has(tool.name)}
                    onChange={() => {
                      const next = new Set(chosen);
                      if (!next.delete(tool.name)) next.add(tool.name);
                      setChosen(next);
                    }}
                  />{" "}
                  {tool.name}
                </label>
              ))}
            </div>
          </fieldset>
          <JsonField
            label="Other parameters of session.start, as JSON"
            hint='Such as {"parameters": {"temperature": 0.2}}'
            error={extraError}
            rows={[3, 3]}
            value={more}
            onChange={setMore}
          />
        </details>
        <div class="form-actions">
          <CopyButton text={asCommand} label="copy as command" />
          <CopyButton
            text={() => JSON.stringify({ jsonrpc: "2.0", id: 1, method: "session.start", params: params() })}
            label="copy as JSON-RPC"
          />
          <Button
            kind="primary"
            icon="start"
            isDisabled={
              extraError !== undefined || (!isInteractive && prompt.trim() === "" && images.list.length === 0)
            }
            onClick={start}
          >
            Start<kbd>Ctrl</kbd>
            <kbd>Enter</kbd>
          </Button>
        </div>
      </form>
    </div>
  );
}

function list(text: string): string[] {
  return text
    .split(",")
    .map((name) => name.trim())
    .filter(Boolean);
}

function defaultAgent(agents: Agent[]): string {
  const byDefault = agents.find((other) => other.is_default);
  return byDefault ? `Default: ${byDefault.name}` : "Default";
}
