// T6 of the owner's given tests.

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { allowPrivate, brokerRig, decisions, privateTrusted, secretTrusted } from "../support/broker_rig.ts";

Deno.test("T6 C6 P1 a session at secret is refused consult under max_taint private, and the audit line holds the body", async () => {
  await using rig = await brokerRig({ grants: allowPrivate });
  const question = "What is 2+2, one word.";
  const refused = await rig.call("chat-a", 1, { label: secretTrusted, arguments: { question } });
  assert(refused.status === "denied");
  assertEquals([refused.code, refused.cause, refused.runbook], ["TaintTooHigh", "class", "taint-too-high"]);
  assertStringIncludes(refused.text, "see docs/runbook.md#taint-too-high");
  assertEquals(rig.endpoint.connections, 0);

  const [decision] = decisions(await rig.records());
  assertEquals([decision.verdict, decision.code, decision.cause], ["deny", "TaintTooHigh", "class"]);
  assertEquals(
    decision.body,
    `{"model":"big-model","temperature":0.6,"messages":[{"role":"user","content":"${question}"}]}`,
  );
  assertEquals(decision.label, secretTrusted);

  // The nearest case that is accepted: the same question from a session at private.
  const allowed = await rig.call("chat-b", 1, { label: privateTrusted, arguments: { question } });
  assertEquals(allowed.status, "ok");
  assertEquals(rig.endpoint.requests.length, 1);
});
