// Differences of two texts, by lines, with the words that differ in lines that were changed.

import { type ChangeObject, diffLines, diffWordsWithSpace } from "diff";
import { useMemo } from "preact/hooks";
import { Visible } from "./text.tsx";

interface DiffLine {
  sign: "+" | "-" | " ";
  pieces: { text: string; isChanged: boolean }[];
}

type Word = ChangeObject<string>;

/** Texts that differ in more lines are shown one after the other. */
const EDITS_MAX = 2000;
/** Longest pair of changed parts whose words are compared. */
const WORDS_MAX = 8000;
/** Words are marked only where this share of the text stayed; in others nearly everything would be marked. */
const COMMON_SHARE_MIN = 0.25;

export function compareTexts(before: string, after: string): DiffLine[] {
  const parts = diffLines(before, after, { maxEditLength: EDITS_MAX }) ?? [
    { value: before, removed: true, added: false },
    { value: after, removed: false, added: true },
  ];
  const lines: DiffLine[] = [];
  for (let index = 0; index < parts.length; index++) {
    const [part, next] = [parts[index], parts[index + 1]];
    if (part === undefined) continue;
    const words =
      part.removed && next?.added && part.value.length + next.value.length < WORDS_MAX
        ? diffWordsWithSpace(part.value, next.value)
        : [];
    if (next !== undefined && commonShare(words, part.value, next.value) > COMMON_SHARE_MIN) {
      lines.push(...side(words, "-"), ...side(words, "+"));
      index += 1;
    } else {
      const sign = part.added ? "+" : part.removed ? "-" : " ";
      for (const line of linesOf(part.value)) lines.push({ sign, pieces: [{ text: line, isChanged: false }] });
    }
  }
  return lines;
}

/** Characters of the words that are in both texts, as a share of the shorter one. */
function commonShare(words: Word[], before: string, after: string): number {
  const common = words
    .filter((word) => !word.added && !word.removed)
    .reduce((sum, word) => sum + word.value.trim().length, 0);
  return common / Math.max(1, Math.min(before.length, after.length));
}

/** The lines of the text before or after, in which the words are marked that the other one has not. */
function side(words: Word[], sign: "+" | "-"): DiffLine[] {
  const lines: DiffLine[] = [{ sign, pieces: [] }];
  for (const word of words) {
    const isChanged = sign === "+" ? word.added : word.removed;
    if (!isChanged && (word.added || word.removed)) continue;
    const pieces = word.value.split("\n");
    pieces.forEach((text, index) => {
      if (index > 0) lines.push({ sign, pieces: [] });
      if (text !== "") lines.at(-1)?.pieces.push({ text, isChanged });
    });
  }
  if (lines.length > 1 && lines.at(-1)?.pieces.length === 0) lines.pop();
  return lines;
}

function linesOf(text: string): string[] {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

/** Lines around a change that are shown. */
const CONTEXT = 3;

export function Diff({ before, after, label }: { before: string; after: string; label: string }) {
  const lines = useMemo(() => foldUnchanged(compareTexts(before, after)), [before, after]);
  if (before === after) return <p class="muted">No difference.</p>;
  return (
    <pre class="block diff" tabIndex={0} role="region" aria-label={label}>
      {lines.map((line) =>
        typeof line === "number" ? (
          <span class="line-hunk">
            {" "}
            {line} unchanged lines{"\n"}
          </span>
        ) : (
          <span class={line.sign === "+" ? "line-added" : line.sign === "-" ? "line-removed" : ""}>
            {line.sign}{" "}
            {line.pieces.map((piece) =>
              piece.isChanged ? (
                <mark>
                  <Visible text={piece.text} />
                </mark>
              ) : (
                <Visible text={piece.text} />
              ),
            )}
            {"\n"}
          </span>
        ),
      )}
    </pre>
  );
}

function foldUnchanged(lines: DiffLine[]): (DiffLine | number)[] {
  const isNear = lines.map(() => false);
  lines.forEach((line, index) => {
    if (line.sign === " ") return;
    for (let near = Math.max(0, index - CONTEXT); near <= Math.min(lines.length - 1, index + CONTEXT); near++)
      isNear[near] = true;
  });
  const shown: (DiffLine | number)[] = [];
  for (const [index, line] of lines.entries()) {
    const last = shown.at(-1);
    if (isNear[index]) shown.push(line);
    else if (typeof last === "number") shown[shown.length - 1] = last + 1;
    else shown.push(1);
  }
  return shown;
}
