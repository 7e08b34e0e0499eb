// T4: a child may have a child. Nothing deadlocks on the one background slot, and every level reads how the next one ended.

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { callsTool, says, startLoopdRig } from "../support/loopd_rig.ts";
import { assertExtends, lawfulCacheN, namesIn, recordsOf, resultsOf } from "../support/transcript.ts";

/** Each session spawns with the task that follows its own in the list, and answers when its child has. */
function chain(tasks: readonly string[]) {
  return ({ messages }: { messages: readonly { role: string; content?: unknown }[] }) => {
    const asked = String(messages.find(({ role }) => role === "user")?.content);
    const at = tasks.findIndex((task) => asked.endsWith(task));
    const next = tasks[at + 1];
    const waits = next !== undefined && messages.at(-1)?.role !== "tool";
    return waits ? callsTool("subagent", { task: next }) : says(`answer to: ${tasks[at]}`);
  };
}

Deno.test("T4 S14 the middle child's tool result holds the grandchild's completion message, and every prefix still extends", async () => {
  await using rig = await startLoopdRig({ script: chain(["the whole", "the half", "the quarter"]) });
  const root = await rig.newSession();
  const outcome = await rig.send(root, "the whole");
  assertEquals(outcome.content, "answer to: the whole");

  const child = `sub-${root}-1`;
  const grandchild = `sub-${child}-1`;
  assertEquals(await namesIn(rig.paths.sessions), [root, child, grandchild].sort());
  assertEquals(resultsOf(await rig.log(child)).map(({ text }) => text), [
    `subagent ${grandchild} completed\nanswer to: the quarter`,
  ]);
  assertEquals(resultsOf(await rig.log(root)).map(({ text }) => text), [
    `subagent ${child} completed\nanswer to: the half`,
  ]);
  assertEquals(recordsOf(await rig.log(grandchild), "open")[0].parent, child);

  // Root, child, grandchild, child, root: one slot is enough, for nobody holds it while it waits.
  const [rootFirst, childFirst, grandchildOnly, childSecond, rootSecond] = rig.model.requests;
  assertEquals(rig.model.requests.map(({ slot }) => slot), [0, 2, 2, 2, 0]);
  assertEquals(rig.model.collisions, 0);
  assertEquals(assertExtends(rootSecond, rootFirst).map(({ role }) => role), ["assistant", "tool"]);
  assertEquals(assertExtends(childSecond, childFirst).map(({ role }) => role), ["assistant", "tool"]);
  assertEquals(rootSecond.cacheN, lawfulCacheN(rootFirst));
  assert(
    !JSON.stringify(grandchildOnly.messages).includes("the half"),
    "a grandchild sees its own task alone",
  );
});

Deno.test("T4 S2 S14 a nested id over 64 characters is invalid-arguments in the session that asked, and the tree ends well", async () => {
  const root = "mm-" + "b".repeat(49);
  const child = `sub-${root}-1`;
  const grandchild = `sub-${child}-1`;
  assertEquals([child.length, grandchild.length], [58, 64]);
  await using rig = await startLoopdRig({ script: chain(["one", "two", "three", "four"]) });
  const outcome = await rig.send(root, "one");

  assertEquals(outcome.content, "answer to: one");
  assertEquals(await namesIn(rig.paths.sessions), [root, child, grandchild].sort());
  const [refused] = resultsOf(await rig.log(grandchild));
  assertEquals([refused.status, refused.code], ["error", "invalid-arguments"]);
  assertStringIncludes(refused.text, `sub-${grandchild}-1`);
  assertStringIncludes(refused.text, "docs/runbook.md#subagent-id");
  assertEquals(resultsOf(await rig.log(child)).map(({ text }) => text), [
    `subagent ${grandchild} completed\nanswer to: three`,
  ]);
});
