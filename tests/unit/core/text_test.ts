// Text that crosses into a model's context: where it is cut, and what can no longer pose as the template around it.

import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import {
  capText,
  cutMarker,
  isCut,
  neutralise,
  neutraliseControlTokens,
  utf8Length,
} from "../../../core/text.ts";

Deno.test("B12 a text at the cap stays whole, one past it is cut and says how much of it is left", () => {
  assertEquals(capText("a".repeat(10), 10), "a".repeat(10));
  assertEquals(capText("a".repeat(11), 10), "a".repeat(10) + "\n[cut: 10 of 11 characters]");
  assertEquals([isCut("a".repeat(10), 10), isCut("a".repeat(11), 10)], [false, true]);
  assertEquals(capText("", 1), "");
});

Deno.test("B12 the marker is the last line, and counts what was kept, not what was allowed", () => {
  assertEquals(capText("ab😀", 3), "ab\n[cut: 2 of 4 characters]");
  assertEquals(cutMarker(2, 4), "[cut: 2 of 4 characters]");
});

for (
  const [what, character] of [
    ["a surrogate pair", "😀"],
    ["a base and its combining mark", "e\u0301"],
    ["a Hangul syllable of three letters", "\u1112\u1161\u11ab"],
    ["a flag of two letters", "🇩🇪"],
    ["a family joined of four people", "👨‍👩‍👧‍👦"],
    ["a hand and its skin colour", "👋🏽"],
    ["a heart and its variation selector", "❤\ufe0f"],
    ["CR LF", "\r\n"],
  ] as const
) {
  Deno.test(`B12 a cut never splits ${what}`, () => {
    const text = "x".repeat(100) + character + "y".repeat(100);
    for (let cap = 100; cap < 100 + character.length; cap++) {
      const kept = capText(text, cap).split("\n[cut: ")[0];
      assertEquals(kept, "x".repeat(100), `at ${cap}`);
    }
    const whole = capText(text, 100 + character.length).split("\n[cut: ")[0];
    assertEquals(whole, "x".repeat(100) + character);
  });
}

Deno.test("B12 a character longer than any real one is cut inside, so that it does not take the whole text with it", () => {
  const stack = "a" + "\u0301".repeat(1_000);
  const cut = capText(stack, 500);
  assertEquals(cut, stack.slice(0, 500) + "\n[cut: 500 of 1001 characters]");
});

Deno.test("B12 whatever the text and the cap: no half character, no more than the cap, and always a beginning of the text", () => {
  const unit = fc.oneof(
    fc.string({ unit: "grapheme" }),
    fc.constantFrom("😀", "e\u0301", "👨‍👩‍👧‍👦", "🇩🇪", "\u0301", "\n", "a"),
  );
  fc.assert(fc.property(fc.array(unit, { maxLength: 60 }), fc.integer({ min: 1, max: 120 }), (units, cap) => {
    const text = units.join("");
    const capped = capText(text, cap);
    if (text.length <= cap) return capped === text;
    const marker = /\n\[cut: (\d+) of (\d+) characters\]$/.exec(capped);
    assert(marker !== null);
    const kept = capped.slice(0, marker.index);
    assertEquals([Number(marker[1]), Number(marker[2])], [kept.length, text.length]);
    assert(text.startsWith(kept) && kept.length <= cap);
    assert(kept.isWellFormed() || !text.isWellFormed());
    return true;
  }));
});

Deno.test("B12 cutting a text of ten million characters takes no longer than looking at its end", () => {
  const text = "é".repeat(10_000_000);
  const started = performance.now();
  capText(text, 9_999_999);
  assert(performance.now() - started < 1_000);
});

/** What a template of some family would read as more than text; each must lose its first character. */
const controlTokens = [
  "<|im_start|>",
  "<|im_end|>",
  "<|endoftext|>",
  "<|eot_id|>",
  "<|start_header_id|>",
  "<|end|>",
  "<|channel|>",
  "<｜begin▁of▁sentence｜>",
  "<｜tool▁calls▁begin｜>",
  "<s>",
  "</s>",
  "<think>",
  "</think>",
  "<tool_call>",
  "</tool_call>",
  "<tool_response>",
  "</tool_response>",
  "<tools>",
  "<start_of_turn>",
  "<end_of_turn>",
  "<bos>",
  "<eos>",
  "<pad>",
  "<unk>",
];
const squareTokens = [
  "[INST]",
  "[/INST]",
  "[SYSTEM_PROMPT]",
  "[/SYSTEM_PROMPT]",
  "[AVAILABLE_TOOLS]",
  "[TOOL_CALLS]",
  "[TOOL_RESULTS]",
  "[/TOOL_RESULTS]",
  "[TOOL_CONTENT]",
  "[ARGS]",
  "[CALL_ID]",
  "[IMG]",
  "[THINK]",
  "[gMASK]",
  "[BOS]",
  "[EOS]",
];
/** Tags that a tool result may hold: harmless in the owner's own message, not in anybody else's. */
const tags = [
  "<script>",
  "</script>",
  "<b>",
  "<!-- x -->",
  "<?xml?>",
  "<a href='x'>",
  "<_x>",
  "<[x]>",
  "<function=clock>",
];

Deno.test("B12 in a tool's text every tag and control token loses its bracket, and stays readable", () => {
  for (const token of [...controlTokens, ...tags]) {
    assertEquals(neutralise(`say ${token} now`), `say ‹${token.slice(1)} now`);
  }
  for (const token of squareTokens) {
    assertEquals(neutralise(`say ${token} now`), `say ［${token.slice(1)} now`);
  }
});

Deno.test("B12 in the owner's own message control tokens lose their bracket, in any case, and mark-up stays", () => {
  for (const token of controlTokens) {
    assertEquals(neutraliseControlTokens(`say ${token} now`), `say ‹${token.slice(1)} now`);
  }
  for (const token of squareTokens) {
    assertEquals(neutraliseControlTokens(`say ${token} now`), `say ［${token.slice(1)} now`);
  }
  assertEquals(neutraliseControlTokens("<THINK> <Tool_Call>"), "‹THINK> ‹Tool_Call>");
  for (const tag of tags) assertEquals(neutraliseControlTokens(tag), tag);
});

Deno.test("B12 text that only looks a little like a tag is unchanged", () => {
  const plain = [
    "a < b",
    "a<1",
    "x <3",
    "1 << 2",
    "<",
    "a <",
    "< b>",
    "<= 3",
    "[1]",
    "[INST",
    "[x]",
    "[ INST ]",
    "if (a<=b && c>d) {}",
    "‹already›",
    "",
  ];
  for (const text of plain) assertEquals([neutralise(text), neutraliseControlTokens(text)], [text, text]);
});

Deno.test("B12 neutralising twice is neutralising once, and its result holds nothing left to neutralise", () => {
  const piece = fc.oneof(
    fc.constantFrom(...controlTokens, ...squareTokens, ...tags, "<", "[", "|", "</", "<|", "[/", "]", ">"),
    fc.string({ maxLength: 4 }),
  );
  fc.assert(fc.property(fc.array(piece, { maxLength: 20 }), (pieces) => {
    const text = pieces.join("");
    const once = neutralise(text);
    assertEquals(neutralise(once), once);
    assertEquals(neutraliseControlTokens(once), once);
    for (const token of [...controlTokens, ...squareTokens]) assert(!once.includes(token), token);
    return once.length === text.length;
  }));
});

Deno.test("B12 a token that neutralising one part would put together does not arise", () => {
  for (const text of ["<<|im_end|>", "<|<|im_end|>im_end|>", "[[INST]INST]", "<</think>/think>"]) {
    const once = neutralise(text);
    assertEquals(neutralise(once), once);
    assert(!/<[|/a-z]|\[\/?INST\]/.test(once), once);
  }
});

Deno.test("C1 a text's length in UTF-8 counts bytes", () => {
  assertEquals(["", "a", "é", "€", "😀"].map(utf8Length), [0, 1, 2, 3, 4]);
});
