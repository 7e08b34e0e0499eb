// T1: a child's requests go to the background slot, and the live conversation's prefix survives them.

import { assert, assertEquals } from "@std/assert";
import { calls, callsTool, says, startLoopdRig } from "../support/loopd_rig.ts";

Deno.test("T1 P3 S3 S9 a child runs on the background slot and its parent's next request extends its own prefix on main", async () => {
  await using rig = await startLoopdRig({
    script: ({ slot, index }) => {
      if (slot === 2) return says("the child's answer");
      return index === 0 ? callsTool("subagent", { task: "count to three" }) : says("done");
    },
  });
  const session = await rig.newSession();
  const outcome = await rig.send(session, "have it counted");
  assertEquals(outcome.status, "completed");

  const [parentFirst, child, parentSecond] = rig.model.requests;
  assertEquals([parentFirst, child, parentSecond].map((request) => request.slot), [0, 2, 0]);
  assertEquals(rig.model.requests.length, 3);
  assertEquals(rig.model.collisions, 0);
  const before = parentFirst.messages;
  const after = parentSecond.messages;
  console.log(JSON.stringify(after));
  assertEquals(after.slice(0, before.length), before);
  assert(calls !== undefined);
});
