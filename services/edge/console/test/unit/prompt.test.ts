// The parts of a composed prompt.

import assert from "node:assert/strict";
import { test } from "node:test";
import { splitPrompt } from "../../src/core/prompt.ts";

test("parts_are_cut_by_bytes_and_text_between_them_is_kept", () => {
  const prompt = "Grüße 😀\n\nTools: a\n\nzwei\n";
  const bytes = (text: string) => new TextEncoder().encode(text).length;
  const [first, second] = ["Grüße 😀", "zwei"];
  const components = [
    { name: "a.md", sha256: "1", start: 0, bytes: bytes(first) },
    { name: "b.md", sha256: "2", start: bytes("Grüße 😀\n\nTools: a\n\n"), bytes: bytes(second) },
  ];
  assert.deepEqual(splitPrompt(prompt, components), [
    { name: "a.md", sha256: "1", text: first, bytes: 12 },
    { text: "Tools: a", bytes: 12 },
    { name: "b.md", sha256: "2", text: second, bytes: 4 },
  ]);
});

test("prompt_without_components_is_one_part", () => {
  assert.deepEqual(splitPrompt("Be kind.", []), [{ text: "Be kind.", bytes: 8 }]);
  assert.deepEqual(splitPrompt("", []), []);
});
