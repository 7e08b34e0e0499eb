// What a refused value is told, in our own words: the wanted form, and of what was found no more than its kind.

import { assertEquals } from "@std/assert";
import { z } from "zod";
import { describeMisfit } from "../../../core/misfit.ts";

const schema = z.strictObject({
  word: z.enum(["add", "remove"]),
  text: z.string().min(1).max(3),
  count: z.int().min(0),
  list: z.array(z.string()).max(1),
  either: z.union([z.literal(1), z.boolean()]),
  hash: z.string().regex(/^[0-9a-f]+$/),
  own: z.string().min(1, { error: "is empty; wanted a message" }),
});
const sound = { word: "add", text: "abc", count: 0, list: ["a"], either: true, hash: "0f", own: "x" };

function misfits(change: Record<string, unknown>): string[] {
  const result = schema.safeParse({ ...sound, ...change }, { error: describeMisfit });
  return result.success ? [] : result.error.issues.map(({ message }) => message);
}

for (
  const [change, wanted] of [
    [{}, []],
    [{ word: "change" }, ['wanted "add" or "remove"; found "change"']],
    [{ word: "w".repeat(41) }, [`wanted "add" or "remove"; found "${"w".repeat(40)}"`]],
    [{ word: undefined }, ['missing; wanted "add" or "remove"']],
    [{ text: "" }, ["wanted at least 1 character; found 0"]],
    [{ text: "abcd" }, ["wanted at most 3 characters; found 4"]],
    [{ text: 1 }, ["wanted a text; found 1"]],
    [{ text: undefined }, ["missing; wanted a text"]],
    [{ count: -1 }, ["wanted at least 0; found -1"]],
    [{ count: 1.5 }, ["wanted an integer; found 1.5"]],
    [{ list: ["a", "b"] }, ["wanted at most 1 entry; found 2"]],
    [{ list: { a: 1 } }, ["wanted a list; found an object"]],
    [{ either: "secret text" }, ["wanted another form; found a text"]],
    [{ hash: "secret text" }, ["has not the wanted form; found a text"]],
    [{ own: "" }, ["is empty; wanted a message"]],
    [{ more: 1 }, ['unknown key "more"']],
  ] as const
) {
  Deno.test(`S4 a value with ${JSON.stringify(change)} is told ${wanted.join() || "nothing"}`, () =>
    assertEquals(misfits(change), [...wanted]));
}
