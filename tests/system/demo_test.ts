// The demo as its owner runs it: a process of its own, real roles below it. Its proofs hold, each can be made to fail alone, and whatever
// ends it, nothing is left: no file in the temporary directory, no process, no change in the owner's own home.

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { withoutTrace } from "../support/private_run.ts";

const demo = "tools/demo/main.ts";

Deno.test("P1 P2 P3 the demo shows all three proofs, exits 0 and leaves nothing behind", () =>
  withoutTrace(async ({ run }) => {
    const { code, stdout, last } = await run(demo, ["--json"]);
    assertEquals([code, last.ok], [0, true], stdout);
    const [p1, p2, p3] = last.proofs;
    assertEquals([p1.id, p1.ok, p1.code, p1.cause], ["P1", true, "TaintTooHigh", "untrusted"]);
    assertEquals(p1.recorderAfter, p1.recorderBefore);
    assertEquals([p2.id, p2.ok, p2.wireSha256], ["P2", true, p2.auditSha256]);
    assert(/^[0-9a-f]{64}$/.test(p2.wireSha256));
    assertEquals([p3.id, p3.ok, p3.childSlots, p3.mainSlot], ["P3", true, [2, 2], 0]);
    // The law of the prefix: everything but the last sampled token.
    assertEquals(p3.cacheN, p3.previousTotal - 1);
    assert(p3.previousTotal > 1_000, "a short prefix would show little");
    assertEquals(stdout.match(/^P[123] ok /gm)?.length, 3);
    assertStringIncludes(stdout, p2.wireSha256);
  }));

const sabotages = [
  { id: "P1", reason: "the consult was denied TaintTooHigh" },
  { id: "P2", reason: "byte for byte equal: 0 of" },
  { id: "P3", reason: "the parent's next request found 0 of" },
];

for (const { id, reason } of sabotages) {
  Deno.test(`${id} the demo exits 1 when ${id} is sabotaged, and the other two proofs hold`, () =>
    withoutTrace(async ({ run }) => {
      const { code, stdout, last } = await run(demo, ["--json", "--sabotage", id]);
      assertEquals([code, last.ok], [1, false], stdout);
      const failed = last.proofs.filter(({ ok }: { ok: boolean }) => !ok);
      assertEquals(failed.map((proof: { id: string }) => proof.id), [id]);
      assertStringIncludes(failed[0].reason, reason);
    }));
}

Deno.test("P1 P2 P3 a demo that is ended in the middle exits with the signal's code and leaves nothing behind", () =>
  withoutTrace(async ({ start }) => {
    const child = start(demo, []);
    await child.until("P1  A tainted session");
    child.kill("SIGTERM");
    assertEquals((await child.ended()).code, 143);
  }));

Deno.test("P1 P2 P3 the demo refuses a word it does not know with exit 2 and makes no home; --help is exit 0", () =>
  withoutTrace(async ({ run }) => {
    for (const words of [["--sabotage", "P4"], ["--nope"], ["P1"]]) {
      const { code, stdout, stderr } = await run(demo, words);
      assertEquals([code, stdout], [2, ""]);
      assertStringIncludes(stderr, "deno task demo [--json]");
    }
    assertEquals((await run(demo, ["--help"])).code, 0);
  }));
