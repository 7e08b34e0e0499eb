// JSON that a peer or a model wrote: what counts as an object, how deep it may nest, and what it can never reach.

import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { isJsonObject, parseJson, parseJsonObject } from "../../../core/json.ts";
import { jsonDepthMax } from "../../../core/limits.ts";

const nested = (depth: number, open: string, close: string) => open.repeat(depth) + close.repeat(depth);

Deno.test("B3 JSON nested as deep as the bound is parsed, one deeper is not", () => {
  assert(parseJson(nested(jsonDepthMax, "[", "]")) !== undefined);
  assertEquals(parseJson(nested(jsonDepthMax + 1, "[", "]")), undefined);
  const object = (depth: number) => '{"a":'.repeat(depth) + "1" + "}".repeat(depth);
  assert(parseJsonObject(object(jsonDepthMax)) !== undefined);
  assertEquals(parseJsonObject(object(jsonDepthMax + 1)), undefined);
});

Deno.test("B3 a million brackets are refused without a stack to hold them", () => {
  assertEquals(parseJson("[".repeat(1_000_000)), undefined);
});

Deno.test("B3 brackets in texts, after escaped quotes too, do not count as nesting", () => {
  const text = "[{".repeat(200);
  assertEquals(parseJson(JSON.stringify({ text })), { value: { text } });
  const quoted = '\\"[[[['.repeat(100);
  assertEquals(parseJson(JSON.stringify([quoted])), { value: [quoted] });
  assertEquals(parseJson('["a\\\\", [1]]'), { value: ["a\\", [1]] });
});

Deno.test("B3 brackets side by side do not count as nesting", () => {
  const flat = `[${Array(1_000).fill("[]").join(",")}]`;
  assertEquals((parseJson(flat)?.value as unknown[]).length, 1_000);
});

Deno.test("B3 what JSON.parse refuses is undefined, what it takes is its value", () => {
  for (const text of ["", "{", "{'a':1}", '{"a":1,}', "undefined", "NaN", '{"a":1}x', '"\n"']) {
    assertEquals(parseJson(text), undefined, text);
  }
  fc.assert(fc.property(fc.json({ maxDepth: 8 }), (text) => {
    assertEquals(parseJson(text), { value: JSON.parse(text) });
  }));
});

Deno.test("F19 only an object is an object: not an array, not null, not a text", () => {
  assertEquals(parseJsonObject('{"a":1}'), { a: 1 });
  for (const text of ["[]", "null", "1", '"{}"', "true", ""]) {
    assertEquals(parseJsonObject(text), undefined, text);
  }
  assertEquals([{}, [], null, undefined, "x", 1].map(isJsonObject), [
    true,
    false,
    false,
    false,
    false,
    false,
  ]);
});

Deno.test("F19 a key named __proto__ is an ordinary key and changes no object's kind", () => {
  const parsed = parseJsonObject('{"__proto__":{"polluted":true},"a":1}');
  assert(parsed !== undefined);
  assertEquals(Object.keys(parsed), ["__proto__", "a"]);
  assertEquals((parsed as { polluted?: unknown }).polluted, undefined);
  assertEquals(({} as { polluted?: unknown }).polluted, undefined);
});
