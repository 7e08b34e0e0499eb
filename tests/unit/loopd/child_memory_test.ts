// S13: a child has no speaker, its log is in the index, and recall inside it is ordinary.

import { assertEquals, assertStringIncludes } from "@std/assert";
import { calls, callsTool, says, startLoopdRig } from "../../support/loopd_rig.ts";

Deno.test("S13 the index holds a child's log for others, and recall in a child finds what earlier sessions said", async () => {
  await using rig = await startLoopdRig({
    script: ({ slot, messages }) => {
      const last = messages.at(-1);
      if (slot === 2) {
        return last?.role === "user" ? calls("recall", { query: "marmalade" }) : says("the jar is quince");
      }
      if (last?.role === "tool") return says("done");
      const text = String(last?.content);
      if (text.includes("delegate")) return callsTool("subagent", { task: "find the jar" });
      if (text.includes("look")) return calls("recall", { query: "quince" });
      return says("noted");
    },
  });
  await rig.send("chat-first", "the marmalade is in the cellar");
  await rig.send("chat-parent", "delegate it");
  const inChild = (await rig.log("sub-chat-parent-1")).find((record) => record.kind === "result");
  assertStringIncludes(
    inChild?.kind === "result" ? inChild.text : "",
    "chat-first (private): the marmalade is in the cellar",
  );
  await rig.send("chat-other", "look for it");
  const elsewhere = (await rig.log("chat-other")).find((record) => record.kind === "result");
  assertStringIncludes(
    elsewhere?.kind === "result" ? elsewhere.text : "",
    "sub-chat-parent-1 (private): the jar is quince",
  );
});

Deno.test("S5 a blank task is invalid-arguments and spawns nothing, a task of one character is run", async () => {
  await using rig = await startLoopdRig({
    script: ({ slot, messages }) => {
      if (slot === 2) return says("child's answer");
      const last = messages.at(-1);
      return last?.role === "user"
        ? callsTool("subagent", { task: String(last.content) === "blank" ? " \n" : "x" })
        : says("done");
    },
  });
  const blank = await rig.send("chat-a", "blank");
  assertEquals(blank.calls.map(({ status, code }) => [status, code]), [["error", "invalid-arguments"]]);
  assertEquals((await rig.send("chat-a", "one")).calls.map(({ status }) => status), ["ok"]);
  assertEquals([...Deno.readDirSync(rig.paths.sessions)].map(({ name }) => name).sort(), [
    "chat-a",
    "sub-chat-a-2",
  ]);
});
