// T1: a child's requests go to the background slot, and the live conversation's prefix survives them.

import { assert, assertEquals, assertGreater, assertStringIncludes } from "@std/assert";
import { calls, callsTool, says, startLoopdRig } from "../support/loopd_rig.ts";
import { assertExtends, lawfulCacheN, recordsOf, textsOf } from "../support/transcript.ts";

Deno.test("T1 P3 S3 S9 a child runs on the background slot, and its parent's next request extends its own prefix on main by the child's result alone", async () => {
  await using rig = await startLoopdRig({
    script: ({ slot, messages }) => {
      if (slot === 2) return says("the child's answer");
      return messages.at(-1)?.role === "tool"
        ? says("done")
        : callsTool("subagent", { task: "count to three" });
    },
  });
  const session = await rig.newSession();
  const outcome = await rig.send(session, "have it counted");
  assertEquals(outcome.status, "completed");

  assertEquals(rig.model.requests.map(({ slot }) => slot), [0, 2, 0]);
  assertEquals(rig.model.requests.map(({ body }) => body?.id_slot), [0, 2, 0]);
  assertEquals(rig.model.collisions, 0);
  const [first, child, second] = rig.model.requests;

  // The parent's call and its result are the newest messages, and nothing else differs.
  const newest = assertExtends(second, first);
  assertEquals(newest.map(({ role }) => role), ["assistant", "tool"]);
  assertEquals(newest[1].content, `subagent sub-${session}-1 completed\nthe child's answer`);

  // The child sees its own baseline and its task behind the time line; no word of its parent's.
  assertEquals(child.messages.map(({ role }) => role), ["system", "user"]);
  assert(/^\[\w{3} \d{4}-\d\d-\d\d \d\d:\d\d, UTC\]\ncount to three$/.test(textsOf(child, "user")[0]));
  assert(!JSON.stringify(child.messages).includes("have it counted"));
  assert(!/\d{4}-\d\d-\d\d/.test(textsOf(child, "system")[0]), "no date stands in the baseline");
});

Deno.test("T1 P3 what a child costs its parent's prompt cache is one token: cache_n is the previous total less one", async () => {
  await using rig = await startLoopdRig({
    script: ({ slot, messages }) => {
      if (slot === 2) {
        return messages.at(-1)?.role === "tool"
          ? says("counted")
          : { ...calls("clock", {}), thinking: "when?" };
      }
      return messages.at(-1)?.role === "tool"
        ? says("done")
        : { ...callsTool("subagent", { task: "count to three" }), thinking: "a child can do that" };
    },
  });
  const session = await rig.newSession();
  for (const text of ["first", "second", "third"]) await rig.send(session, text);

  const main = rig.model.requests.filter(({ slot }) => slot === 0);
  assertEquals(main.length, 6);
  assertGreater(main[0].promptN, 1_000);
  for (const [at, request] of main.entries()) {
    if (at > 0) assertEquals(request.cacheN, lawfulCacheN(main[at - 1]), `request ${at + 1} of the parent`);
  }
  // loopd keeps the same numbers for its owner.
  const kept = recordsOf(await rig.log(session), "assistant").map(({ slot, timings }) => ({
    slot,
    ...timings,
  }));
  assertEquals(
    kept,
    main.map(({ cacheN, promptN, predictedN }) => ({ slot: 0, cacheN, promptN, predictedN })),
  );
});

Deno.test("T1 P3 a call that the template writes anew loses at most that call's own tokens from the prefix", async () => {
  // The model's own spacing is not the template's: the server writes the call anew, and what stood behind it is computed again (facts 2b).
  const raw = '{"name":"subagent",   "arguments":{ "task":"count to three" } }';
  const { first, second } = await spawnWithRawCall(raw, 'history = "structured"');
  const lost = lawfulCacheN(first) - second.cacheN;
  assert(lost > 0, "the case would otherwise show nothing");
  assert(lost <= first.predictedN, `${lost} tokens were lost, of a call of ${first.predictedN}`);
  // The text goes back as the model wrote it: what is lost is the template's doing.
  assertStringIncludes(new TextDecoder().decode(second.bytes), JSON.stringify(raw));
});

Deno.test("T1 P3 where the model's own text goes back as it was written, the same call loses nothing", async () => {
  const raw = '{"name":"subagent",   "arguments":{ "task":"count to three" } }';
  const { first, second } = await spawnWithRawCall(raw, 'history = "raw"');
  assertEquals(second.cacheN, lawfulCacheN(first));
});

/** One child, spawned by a call whose text is `raw`; returns its parent's requests. */
async function spawnWithRawCall(raw: string, toml: string) {
  await using rig = await startLoopdRig({
    toml,
    // A template that insists on pairs of calls and results is one that raw history is not used with.
    model: { strictPairing: toml.includes("structured") },
    script: ({ slot, messages }) => {
      if (slot === 2) return says("the child's answer");
      return messages.at(-1)?.role === "tool"
        ? says("done")
        : { toolCalls: [{ name: "call_tool", arguments: raw }] };
    },
  });
  const outcome = await rig.send(await rig.newSession(), "have it counted");
  assertEquals(outcome.status, "completed");
  assertEquals(outcome.calls, [{ call: 1, tool: "subagent", status: "ok" }]);
  const [first, , second] = rig.model.requests;
  return { first, second };
}
