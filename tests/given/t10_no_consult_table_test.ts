// T10 of the owner's given tests.

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { allowPrivate, brokerRig, decisions } from "../support/broker_rig.ts";

Deno.test("T10 C10 without [consult] every call is NotConfigured with the runbook pointer, and the question is audited without a body", async () => {
  await using rig = await brokerRig({ grants: allowPrivate, consult: false });
  const refused = await rig.call("chat-a", 1, { arguments: { question: "Anyone?" } });
  assert(refused.status === "denied");
  assertEquals([refused.code, refused.runbook], ["NotConfigured", "consult-not-configured"]);
  assertStringIncludes(refused.text, "denied: NotConfigured");
  assertStringIncludes(refused.text, "see docs/runbook.md#consult-not-configured");
  const [decision] = decisions(await rig.records());
  assertEquals([decision.code, decision.question, decision.body], ["NotConfigured", "Anyone?", undefined]);

  // With [consult] and the same grant it is answered.
  await using configured = await brokerRig({ grants: allowPrivate });
  assertEquals((await configured.call("chat-a", 1)).status, "ok");
});
