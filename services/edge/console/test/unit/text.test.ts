import assert from "node:assert/strict";
import { test } from "node:test";
import { compareTexts } from "../../src/ui/diff.tsx";
import { readFields } from "../../src/ui/arguments.tsx";
import { breakLines } from "../../src/ui/text.tsx";
import { formatAge, formatBytes, formatDuration, formatMoney, shellQuote } from "../../src/core/format.ts";
import { countHidden, splitHidden } from "../../src/core/hidden.ts";
import { compareJson, indentJson } from "../../src/core/json.ts";
import { keyOfHash, makeHash, parseRoute } from "../../src/core/route.ts";

test("hidden_characters_are_split_off_with_their_number", () => {
  const pieces = splitHidden("safe\u202Etxt.sh");
  assert.deepEqual(
    pieces.map((piece) => piece.codePoint ?? piece.text),
    ["safe", "U+202E", "txt.sh"],
  );
  for (const character of [
    "\u0000",
    "\u001b",
    "\u0085",
    "\u200b",
    "\u2066",
    "\ufeff",
    "\u{E0041}",
    "\ud800",
    "\u3164",
    "\u00ad",
    "\r",
  ]) {
    assert.equal(countHidden(`a${character}b`), 1, JSON.stringify(character));
  }
  assert.equal(countHidden("tab\tand\nlines\r\n and ünïcödé 日本 🙂"), 0);
});

test("joiners_stay_in_prose_and_are_shown_in_arguments", () => {
  assert.equal(splitHidden("👩\u200D💻", true).length, 1);
  assert.equal(countHidden("👩\u200D💻"), 1);
  assert.equal(splitHidden("a\u202Eb", true).length, 3);
});

test("json_is_indented_without_a_change_to_its_tokens", () => {
  const source = '{"big":12345678901234567890,"twice":1,"twice":2,"text":"a{,}:\\"b","empty":{},"list":[ ]}';
  const indented = indentJson(source);
  assert.equal(indented.replace(/\n\s*/g, "").replaceAll(": ", ":"), source.replace("[ ]", "[]"));
  assert.ok(indented.includes("12345678901234567890"));
});

test("fields_are_not_shown_where_reading_them_loses_something", () => {
  assert.deepEqual(readFields('{"path":"a\\u202eb","n":1}'), [
    ["path", "a\u202Eb"],
    ["n", 1],
  ]);
  assert.equal(readFields('{"a":1,"a":2}'), null);
  assert.equal(readFields('{"n":12345678901234567890}'), null);
  assert.equal(readFields("[1]"), null);
  assert.equal(readFields("not json"), null);
});

test("changes_of_json_are_named_by_their_path", () => {
  const { changes, hasMore } = compareJson({ a: { b: [1, 2] }, c: 1 }, { a: { b: [1, 3] }, d: 1 });
  assert.deepEqual(changes, [
    { path: "a.b[1]", before: 2, after: 3 },
    { path: "c", before: 1, after: undefined },
    { path: "d", before: undefined, after: 1 },
  ]);
  assert.equal(hasMore, false);
  assert.equal(compareJson([1, 2, 3], [4, 5, 6], 2).hasMore, true);
});

test("difference_of_texts_marks_the_words_that_changed", () => {
  const lines = compareTexts("one\ntwo words\nthree\n", "one\ntwo terms\nthree\n");
  assert.deepEqual(
    lines.map(
      (line) => line.sign + line.pieces.map((piece) => (piece.isChanged ? `[${piece.text}]` : piece.text)).join(""),
    ),
    [" one", "-two [words]", "+two [terms]", " three"],
  );
});

test("difference_of_texts_without_a_common_line_ends_in_time", () => {
  const began = performance.now();
  compareTexts(
    Array.from({ length: 20_000 }, (_, n) => `a${n}`).join("\n"),
    Array.from({ length: 20_000 }, (_, n) => `b${n}`).join("\n"),
  );
  assert.ok(performance.now() - began < 3000);
});

test("long_line_is_broken_and_nothing_is_lost", () => {
  const text = `${"x".repeat(1_000_000)}\nshort\n`;
  assert.equal(breakLines(text).join(""), text.replaceAll("\n", ""));
  assert.ok(breakLines(text).every((line) => line.length <= 1000));
});

test("route_is_read_as_it_was_made", () => {
  const { path, query } = parseRoute(makeHash(["sessions", "a/b c"], { tab: "state", at: "3", none: undefined }));
  assert.deepEqual(
    [path, query.get("tab"), query.get("at"), query.has("none")],
    [["sessions", "a/b c"], "state", "3", false],
  );
  assert.deepEqual(parseRoute("#/sessions/%").path, ["sessions", "%"]);
});

test("key_of_the_link_is_no_route", () => {
  assert.equal(keyOfHash("#key=ailoop_abc"), "ailoop_abc");
  for (const hash of ["", "#key=", "#/sessions/key=x", "#/start?key=x"]) assert.equal(keyOfHash(hash), undefined, hash);
});

test("amounts_are_short", () => {
  assert.deepEqual(
    [formatMoney(0), formatMoney(0.0000001), formatMoney(0.0042), formatMoney(1.5)],
    ["$0", "<$0.0001", "$0.0042", "$1.50"],
  );
  assert.deepEqual([formatBytes(12), formatBytes(1536), formatBytes(5 << 20)], ["12 B", "1.5 KB", "5 MB"]);
  assert.deepEqual(
    [formatDuration(12), formatDuration(1500), formatDuration(65_000), formatDuration(7_200_000)],
    ["12 ms", "1.5 s", "1 min 5 s", "2 h 0 min"],
  );
  assert.equal(formatAge(0, 90_000), "1 min");
  assert.equal(shellQuote("it's"), "'it'\\''s'");
});
