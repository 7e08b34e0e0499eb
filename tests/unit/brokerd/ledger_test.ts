// The ledger's rules, asked of a real brokerd through broker.sock and read back from its log.

import { assert, assertEquals } from "@std/assert";
import {
  allowAlways,
  allowPrivate,
  brokerRig,
  decisions,
  privateTrusted,
  privateUntrusted,
  secretTrusted,
} from "../../support/broker_rig.ts";
import type { AuditRecord } from "../../../core/audit/record.ts";
import type { Label } from "../../../core/labels.ts";

const publicTrusted: Label = { class: "public", untrusted: false };

Deno.test("the ledger joins what is stated with what it knows, so that a claim can only raise", async () => {
  await using rig = await brokerRig({ grants: allowPrivate });
  assertEquals(await rig.label("chat-a", privateTrusted), privateTrusted);
  assertEquals(await rig.label("chat-a", secretTrusted), secretTrusted);
  assertEquals(await rig.label("chat-a", publicTrusted), secretTrusted);
  const refused = await rig.call("chat-a", 1, { label: publicTrusted });
  assert(refused.status === "denied");
  assertEquals([refused.code, refused.cause], ["TaintTooHigh", "class"]);
  assertEquals(rig.endpoint.connections, 0);
});

Deno.test("a child needs a known parent, is born at its parent's label, and raising it raises its ancestors alone", async () => {
  await using rig = await brokerRig();
  const unknown = await rig.loop("POST", "/v1/label", { session: "sub-chat-a-1", label: privateTrusted });
  assertEquals(unknown.httpStatus, 400);
  assertEquals((unknown.body as { code: string }).code, "unknown-session");
  const call = { session: "sub-chat-a-1", call: 1, tool: "consult", arguments: {}, label: privateTrusted };
  assertEquals((await rig.loop("POST", "/v1/call", call)).httpStatus, 400);
  assertEquals((await rig.records()).filter((record) => record.kind === "label"), []);

  await rig.label("chat-a", privateUntrusted);
  await rig.label("chat-b", publicTrusted);
  assertEquals(await rig.label("sub-chat-a-1", publicTrusted), privateUntrusted);
  assertEquals(await rig.label("sub-chat-a-2", publicTrusted), privateUntrusted);
  assertEquals(await rig.label("sub-sub-chat-a-1-7", secretTrusted), { class: "secret", untrusted: true });
  const { body } = await rig.owner("GET", "/v1/ledger");
  const secretUntrusted = { class: "secret", untrusted: true };
  assertEquals((body as { sessions: unknown }).sessions, [
    { session: "chat-a", label: secretUntrusted },
    { session: "chat-b", label: publicTrusted },
    { session: "sub-chat-a-1", label: secretUntrusted },
    { session: "sub-chat-a-2", label: privateUntrusted },
    { session: "sub-sub-chat-a-1-7", label: secretUntrusted },
  ]);
});

Deno.test("a sub- id whose end is no decimal without a leading zero names no parent", async () => {
  await using rig = await brokerRig();
  await rig.label("chat-a", privateTrusted);
  for (const session of ["sub-chat-a-0", "sub-chat-a-01", "sub-chat-a", "sub-1", "sub--1", "sub-chat-a-"]) {
    const { httpStatus, body } = await rig.loop("POST", "/v1/label", { session, label: privateTrusted });
    assertEquals([session, httpStatus, (body as { code: string }).code], [session, 400, "unknown-session"]);
  }
  assertEquals(await rig.label("sub-chat-a-10", privateTrusted), privateTrusted);
});

Deno.test("S2 ids outside [a-z0-9-] or over 64 characters are refused, 64 are accepted", async () => {
  await using rig = await brokerRig();
  for (const session of ["", "a".repeat(65), "Chat", "chat_a", "../x", "chat\u0000", "ｃhat", "chat a"]) {
    const { httpStatus } = await rig.loop("POST", "/v1/label", { session, label: privateTrusted });
    assertEquals([session, httpStatus], [session, 400]);
  }
  assertEquals(await rig.label("a".repeat(64), privateTrusted), privateTrusted);
});

Deno.test("C7 an answered consult raises its session and every ancestor, recorded before the answer is released", async () => {
  await using rig = await brokerRig({ grants: allowPrivate });
  await rig.label("chat-a", privateTrusted);
  const answer = await rig.call("sub-chat-a-1", 1);
  assertEquals(answer.status, "ok");
  const last = (await rig.records()).slice(-3);
  assertEquals(
    last.map((record) => `${record.kind} ${"session" in record ? record.session : ""}`),
    ["decision sub-chat-a-1", "label chat-a", "label sub-chat-a-1"],
  );
  const refused = await rig.call("chat-a", 2);
  assert(refused.status === "denied");
  assertEquals([refused.code, refused.cause], ["TaintTooHigh", "untrusted"]);
});

Deno.test("the ledger is the same after a restart, and after a restart of a log with many segments", async () => {
  await using rig = await brokerRig({ grants: allowAlways, audit: { segmentBytesMax: 3_000 } });
  for (let n = 1; n <= 10; n++) {
    await rig.call("chat-a", n);
    await rig.label(`sub-chat-a-${n}`, n % 3 === 0 ? secretTrusted : privateTrusted);
    await rig.label(`chat-${n}`, n % 2 === 0 ? privateUntrusted : publicTrusted);
  }
  const before = (await rig.owner("GET", "/v1/ledger")).body;
  await rig.restart();
  assertEquals((await rig.owner("GET", "/v1/ledger")).body, before);
  assertEquals((await rig.call("chat-a", 7)).status, "error");
});

Deno.test("the label in each decision equals the fold of the log up to it, with raises racing consults in flight", async () => {
  await using rig = await brokerRig({ grants: allowAlways });
  await rig.label("chat-a", publicTrusted);
  await Promise.all(Array.from({ length: 40 }, (_, n) => {
    const session = n % 4 === 0 ? "chat-a" : `sub-chat-a-${n % 4}`;
    if (n % 5 === 0) return rig.label(session, n > 20 ? secretTrusted : privateTrusted);
    return rig.call(session, n + 1, { label: publicTrusted });
  }));
  const records = await rig.records();
  assertEquals(decisions(records).filter((decision) => decision.outcome === "answered").length, 32);
  assertLabelsAreTheFold(records);
});

function assertLabelsAreTheFold(records: readonly AuditRecord[]): void {
  const fold = new Map<string, Label>();
  for (const record of records) {
    if (record.kind === "label") fold.set(record.session, record.label);
    if (record.kind === "decision" || record.kind === "intent") {
      assertEquals(record.label, fold.get(record.session));
    }
  }
}
