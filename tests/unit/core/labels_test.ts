// Labels: six elements, so every law is tested over all of them outright.

import { assert, assertEquals } from "@std/assert";
import {
  classAtMost,
  describeLabel,
  joinLabels,
  type Label,
  labelAtMost,
  labelSchema,
  labelsEqual,
  publicTrusted,
  sensitivityClasses,
} from "../../../core/labels.ts";

const labels: Label[] = sensitivityClasses.flatMap((sensitivity) =>
  [false, true].map((untrusted) => ({ class: sensitivity, untrusted }))
);

Deno.test("B7 all 36 joins are the higher class and untrusted if either is", () => {
  const rank = { public: 0, private: 1, secret: 2 };
  assertEquals(labels.length, 6);
  for (const a of labels) {
    for (const b of labels) {
      assertEquals(joinLabels(a, b), {
        class: rank[a.class] >= rank[b.class] ? a.class : b.class,
        untrusted: a.untrusted || b.untrusted,
      });
    }
  }
});

Deno.test("B7 all 216 triples join alike from either end", () => {
  let triples = 0;
  for (const a of labels) {
    for (const b of labels) {
      for (const c of labels) {
        assertEquals(joinLabels(joinLabels(a, b), c), joinLabels(a, joinLabels(b, c)));
        triples++;
      }
    }
  }
  assertEquals(triples, 216);
});

Deno.test("B7 a join does not depend on the order, changes nothing with itself, and public trusted is its bottom", () => {
  for (const a of labels) {
    assertEquals(joinLabels(a, a), a);
    assertEquals(joinLabels(a, publicTrusted), a);
    for (const b of labels) assertEquals(joinLabels(a, b), joinLabels(b, a));
  }
});

Deno.test("B7 a label never falls through a join, and the join is the least that covers both", () => {
  for (const a of labels) {
    for (const b of labels) {
      const joined = joinLabels(a, b);
      assert(labelAtMost(a, joined) && labelAtMost(b, joined));
      for (const other of labels) {
        if (labelAtMost(a, other) && labelAtMost(b, other)) assert(labelAtMost(joined, other));
      }
    }
  }
});

Deno.test("B7 the order holds the class and the trust apart: secret trusted and public untrusted are not comparable", () => {
  const secretTrusted: Label = { class: "secret", untrusted: false };
  const publicUntrusted: Label = { class: "public", untrusted: true };
  assert(!labelAtMost(secretTrusted, publicUntrusted));
  assert(!labelAtMost(publicUntrusted, secretTrusted));
  for (const a of labels) {
    assert(labelAtMost(a, a));
    for (const b of labels) {
      assertEquals(labelAtMost(a, b) && labelAtMost(b, a), labelsEqual(a, b));
      assertEquals(labelAtMost(a, b), labelsEqual(joinLabels(a, b), b));
      for (const c of labels) {
        if (labelAtMost(a, b) && labelAtMost(b, c)) assert(labelAtMost(a, c));
      }
    }
  }
});

Deno.test("B7 classes stand in the order public, private, secret", () => {
  assertEquals(sensitivityClasses, ["public", "private", "secret"]);
  assertEquals(
    sensitivityClasses.map((a) => sensitivityClasses.map((b) => classAtMost(a, b))),
    [[true, true, true], [false, true, true], [false, false, true]],
  );
});

Deno.test("B7 a label from outside has a known class and a boolean, and nothing else", () => {
  assert(labelSchema.safeParse({ class: "secret", untrusted: true }).success);
  for (
    const wrong of [
      { class: "Secret", untrusted: true },
      { class: "secret", untrusted: "true" },
      { class: "secret" },
      { untrusted: false },
      { class: "secret", untrusted: true, trusted: true },
      JSON.parse('{"class":"secret","untrusted":true,"__proto__":{"untrusted":false}}'),
      "secret",
      null,
      ["secret", true],
    ]
  ) assert(!labelSchema.safeParse(wrong).success, JSON.stringify(wrong));
});

Deno.test("B7 the bottom label cannot be changed by whoever holds it", () => {
  assert(Object.isFrozen(publicTrusted));
  assertEquals(publicTrusted, { class: "public", untrusted: false });
});

Deno.test("B7 a label is described by its class, and by untrusted only where it is", () => {
  assertEquals(labels.map(describeLabel), [
    "public",
    "public, untrusted",
    "private",
    "private, untrusted",
    "secret",
    "secret, untrusted",
  ]);
});
