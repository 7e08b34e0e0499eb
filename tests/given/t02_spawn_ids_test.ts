// T2: a child's id is its parent's and the number of the call that spawned it.

import { assertEquals } from "@std/assert";
import { calls, callsTool, says, startLoopdRig } from "../support/loopd_rig.ts";
import { namesIn, recordsOf, resultsOf } from "../support/transcript.ts";

const channel = `mm-${"k7".repeat(13)}`;

Deno.test("T2 S1 S15 a channel's spawn at call 3 is sub-mm-…-3, the next is …-4, and both are sessions of their own", async () => {
  await using rig = await startLoopdRig({
    script: ({ slot, messages }) => {
      if (slot === 2) return says("child's answer");
      const results = messages.filter(({ role }) => role === "tool").length;
      if (results < 2) return calls("clock", {});
      return results < 4 ? callsTool("subagent", { task: `piece ${results + 1}` }) : says("done");
    },
  });
  assertEquals(channel.length, 29);
  const outcome = await rig.send(channel, "work");
  assertEquals(outcome.calls, [
    { call: 1, tool: "clock", status: "ok" },
    { call: 2, tool: "clock", status: "ok" },
    { call: 3, tool: "subagent", status: "ok" },
    { call: 4, tool: "subagent", status: "ok" },
  ]);
  assertEquals(await namesIn(rig.paths.sessions), [channel, `sub-${channel}-3`, `sub-${channel}-4`]);
  assertEquals(resultsOf(await rig.log(channel)).slice(2).map(({ text }) => text.split("\n")[0]), [
    `subagent sub-${channel}-3 completed`,
    `subagent sub-${channel}-4 completed`,
  ]);
  const child = await rig.log(`sub-${channel}-4`);
  assertEquals(recordsOf(child, "open")[0].parent, channel);
  assertEquals(recordsOf(child, "user")[0].text.split("\n").slice(1), ["piece 4"]);
});

Deno.test("T2 S1 two spawns in one message count as the two calls they are, and a later turn goes on counting", async () => {
  await using rig = await startLoopdRig({
    script: ({ slot, messages }) => {
      if (slot === 2) return says("child's answer");
      if (messages.at(-1)?.role === "tool") return says("done");
      const spawn = (task: string) => ({
        name: "call_tool",
        arguments: { name: "subagent", arguments: { task } },
      });
      return { toolCalls: [spawn("one"), spawn("two")] };
    },
  });
  await rig.send(channel, "first turn");
  await rig.send(channel, "second turn");
  assertEquals(
    await namesIn(rig.paths.sessions),
    [channel, ...[1, 2, 3, 4].map((call) => `sub-${channel}-${call}`)],
  );
});
