// T5: a child is no way to wash a label off: what its parent was, it is, and it writes no more than its parent could.

import { assert, assertEquals, assertMatch } from "@std/assert";
import type { Label } from "../../core/labels.ts";
import { calls, callsTool, says, startLoopdRig } from "../support/loopd_rig.ts";
import { recordsOf, resultsOf, textOf } from "../support/transcript.ts";

const fact = "the owner prefers tea";

/** The parent may first ask the broker for text that is labelled `heard`; then its child adds a fact to identity. */
async function childAddsIdentity(heard: Label | undefined, sensitivity?: string) {
  const rig = await startLoopdRig({
    script: ({ slot, messages }) => {
      const last = messages.at(-1);
      if (slot === 2) {
        return last?.role === "tool"
          ? says("noted")
          : calls("memory", { action: "add", target: "identity", text: fact });
      }
      if (last?.role !== "tool") {
        return heard === undefined
          ? callsTool("subagent", { task: "note it" })
          : callsTool("consult", { question: "what does the owner drink?" });
      }
      return String(last.content).startsWith("subagent")
        ? says("done")
        : callsTool("subagent", { task: "note it" });
    },
    broker: { answer: () => ({ status: "ok", text: "tea, they say", label: heard as Label }) },
  });
  const session = await rig.newSession(sensitivity);
  const outcome = await rig.send(session, "go");
  assertEquals(outcome.status, "completed");
  const childLog = await rig.log(outcome.calls.length === 1 ? `sub-${session}-1` : `sub-${session}-2`);
  return { rig, session, outcome, childLog };
}

Deno.test("T5 S12 the child of an untrusted parent starts untrusted, and its identity add lands in notes.md as a labelled note", async () => {
  const { rig, childLog, outcome } = await childAddsIdentity({ class: "private", untrusted: true });
  await using _ = rig;
  const [{ label, session: child }] = recordsOf(childLog, "open");
  assertEquals(label, { class: "private", untrusted: true });
  assertEquals(await textOf(rig.paths.identity), "");
  assertMatch(
    await textOf(rig.paths.notes),
    new RegExp(`^- \\[private, untrusted, ${child}, \\d{4}-\\d\\d-\\d\\d\\] ${fact}\n$`),
  );
  const [added] = resultsOf(childLog);
  assertEquals(added.status, "ok");
  assert(added.text.includes("notes") && added.text.includes("not in identity"), added.text);
  assertEquals(outcome.label, { class: "private", untrusted: true });
});

Deno.test("T5 S12 the child of a secret parent starts secret, and its identity add lands in notes.md as a labelled note", async () => {
  const { rig, childLog } = await childAddsIdentity(undefined, "secret");
  await using _ = rig;
  assertEquals(recordsOf(childLog, "open")[0].label, { class: "secret", untrusted: false });
  assertEquals(await textOf(rig.paths.identity), "");
  assertMatch(await textOf(rig.paths.notes), /^- \[secret, sub-[a-z0-9-]+-1, \d{4}-\d\d-\d\d\] /);
});

Deno.test("T5 S12 the child of a trusted private parent writes identity.md", async () => {
  const { rig, childLog, outcome } = await childAddsIdentity(undefined);
  await using _ = rig;
  assertEquals(recordsOf(childLog, "open")[0].label, { class: "private", untrusted: false });
  assertEquals(await textOf(rig.paths.notes), "");
  assertMatch(
    await textOf(rig.paths.identity),
    new RegExp(`^- \\[private, sub-[a-z0-9-]+-1, \\d{4}-\\d\\d-\\d\\d\\] ${fact}\n$`),
  );
  assertEquals(outcome.label, { class: "private", untrusted: false });
});
