// The arguments of a call: all of them, by field where that loses nothing, with a warning about hidden characters.

import { useMemo, useState } from "preact/hooks";
import { formatBytes } from "../core/format.ts";
import { countHidden } from "../core/hidden.ts";
import { indentJson, parseObject, prettyJson } from "../core/json.ts";
import { Diff } from "./diff.tsx";
import { Icon } from "./icons.tsx";
import { CopyButton, TextBlock, Visible } from "./text.tsx";

type Mode = "fields" | "json" | "changes";

interface Props {
  /** JSON text as it was sent. */
  source: string;
  /** Arguments of the call of this tool before, as JSON text. */
  before?: string;
  label?: string;
  mode?: Mode;
}

export function Arguments({ source, before, label = "Arguments", mode: first }: Props) {
  const fields = useMemo(() => readFields(source), [source]);
  const [chosen, setMode] = useState<Mode | undefined>(first);
  const mode = chosen ?? (fields === null ? "json" : "fields");
  const hidden = useMemo(() => countHidden(decoded(source)), [source]);
  const modes: [Mode, string][] = [
    ...(fields === null ? [] : [["fields", "fields"] as [Mode, string]]),
    ["json", "JSON"],
    ...(before === undefined ? [] : [["changes", "changes from the call before"] as [Mode, string]]),
  ];
  return (
    <div class="data">
      <div class="data-bar">
        <span class="muted">
          {label} · {formatBytes(new Blob([source]).size)}
        </span>
        {modes.map(([id, text]) => (
          <button type="button" class="link" aria-pressed={mode === id} onClick={() => setMode(id)}>
            {text}
          </button>
        ))}
        <CopyButton text={source} />
      </div>
      {hidden > 0 && (
        <p class="hidden-note">
          <Icon name="warning" /> {hidden === 1 ? "1 character is" : `${hidden} characters are`} not visible in most
          programs. They are shown by their numbers.
        </p>
      )}
      {mode === "changes" && before !== undefined ? (
        <Diff before={prettyJson(before)} after={prettyJson(source)} label="Changes from the call before" />
      ) : mode === "fields" && fields !== null ? (
        <Fields fields={fields} />
      ) : (
        <TextBlock text={indentJson(source)} label={label} />
      )}
    </div>
  );
}

function Fields({ fields }: { fields: [string, unknown][] }) {
  if (fields.length === 0) return <p class="muted">No arguments.</p>;
  return (
    <dl class="fields">
      {fields.map(([name, value]) => (
        <div>
          <dt>
            <Visible text={name} />
          </dt>
          <dd>
            <TextBlock text={typeof value === "string" ? value : JSON.stringify(value, null, 2)} label={name} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** The fields of an object; `null` where reading it would lose something, such as a key that is there twice. */
export function readFields(source: string): [string, unknown][] | null {
  const parsed = parseObject(source);
  if (!("value" in parsed)) return null;
  const { value } = parsed;
  if (indentJson(JSON.stringify(value)) !== indentJson(normalizeEscapes(source))) return null;
  return Object.entries(value);
}

/** Writes each escape as `JSON.stringify` does, so that only a loss of content makes a difference. */
function normalizeEscapes(source: string): string {
  return source.replace(
    /\\(?:u([0-9a-fA-F]{4})|(.))/g,
    (whole, digits: string | undefined, character: string | undefined) => {
      if (digits !== undefined) return JSON.stringify(String.fromCharCode(Number.parseInt(digits, 16))).slice(1, -1);
      return character === "/" ? "/" : whole;
    },
  );
}

/** The text with its escapes resolved, so that an escaped character is found too. */
function decoded(source: string): string {
  return source.replace(/\\u([0-9a-fA-F]{4})/g, (_, digits: string) =>
    String.fromCharCode(Number.parseInt(digits, 16)),
  );
}
