// mode = "ask": what the owner sees, what his word is bound to, and everything that ends the wait without it.

import { assert, assertEquals } from "@std/assert";
import {
  allowPrivate,
  askPrivate,
  type BrokerRig,
  brokerRig,
  decisions,
  privateTrusted,
  privateUntrusted,
} from "../../support/broker_rig.ts";
import { fakeClock } from "../../support/fake_clock.ts";
import { sha256 } from "../../../core/audit/chain.ts";
import { verifyAudit } from "../../../core/audit/verify.ts";
import { listSegments } from "../../../core/audit/segments.ts";
import type { CallAnswer } from "../../../core/protocol/broker.ts";

const decide = (rig: BrokerRig, id: string, decision: "approve" | "deny", bodySha256: string) =>
  rig.owner("POST", `/v1/approvals/${id}`, { decision, bodySha256 });
const codeOf = (answer: CallAnswer) => answer.status === "ok" ? "ok" : answer.code;

Deno.test("B10 F9 nested calls that wait are listed with ancestry, label, exact body, hash and expiry, and approve sends those bytes once", async () => {
  const clock = fakeClock();
  await using rig = await brokerRig({ grants: askPrivate, clock });
  await rig.label("chat-a", privateTrusted);
  await rig.label("sub-chat-a-1", privateTrusted);
  const first = rig.call("sub-sub-chat-a-1-2", 4, { arguments: { question: "First?" } });
  const second = rig.call("chat-b", 9, { arguments: { question: "Second?" } });
  while ((await rig.approvals()).length < 2);
  const [one, two] = await rig.approvals();
  const body = '{"model":"big-model","temperature":0.6,"messages":[{"role":"user","content":"First?"}]}';
  assertEquals({ ...one }, {
    id: one.id,
    status: "pending",
    session: "sub-sub-chat-a-1-2" as typeof one.session,
    ancestors: ["sub-chat-a-1", "chat-a"] as typeof one.ancestors,
    call: 4,
    tool: "consult",
    label: privateTrusted,
    grant: 1,
    body,
    bodySha256: sha256(body),
    expiresAt: new Date(clock.now() + 3_600_000).toISOString(),
  });
  assertEquals(await rig.callState("sub-sub-chat-a-1-2", 4), { status: "waiting", approval: one.id });
  assertEquals(rig.endpoint.connections, 0);

  assertEquals((await decide(rig, one.id, "approve", one.bodySha256)).httpStatus, 200);
  assertEquals((await first).status, "ok");
  assertEquals(rig.endpoint.requests.map((request) => new TextDecoder().decode(request.body)), [body]);
  assertEquals((await decide(rig, two.id, "deny", two.bodySha256)).httpStatus, 200);
  const denied = await second;
  assert(denied.status === "denied");
  assertEquals([denied.code, denied.runbook], ["ApprovalDenied", "approval"]);
  assertEquals(rig.endpoint.requests.length, 1);
  const states = (await rig.records()).filter((record) => record.kind === "approval").map(({ state }) =>
    state
  );
  assertEquals(states, ["asked", "asked", "approved", "denied"]);
  const refused = decisions(await rig.records()).find(({ verdict }) => verdict === "deny");
  assertEquals(refused?.body, two.body);
});

Deno.test("B10 a call is shown to the owner only once the record that he was asked is durable", async () => {
  let gate: Promise<void> = Promise.resolve();
  await using rig = await brokerRig({
    grants: askPrivate,
    audit: {
      openFile: (path, options) => {
        const file = Deno.openSync(path, options);
        return {
          writeSync: (bytes) => file.writeSync(bytes),
          syncData: async () => {
            await gate;
            await file.syncData();
          },
          close: () => file.close(),
        };
      },
    },
  });
  const { promise, resolve } = Promise.withResolvers<void>();
  gate = promise;
  const waiting = rig.call("chat-a", 1);
  while ((await rig.callState("chat-a", 1)).status === "unknown");
  while (!(await rig.records()).some(({ kind }) => kind === "approval"));
  assertEquals(await rig.approvals(), []);
  assertEquals(await rig.callState("chat-a", 1), { status: "running" });
  resolve();
  const { id, bodySha256 } = await rig.nextApproval();
  await decide(rig, id, "deny", bodySha256);
  assertEquals(codeOf(await waiting), "ApprovalDenied");
});

Deno.test("B10 F31 an approval is valid once, for its hash and its id alone", async () => {
  await using rig = await brokerRig({ grants: askPrivate });
  const waiting = rig.call("chat-a", 1);
  const { id, bodySha256 } = await rig.nextApproval();
  assertEquals((await decide(rig, id, "approve", sha256("other"))).httpStatus, 409);
  assertEquals((await decide(rig, "a999", "approve", bodySha256)).httpStatus, 404);
  const malformed = await rig.owner("POST", `/v1/approvals/${id}`, { decision: "yes", bodySha256 });
  assertEquals(malformed.httpStatus, 400);
  assertEquals((await rig.approvals()).length, 1);
  const [once, twice] = await Promise.all([
    decide(rig, id, "approve", bodySha256),
    decide(rig, id, "approve", bodySha256),
  ]);
  assertEquals([once.httpStatus, twice.httpStatus].sort(), [200, 404]);
  assertEquals((await waiting).status, "ok");
  assertEquals((await decide(rig, id, "approve", bodySha256)).httpStatus, 404);
  assertEquals(rig.endpoint.requests.length, 1);
});

Deno.test("B10 the call waits as long as it takes: past the consult's timeout, up to expire_minutes and not beyond", async () => {
  for (const [waitMs, code] of [[119_999, "ok"], [120_000, "ApprovalExpired"]] as const) {
    const clock = fakeClock();
    await using rig = await brokerRig({
      grants: askPrivate,
      consult: "timeout_ms = 1000",
      brokerdToml: "[approvals]\nexpire_minutes = 2\n",
      clock,
    });
    const waiting = rig.call("chat-a", 1);
    const { id, bodySha256 } = await rig.nextApproval();
    await clock.advance(waitMs);
    const { httpStatus } = await decide(rig, id, "approve", bodySha256);
    assertEquals(httpStatus, code === "ok" ? 200 : 404);
    assertEquals(codeOf(await waiting), code);
    assertEquals(rig.endpoint.requests.length, code === "ok" ? 1 : 0);
  }
});

Deno.test("B10 a raise of the session voids it, through a child too; a raise of another session does not", async () => {
  await using rig = await brokerRig({ grants: `${askPrivate}allow_untrusted = true\n` });
  const waiting = rig.call("chat-a", 1);
  const { id, bodySha256 } = await rig.nextApproval();
  await rig.label("chat-b", privateUntrusted);
  await rig.label("sub-chat-a-7", privateTrusted);
  assertEquals((await rig.approvals()).length, 1);
  await rig.label("sub-chat-a-7", privateUntrusted);
  const answer = await waiting;
  assertEquals(codeOf(answer), "ApprovalDenied");
  assertEquals((await decide(rig, id, "approve", bodySha256)).httpStatus, 404);
  assertEquals(rig.endpoint.connections, 0);
  const records = await rig.records();
  const [decision] = decisions(records);
  // Decided under the label that holds now, which is the fold of the log.
  assertEquals([decision.code, decision.label], ["ApprovalDenied", privateUntrusted]);
});

Deno.test("B10 F8 a closed call voids it: the owner's late word sends nothing", async () => {
  await using rig = await brokerRig({ grants: askPrivate });
  const leave = new AbortController();
  const waiting = rig.call("chat-a", 1, { signal: leave.signal }).catch((error) => error);
  const { id, bodySha256 } = await rig.nextApproval();
  leave.abort();
  await waiting;
  while ((await rig.approvals()).length > 0);
  assertEquals((await decide(rig, id, "approve", bodySha256)).httpStatus, 404);
  while ((await rig.callState("chat-a", 1)).status !== "denied");
  const state = await rig.callState("chat-a", 1);
  assertEquals(state.status === "denied" && state.code, "ApprovalDenied");
  assertEquals(rig.endpoint.connections, 0);
});

Deno.test("B10 a stop and a kill each void it; after the restart the call is ApprovalDenied and a duplicate", async () => {
  for (const killed of [false, true]) {
    await using rig = await brokerRig({ grants: askPrivate });
    const waiting = rig.call("chat-a", 1).catch((error) => error);
    const { id, bodySha256 } = await rig.nextApproval();
    await rig.stop();
    await waiting;
    if (killed) {
      // What a kill leaves: the log as it was when the owner was asked.
      const [{ path }] = await listSegments(rig.paths.audit);
      const lines = (await Deno.readTextFile(path)).split("\n");
      const asked = lines.findIndex((line) => line.includes('"state":"asked"'));
      await Deno.writeTextFile(path, `${lines.slice(0, asked + 1).join("\n")}\n`);
      await Deno.remove(`${rig.paths.audit}/head.json`);
    }
    await rig.restart();
    assertEquals(await rig.approvals(), []);
    assertEquals((await decide(rig, id, "approve", bodySha256)).httpStatus, 404);
    const state = await rig.callState("chat-a", 1);
    assertEquals(state.status === "denied" && state.code, "ApprovalDenied");
    assertEquals(codeOf(await rig.call("chat-a", 1)), "duplicate-call");
    assertEquals(rig.endpoint.connections, 0);
    const [decision] = decisions(await rig.records());
    assertEquals([decision.code, decision.bodySha256], ["ApprovalDenied", bodySha256]);
    await rig.stop();
    assertEquals((await verifyAudit(rig.paths.audit)).exit, 0);
  }
});

Deno.test("B10 a reload voids what rests on a changed or removed grant and leaves the rest waiting", async () => {
  const grants = (limit: string) =>
    `[[grant]]\ntool = "consult"\nmax_taint = "${limit}"\nmode = "ask"\nsessions = ["chat-a"]\n` +
    `[[grant]]\ntool = "consult"\nmax_taint = "private"\nmode = "ask"\nsessions = ["chat-b"]\n`;
  await using rig = await brokerRig({ grants: grants("private") });
  const voided = rig.call("chat-a", 1);
  await rig.nextApproval();
  const kept = rig.call("chat-b", 1);
  while ((await rig.approvals()).length < 2);
  await Deno.writeTextFile(rig.paths.grantsToml, `# the same again\n${grants("private")}`);
  assertEquals((await rig.owner("POST", "/v1/grants/reload", {})).httpStatus, 200);
  assertEquals((await rig.approvals()).length, 2);
  await Deno.writeTextFile(rig.paths.grantsToml, grants("secret"));
  await rig.owner("POST", "/v1/grants/reload", {});
  assertEquals(codeOf(await voided), "ApprovalDenied");
  const { id, bodySha256 } = await rig.nextApproval();
  await decide(rig, id, "approve", bodySha256);
  assertEquals((await kept).status, "ok");
});

Deno.test("B10 what was approved is decided again before it is sent: a grant put before it, and a budget spent meanwhile", async () => {
  await using rig = await brokerRig({ grants: `${askPrivate}per_day = 1\n` });
  const first = rig.call("chat-a", 1);
  const second = rig.call("chat-b", 1);
  while ((await rig.approvals()).length < 2);
  for (const { id, bodySha256 } of await rig.approvals()) await decide(rig, id, "approve", bodySha256);
  assertEquals([codeOf(await first), codeOf(await second)].sort(), ["BudgetSpent", "ok"]);
  assertEquals(rig.endpoint.requests.length, 1);

  await using other = await brokerRig({ grants: askPrivate });
  const waiting = other.call("chat-a", 1);
  const { id, bodySha256 } = await other.nextApproval();
  await Deno.writeTextFile(other.paths.grantsToml, `${allowPrivate}result_class = "secret"\n${askPrivate}`);
  await other.owner("POST", "/v1/grants/reload", {});
  await decide(other, id, "approve", bodySha256);
  assertEquals(codeOf(await waiting), "ApprovalDenied");
  assertEquals(other.endpoint.connections, 0);
});

Deno.test("F29 broker.sock knows none of the owner's rows, and owner.sock none of loopd's", async () => {
  await using rig = await brokerRig({ grants: askPrivate });
  const waiting = rig.call("chat-a", 1);
  const { id, bodySha256 } = await rig.nextApproval();
  const ownersRows: ["GET" | "POST", string, unknown?][] = [
    ["GET", "/v1/approvals"],
    ["POST", `/v1/approvals/${id}`, { decision: "approve", bodySha256 }],
    ["GET", "/v1/ledger"],
    ["GET", "/v1/audit/head"],
    ["GET", "/v1/audit"],
    ["POST", "/v1/audit/verify", {}],
    ["POST", "/v1/audit/prune", { before: "2027-01-01" }],
    ["POST", "/v1/check", { tool: "consult", label: privateTrusted }],
    ["POST", "/v1/retire", { session: "chat-a" }],
    ["POST", "/v1/grants/reload", {}],
  ];
  for (const [method, path, body] of ownersRows) {
    assertEquals([path, (await rig.loop(method, path, body)).httpStatus], [path, 404]);
  }
  const call = { session: "chat-a", call: 2, tool: "consult", arguments: {}, label: privateTrusted };
  assertEquals((await rig.owner("POST", "/v1/call", call)).httpStatus, 404);
  assertEquals((await rig.owner("POST", "/v1/label", {})).httpStatus, 404);
  assertEquals((await rig.approvals()).length, 1);
  await decide(rig, id, "deny", bodySha256);
  assertEquals(codeOf(await waiting), "ApprovalDenied");
});
