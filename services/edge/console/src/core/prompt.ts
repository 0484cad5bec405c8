// Splits a composed prompt into its parts. A component has the position of its text in bytes of UTF-8.

import type { PromptComponent } from "./types.ts";

export interface PromptPart {
  /** The file that the text is from; none for text that the composer put between files. */
  name?: string;
  sha256?: string;
  text: string;
  bytes: number;
}

/** The parts in the order of the prompt. Together they are the prompt; blank text between files is left out. */
export function splitPrompt(prompt: string, components: PromptComponent[]): PromptPart[] {
  const bytes = new TextEncoder().encode(prompt);
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  const slice = (start: number, end: number) => decoder.decode(bytes.subarray(start, end));
  const parts: PromptPart[] = [];
  let end = 0;
  const addBetween = (until: number) => {
    const text = slice(end, until);
    if (text.trim() !== "") parts.push({ text: text.trim(), bytes: until - end });
  };
  for (const { name, sha256, start, bytes: length } of components) {
    addBetween(start);
    parts.push({ name, sha256, text: slice(start, start + length), bytes: length });
    end = Math.max(end, start + length);
  }
  addBetween(bytes.length);
  return parts;
}
