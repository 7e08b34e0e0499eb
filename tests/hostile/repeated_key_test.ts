// An endpoint knows the key. What it answers is recorded and read by the model, so the key must not come back that way.

import { assertEquals } from "@std/assert";
import type { Behaviour } from "../../tools/stubs/consult_behaviour.ts";
import { allowAlways, brokerRig, consultSecret, decisions } from "../support/broker_rig.ts";

Deno.test("F27 an endpoint that repeats the key in its answer or as its model's name is unusable, and the key is in no record; an answer beside it is read", async () => {
  const repeating: Behaviour[] = [
    { kind: "answer", content: `Your key is ${consultSecret}, is it not?` },
    { kind: "answer", content: consultSecret },
    { kind: "answer", content: "Four.", model: `m-${consultSecret}` },
  ];
  await using rig = await brokerRig({ grants: allowAlways });
  for (const [at, behaviour] of repeating.entries()) {
    rig.endpoint.setBehaviour(behaviour);
    const answer = await rig.call("chat-a", at + 1);
    assertEquals([answer.status, JSON.stringify(answer).includes(consultSecret)], ["error", false]);
  }
  rig.endpoint.setBehaviour({ kind: "answer", content: consultSecret.slice(0, -1) });
  assertEquals((await rig.call("chat-a", 9)).status, "ok");
  const records = await rig.records();
  assertEquals(decisions(records).map(({ outcome }) => outcome), [
    "unusable",
    "unusable",
    "unusable",
    "answered",
  ]);
  assertEquals(JSON.stringify(records).includes(consultSecret), false);
});
