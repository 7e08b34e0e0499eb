// Session ids: their grammar at its limits, and what a child's id says about its family.

import { assert, assertEquals, assertThrows } from "@std/assert";
import fc from "fast-check";
import {
  ancestorSessionIds,
  callIdSchema,
  childSessionId,
  isSessionId,
  parentSessionId,
  parseSessionId,
  rootSessionId,
  type SessionId,
  sessionIdSchema,
  sessionKind,
} from "../../../core/ids.ts";

const id = (text: string) => parseSessionId(text);

Deno.test("S2 an id of 1 and of 64 characters is one, an empty one and one of 65 is not", () => {
  for (const text of ["a", "0", "-", "a".repeat(64)]) {
    assert(isSessionId(text) && sessionIdSchema.safeParse(text).success, text);
  }
  for (const text of ["", "a".repeat(65)]) {
    assert(!isSessionId(text) && !sessionIdSchema.safeParse(text).success, text);
  }
});

Deno.test("S2 anything but a-z, 0-9 and - is refused, above all what could leave its directory or end a line", () => {
  const refused = [
    "chat-A",
    "chat_a",
    "chat.a",
    "..",
    "chat/../a",
    "chat\\a",
    "chat-a\n",
    "\nchat-a",
    "chat-a\0",
    "chat a",
    "chat-ä",
    "chat-а", // Cyrillic
    "chat-１", // full-width digit
    "chat-\u200b",
  ];
  for (const text of refused) {
    assert(!isSessionId(text), JSON.stringify(text));
    assert(!sessionIdSchema.safeParse(text).success, JSON.stringify(text));
    assertThrows(() => parseSessionId(text), RangeError, "wanted 1 to 64 characters of a-z, 0-9 and -");
  }
  for (const value of [1, null, undefined, ["chat-a"], {}]) assert(!sessionIdSchema.safeParse(value).success);
});

Deno.test("S2 a refusal shows the id shortened and quoted", () => {
  const error = assertThrows(() => parseSessionId("X".repeat(500)), RangeError);
  assert(error.message.length < 200, error.message);
  assertThrows(() => parseSessionId('a"\n'), RangeError, '"a\\"\\n"');
});

Deno.test("S1 a child is named after its parent and the call that spawned it", () => {
  assertEquals(childSessionId(id("mm-abc"), 3), id("sub-mm-abc-3"));
  assertEquals(childSessionId(id("sub-mm-abc-3"), 12), id("sub-sub-mm-abc-3-12"));
});

Deno.test("S2 a child's id of 64 characters is made, one of 65 is not", () => {
  const parent = id("m".repeat(58));
  assertEquals(childSessionId(parent, 9)?.length, 64);
  assertEquals(childSessionId(parent, 10), undefined);
});

Deno.test("S1 the parent of a child is what stands between sub- and the last number", () => {
  assertEquals(parentSessionId(id("sub-mm-abc-3")), id("mm-abc"));
  assertEquals(parentSessionId(id("sub-sub-mm-abc-3-12")), id("sub-mm-abc-3"));
  assertEquals(parentSessionId(id("sub-a-1-2")), id("a-1"));
  assertEquals(parentSessionId(id("sub---1")), id("-"));
  assertEquals(parentSessionId(id("sub-heartbeat-10")), id("heartbeat"));
});

Deno.test("S1 a root has no parent", () => {
  for (const root of ["chat-a-1", "mm-abc", "job-sub-1", "heartbeat", "sub", "subs-a-1", "a-sub-b-1"]) {
    assertEquals(parentSessionId(id(root)), undefined, root);
    assertEquals(ancestorSessionIds(id(root)), []);
    assertEquals(rootSessionId(id(root)), id(root));
  }
});

Deno.test("S1 a sub- id that names no parent and call is malformed: no number, a leading zero, zero itself, nothing before it", () => {
  const malformed = [
    "sub-",
    "sub-1",
    "sub--1",
    "sub-chat-a",
    "sub-chat-01",
    "sub-chat-0",
    "sub-chat-a-",
    "sub-chat-1a",
  ];
  for (const text of malformed) {
    assertEquals(parentSessionId(id(text)), "malformed", text);
    assertEquals(rootSessionId(id(text)), id(text));
  }
  assertEquals(parentSessionId(id("sub-chat-1")), id("chat"));
});

Deno.test("S1 ancestors go from the parent to the root, nearest first", () => {
  const deepest = id("sub-sub-sub-chat-a-1-22-333");
  assertEquals(
    ancestorSessionIds(deepest).map(String),
    ["sub-sub-chat-a-1-22", "sub-chat-a-1", "chat-a"],
  );
  assertEquals(rootSessionId(deepest), id("chat-a"));
});

Deno.test("S1 every child that can be made names its parent back, and its root is its parent's", () => {
  fc.assert(fc.property(
    fc.stringMatching(/^[a-z0-9-]{1,64}$/).filter((text) => parentSessionId(id(text)) !== "malformed"),
    fc.integer({ min: 1, max: 1_000_000 }),
    (text, call) => {
      const child = childSessionId(id(text), call);
      if (child === undefined) return `sub-${text}-${call}`.length > 64;
      return parentSessionId(child) === text && rootSessionId(child) === rootSessionId(id(text)) &&
        sessionKind(child) === "sub";
    },
  ));
});

Deno.test("B13 the kind of a session is told by its name", () => {
  const kinds = [
    "chat-a",
    "mm-a",
    "job-a",
    "heartbeat",
    "sub-chat-a-1",
    "other",
    "heartbeat2",
    "chat",
  ] as const;
  assertEquals(kinds.map((text) => sessionKind(id(text) as SessionId)), [
    "chat",
    "mm",
    "job",
    "heartbeat",
    "sub",
    undefined,
    undefined,
    undefined,
  ]);
});

Deno.test("S1 a call id is a whole number from 1", () => {
  assert(callIdSchema.safeParse(1).success);
  for (const wrong of [0, -1, 1.5, "1", NaN, Infinity, 2 ** 53]) {
    assert(!callIdSchema.safeParse(wrong).success, String(wrong));
  }
});
