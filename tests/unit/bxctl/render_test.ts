// What a model, a peer or a file wrote cannot move the cursor, hide text or reorder it on the owner's terminal.

import { assert, assertEquals } from "@std/assert";
import fastCheck from "fast-check";
import {
  safeJson,
  table,
  visible,
  visibleLine,
  visibleLines,
  visibleStream,
} from "../../../tools/bxctl/render.ts";

const dangerous: readonly (readonly [string, string, string])[] = [
  ["an escape sequence", "a\x1b[2Jb", "a⟨U+001B⟩[2Jb"],
  ["a carriage return", "good\rbad", "good⟨U+000D⟩bad"],
  ["a backspace", "a\bb", "a⟨U+0008⟩b"],
  ["a bell", "a\x07b", "a⟨U+0007⟩b"],
  ["a C1 control", "a\x9b2Jb", "a⟨U+009B⟩2Jb"],
  ["a right-to-left override", "a\u202eb", "a⟨U+202E⟩b"],
  ["an isolate", "a\u2066b", "a⟨U+2066⟩b"],
  ["a zero-width space", "a\u200bb", "a⟨U+200B⟩b"],
  ["a line separator", "a\u2028b", "a⟨U+2028⟩b"],
  ["a tag character", "a\u{e0041}b", "a⟨U+E0041⟩b"],
  ["half a character", "a\ud83db", "a⟨U+D83D⟩b"],
];

for (const [what, text, wanted] of dangerous) {
  Deno.test(`B11 ${what} is written out`, () => assertEquals(visible(text), wanted));
}

Deno.test("B11 ordinary text of many scripts stays as it is", () => {
  for (const text of ["a\tb\nc", "Grüße, 世界", "👩‍👩‍👧 ❤️", "नमस्ते", "مرحبا", "‹think›", "⟨x⟩ `${}`"]) {
    assertEquals(visible(text), text);
  }
});

Deno.test("B11 no text at all gets a control character or a bidi mark through", () => {
  fastCheck.assert(fastCheck.property(fastCheck.string({ unit: "binary" }), (text) => {
    // deno-lint-ignore no-control-regex -- these are what must not be there
    const bad = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/;
    assert(!bad.test(visible(text)) && !bad.test(visibleLine(text)) && !bad.test(safeJson(text)));
    assertEquals(JSON.parse(safeJson(text)), text);
  }));
});

Deno.test("B11 a line at the limit stays whole, one past it says how much is missing", () => {
  assertEquals(visibleLine("abcd", 4), "abcd");
  assertEquals(visibleLine("abcde", 4), "abcd … +1 characters");
  assertEquals(visibleLine("abc\u{1f600}", 4), "abc … +2 characters");
  assertEquals(visibleLines("abcd\nabcdefg", 4), "abcd\nabcd … +3 characters");
  assertEquals(visibleLine("one\ntwo\tthree"), "one⏎two three");
});

Deno.test("B11 a character that arrives in two pieces is shown whole", () => {
  const stream = visibleStream();
  assertEquals(stream.push("a\ud83d") + stream.push("\ude00b") + stream.end(), "a\u{1f600}b");
  const broken = visibleStream();
  assertEquals(
    broken.push("a\ud83d") + broken.push("b") + broken.push("\ud83d") + broken.end(),
    "a⟨U+D83D⟩b⟨U+D83D⟩",
  );
});

Deno.test("B11 JSON for a terminal is the same value in printable characters", () => {
  assertEquals(safeJson({ a: "\x1b\x7f\u202e\u{e0041}é" }), '{"a":"\\u001b\\u007f\\u202e\\udb40\\udc41é"}');
});

Deno.test("B11 columns line up although a cell is wide", () => {
  assertEquals(
    table(["id", "n"], [["世界", "1"], ["a\x1b", "22"]]),
    "id         n\n世界       1\na⟨U+001B⟩  22",
  );
});
