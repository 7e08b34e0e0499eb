// What a crash can leave of brokerd's log, laid out byte by byte, and brokerd started on it. The soak (tools/soak) finds such states by
// killing real processes; here the ones it found are held.

import { assertEquals } from "@std/assert";
import { sha256 } from "../../core/audit/chain.ts";
import { verifyAudit } from "../../core/audit/verify.ts";
import { allowPrivate, brokerRig, privateUntrusted } from "../support/broker_rig.ts";

for (
  const [what, keeps] of [
    ["half of the label record", (label: string) => label.length / 2],
    ["nothing of the label record", () => 0],
  ] as const
) {
  Deno.test(`C7 an answer whose commit was torn after its decision is released under its label: the log kept ${what}`, async () => {
    await using rig = await brokerRig({ grants: allowPrivate });
    const answer = await rig.call("chat-a", 1);
    await rig.stop();
    const path = `${rig.paths.audit}/audit-000001.jsonl`;
    const lines = (await Deno.readTextFile(path)).split("\n");
    const decision = lines.findIndex((line) => line.includes(`"kind":"decision"`));
    const whole = lines.slice(0, decision + 1).map((line) => `${line}\n`);
    const label = lines[decision + 1];
    assertEquals(JSON.parse(label).kind, "label");
    await Deno.writeTextFile(path, whole.join("") + label.slice(0, keeps(label)));
    await Deno.writeTextFile(
      `${rig.paths.audit}/head.json`,
      JSON.stringify({ seq: whole.length, hash: sha256(whole.at(-1)!) }),
    );

    await rig.restart();
    assertEquals(await rig.callState("chat-a", 1), answer);
    // Durable now, not with the next commit.
    const records = await rig.records();
    const raised = records.findLast((record) => record.kind === "label");
    assertEquals(raised?.kind === "label" && raised.label, privateUntrusted);
    assertEquals(await rig.callState("chat-a", 1), answer);
    assertEquals((await rig.records()).length, records.length);
    assertEquals(rig.endpoint.requests.length, 1);
    await rig.stop();
    assertEquals((await verifyAudit(rig.paths.audit)).exit, 0);
  });
}
