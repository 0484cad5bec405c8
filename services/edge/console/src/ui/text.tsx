// Text from models, tools and people. Nothing of it becomes HTML, and characters that hide are shown by their number.

import { useMemo, useState } from "preact/hooks";
import { formatBytes } from "../core/format.ts";
import { splitHidden } from "../core/hidden.ts";
import { indentJson, looksLikeJson } from "../core/json.ts";
import { VirtualList } from "./list.tsx";

/** Text with its hidden characters as numbers. */
export function Visible({ text, isProse = false }: { text: string; isProse?: boolean }) {
  const pieces = useMemo(() => splitHidden(text, isProse), [text, isProse]);
  if (pieces.length === 1 && pieces[0]?.codePoint === undefined) return <>{text}</>;
  return (
    <>
      {pieces.map((piece) =>
        piece.codePoint === undefined ? (
          piece.text
        ) : (
          <span class="hidden-char" title="A character that is not visible">
            {piece.codePoint}
          </span>
        ),
      )}
    </>
  );
}

/** Longest text that is drawn at once, and longest line. */
const DRAWN_MAX = 12_000;
const LINE_MAX = 1000;
const LINE_PX = 19;
const WINDOW_LINES = 22;

/** A block of text as it is. A long one is drawn line by line as it is scrolled; nothing is left out. */
export function TextBlock({ text, label }: { text: string; label: string }) {
  const lines = useMemo(() => (text.length > DRAWN_MAX ? breakLines(text) : null), [text]);
  if (lines === null) {
    return (
      <pre class="block" tabIndex={0} role="region" aria-label={label}>
        <Visible text={text} />
      </pre>
    );
  }
  return (
    <div class="block block-long">
      <VirtualList
        class={`lines lines-${Math.min(lines.length, WINDOW_LINES) < WINDOW_LINES ? "few" : "many"}`}
        label={label}
        count={lines.length}
        estimate={LINE_PX}
        keyOf={String}
        render={(index) => (
          <pre class="line">
            <Visible text={lines[index] ?? ""} />{" "}
          </pre>
        )}
      />
    </div>
  );
}

/** Lines of at most `LINE_MAX` characters; a longer one goes on in the next. */
export function breakLines(text: string): string[] {
  const lines: string[] = [];
  for (const line of text.split("\n")) {
    for (let start = 0; start === 0 || start < line.length; start += LINE_MAX)
      lines.push(line.slice(start, start + LINE_MAX));
  }
  return lines;
}

/** Text that may be JSON: indented, with a switch to the text as it was sent. */
export function DataBlock({ source, label }: { source: string; label: string }) {
  const isJson = useMemo(() => looksLikeJson(source), [source]);
  const [isRaw, setRaw] = useState(false);
  const shown = useMemo(() => (isJson && !isRaw ? indentJson(source) : source), [source, isJson, isRaw]);
  return (
    <div class="data">
      <div class="data-bar">
        <span class="muted">{label}</span>
        <span class="muted">{formatBytes(new Blob([source]).size)}</span>
        {isJson && (
          <button type="button" class="link" onClick={() => setRaw(!isRaw)}>
            {isRaw ? "indented" : "as sent"}
          </button>
        )}
        <CopyButton text={source} />
      </div>
      <TextBlock text={shown} label={label} />
    </div>
  );
}

export function CopyButton({
  text,
  label = "copy",
  title,
}: {
  text: string | (() => string);
  label?: string;
  title?: string;
}) {
  const [state, setState] = useState<"" | "copied" | "not permitted">("");
  const copy = () => {
    const done = (next: "copied" | "not permitted") => {
      setState(next);
      setTimeout(() => setState(""), 1500);
    };
    const value = typeof text === "string" ? text : text();
    // Browsers permit it on https and on this machine only.
    if (navigator.clipboard === undefined) return done("not permitted");
    navigator.clipboard.writeText(value).then(
      () => done("copied"),
      () => done("not permitted"),
    );
  };
  return (
    <button type="button" class="link" onClick={copy} title={title} aria-live="polite">
      {state || label}
    </button>
  );
}
