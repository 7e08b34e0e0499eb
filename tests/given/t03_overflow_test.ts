// T3: a child whose id would not fit is refused, and nothing of it begins.

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { calls, callsTool, says, startLoopdRig } from "../support/loopd_rig.ts";
import { namesIn, recordsOf, resultsOf } from "../support/transcript.ts";

const spawnOnce = ({ slot, messages }: { slot: number; messages: readonly { role: string }[] }) => {
  if (slot === 2) return says("child's answer");
  return messages.at(-1)?.role === "tool" ? says("done") : callsTool("subagent", { task: "work" });
};

Deno.test("T3 S2 K2 a child's id of 65 characters is refused as invalid-arguments, names itself and its runbook entry, and leaves no session", async () => {
  await using rig = await startLoopdRig({ script: spawnOnce });
  const parent = "mm-" + "a".repeat(56);
  const childId = `sub-${parent}-1`;
  assertEquals(childId.length, 65);
  const outcome = await rig.send(parent, "go");

  assertEquals(outcome.status, "completed");
  assertEquals(outcome.calls, [{ call: 1, tool: "subagent", status: "error", code: "invalid-arguments" }]);
  const [{ text }] = resultsOf(await rig.log(parent));
  assert(text.startsWith("error: invalid-arguments: "), text);
  assertStringIncludes(text, childId);
  assertStringIncludes(text, "docs/runbook.md#subagent-id");
  assertEquals(await namesIn(rig.paths.sessions), [parent]);
  assertEquals(recordsOf(await rig.log(parent), "spawn"), []);
  assertEquals(rig.model.requests.map(({ slot }) => slot), [0, 0]);
});

Deno.test("T3 S2 a child's id of 64 characters is made", async () => {
  await using rig = await startLoopdRig({ script: spawnOnce });
  const parent = "mm-" + "a".repeat(55);
  const childId = `sub-${parent}-1`;
  assertEquals(childId.length, 64);
  const outcome = await rig.send(parent, "go");

  assertEquals(outcome.calls, [{ call: 1, tool: "subagent", status: "ok" }]);
  assertEquals(await namesIn(rig.paths.sessions), [parent, childId]);
});

Deno.test("T3 S2 the tenth call's longer number counts: the same parent spawns at call 9 and is refused at call 10", async () => {
  await using rig = await startLoopdRig({
    script: ({ slot, messages }) => {
      if (slot === 2) return says("child's answer");
      const results = messages.filter(({ role }) => role === "tool").length;
      if (results < 8) return calls("clock", {});
      return results < 10 ? callsTool("subagent", { task: "work" }) : says("done");
    },
  });
  const parent = "mm-" + "a".repeat(55);
  const outcome = await rig.send(parent, "go");
  assertEquals(outcome.calls.slice(8), [
    { call: 9, tool: "subagent", status: "ok" },
    { call: 10, tool: "subagent", status: "error", code: "invalid-arguments" },
  ]);
  assertEquals(await namesIn(rig.paths.sessions), [parent, `sub-${parent}-9`]);
});
