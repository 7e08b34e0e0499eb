// One call, once: arguments, numbers, restarts, budgets, and what is asked again later.

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import {
  allowAlways,
  allowPrivate,
  type BrokerRig,
  brokerRig,
  decisions,
  privateTrusted,
} from "../../support/broker_rig.ts";
import { fakeClock } from "../../support/fake_clock.ts";
import { listSegments } from "../../../core/audit/segments.ts";
import { verifyAudit } from "../../../core/audit/verify.ts";
import { questionBytesMax } from "../../../core/limits.ts";

Deno.test("T9 C1 wrong arguments are invalid-arguments, audited, with nothing sent; the nearest right ones are accepted", async () => {
  await using rig = await brokerRig({ grants: allowAlways });
  const wrong: Record<string, unknown>[] = [
    {},
    { question: "Q", model: "other" },
    { question: "Q", history: [] },
    { Question: "Q" },
    { question: 7 },
    { question: null },
    { question: ["Q"] },
    JSON.parse('{"question":"Q","__proto__":{"x":1}}'),
    { question: "half \ud83e" },
    { question: "\udd2e half" },
    { question: "x".repeat(questionBytesMax + 1) },
    { question: "ä".repeat(questionBytesMax / 2) + "x" },
  ];
  for (const [at, args] of wrong.entries()) {
    const answer = await rig.call("chat-a", at + 1, { arguments: args });
    assert(answer.status === "error");
    assertEquals(answer.code, "invalid-arguments");
    assertEquals(answer.text.split("\n")[0], "error: invalid-arguments");
  }
  assertEquals(rig.endpoint.connections, 0);
  const refused = decisions(await rig.records());
  assertEquals(refused.length, wrong.length);
  for (const { verdict, code, body } of refused) {
    assertEquals([verdict, code, body], ["deny", "invalid-arguments", undefined]);
  }
  const right = ["Q", "", "whole 🧮", "x".repeat(questionBytesMax), "ä".repeat(questionBytesMax / 2)];
  for (const [at, question] of right.entries()) {
    const answer = await rig.call("chat-a", 100 + at, { arguments: { question } });
    assertEquals([at, answer.status], [at, "ok"]);
  }
});

Deno.test("arguments come before everything: wrong ones without [consult] and without a grant are still invalid-arguments", async () => {
  await using rig = await brokerRig({ consult: false });
  const answer = await rig.call("chat-a", 1, { arguments: { q: "Q" } });
  assert(answer.status === "error");
  assertEquals(answer.code, "invalid-arguments");
});

Deno.test("a tool that is not in the table is an error, and recorded", async () => {
  await using rig = await brokerRig({ grants: '[[grant]]\ntool = "shell"\nmax_taint = "secret"\n' });
  const answer = await rig.call("chat-a", 1, { tool: "shell", arguments: { command: "ls" } });
  assertEquals(answer.status === "error" && answer.code, "unknown-tool");
  assertEquals(decisions(await rig.records()).map(({ tool, code }) => [tool, code]), [[
    "shell",
    "unknown-tool",
  ]]);
});

Deno.test("F10 a call without a grant is denied for the session, its child and its grandchild, and audited each time with its body", async () => {
  await using rig = await brokerRig();
  for (const session of ["chat-a", "sub-chat-a-1", "sub-sub-chat-a-1-1"]) {
    const answer = await rig.call(session, 5);
    assert(answer.status === "denied");
    assertEquals([answer.code, answer.runbook], ["NoGrant", "no-grant"]);
  }
  const refused = decisions(await rig.records());
  assertEquals(refused.map(({ code }) => code), ["NoGrant", "NoGrant", "NoGrant"]);
  for (const { body } of refused) assertStringIncludes(body ?? "", "What is 2+2");
  assertEquals(rig.endpoint.connections, 0);
});

Deno.test("a second call with the same session and number is duplicate-call, also in flight and after restarts, and sends nothing", async () => {
  await using rig = await brokerRig({
    grants: allowAlways,
    behaviour: { kind: "silence" },
    audit: { segmentBytesMax: 4_000 },
  });
  const duplicate = async (session: string, call: number) => {
    const answer = await rig.call(session, call);
    assertEquals(answer.status === "error" && answer.code, "duplicate-call");
  };
  const first = rig.call("chat-a", 1);
  await rig.endpoint.nextRequest();
  await duplicate("chat-a", 1);
  rig.endpoint.release();
  assertEquals((await first).status, "ok");
  await duplicate("chat-a", 1);
  rig.endpoint.setBehaviour({ kind: "answer" });
  // Numbers out of order, and gaps between them, are calls of their own.
  for (const call of [7, 3, 12, 5]) assertEquals((await rig.call("chat-a", call)).status, "ok");
  for (let round = 0; round < 3; round++) {
    await rig.restart();
    for (const call of [1, 3, 5, 7, 12]) await duplicate("chat-a", call);
    assertEquals((await rig.call("chat-a", 20 + round)).status, "ok");
  }
  assertEquals((await rig.call("chat-b", 1)).status, "ok");
  assertEquals(rig.endpoint.requests.length, 9);
});

Deno.test("what was decided and answered can be asked again, across restarts and segments, and is what the call got", async () => {
  await using rig = await brokerRig({ grants: `${allowPrivate}sessions = ["chat-*"]\n` });
  const got = [
    ["chat-a", 1, await rig.call("chat-a", 1)],
    ["chat-a", 2, await rig.call("chat-a", 2)],
    ["chat-b", 1, await rig.call("chat-b", 1, { arguments: {} })],
    ["job-x", 1, await rig.call("job-x", 1)],
  ] as const;
  rig.endpoint.setBehaviour({ kind: "status", status: 500 });
  const failed = await rig.call("chat-c", 9);
  const check = async () => {
    for (const [session, call, answer] of got) assertEquals(await rig.callState(session, call), answer);
    assertEquals(await rig.callState("chat-c", 9), failed);
    assertEquals(await rig.callState("chat-c", 8), { status: "unknown" });
    assertEquals(await rig.callState("chat-z", 1), { status: "unknown" });
  };
  assertEquals(got.map(([, , { status }]) => status), ["ok", "denied", "error", "denied"]);
  await check();
  await rig.restart({ audit: { segmentBytesMax: 1_000 } });
  await rig.label("chat-d", privateTrusted);
  await check();
  await rig.restart();
  assert((await listSegments(rig.paths.audit)).length > 1);
  await check();
});

Deno.test("an intent without a decision is closed as unknown at start and never sent again; the duplicate is refused", async () => {
  // The log of a brokerd that was killed between its intent and its decision: the end of a sound one, cut off.
  for (const segmentBytesMax of [undefined, 600]) {
    await using rig = await brokerRig({ grants: allowAlways, audit: { segmentBytesMax } });
    await rig.call("chat-a", 1);
    await rig.stop();
    await cutAfter(rig, "intent");
    await rig.restart();
    assertEquals(rig.denyAll, undefined);
    assertEquals(rig.endpoint.requests.length, 1);
    const state = await rig.callState("chat-a", 1);
    assertEquals(state.status === "error" && state.code, "consult-unknown");
    const answer = await rig.call("chat-a", 1);
    assertEquals(answer.status === "error" && answer.code, "duplicate-call");
    const records = await rig.records();
    const [closed] = decisions(records);
    const intent = records.find(({ kind }) => kind === "intent");
    assert(intent?.kind === "intent");
    assertEquals([closed.outcome, closed.intent, closed.body], ["unknown", intent.seq, intent.body]);
    assertEquals(rig.endpoint.requests.length, 1);
    await rig.restart();
    assertEquals(decisions(await rig.records()).length, 1);
    await rig.stop();
    assertEquals((await verifyAudit(rig.paths.audit)).exit, 0);
  }
});

Deno.test("a stop ends what is in flight as unknown, with its decision before the stop record", async () => {
  await using rig = await brokerRig({ grants: allowAlways, behaviour: { kind: "silence" } });
  const waiting = rig.call("chat-a", 1).catch((error) => error);
  await rig.endpoint.nextRequest();
  await rig.stop();
  await waiting;
  const records = await rig.records();
  assertEquals(records.slice(-2).map(({ kind }) => kind), ["decision", "stop"]);
  assertEquals(decisions(records)[0].outcome, "unknown");
});

Deno.test("a caller that leaves does not stop a consult that was sent: it is decided, and can be asked for", async () => {
  await using rig = await brokerRig({ grants: allowAlways, behaviour: { kind: "silence" } });
  const leave = new AbortController();
  const waiting = rig.call("chat-a", 1, { signal: leave.signal }).catch((error) => error);
  await rig.endpoint.nextRequest();
  leave.abort();
  await waiting;
  assertEquals(await rig.callState("chat-a", 1), { status: "running" });
  rig.endpoint.release();
  while ((await rig.callState("chat-a", 1)).status === "running");
  assertEquals((await rig.callState("chat-a", 1)).status, "ok");
});

Deno.test("per_day counts what was sent under the grant on a UTC day, across restarts; the next day begins anew", async () => {
  const clock = fakeClock(Date.UTC(2026, 11, 1, 23, 0, 0));
  await using rig = await brokerRig({
    grants: `${allowAlways}per_day = 2\n`,
    clock,
    audit: { segmentBytesMax: 2_000 },
  });
  const code = async (session: string, call: number) => {
    const answer = await rig.call(session, call);
    return answer.status === "denied" ? answer.code : answer.status;
  };
  assertEquals([await code("chat-a", 1), await code("chat-b", 1)], ["ok", "ok"]);
  assertEquals(await code("chat-c", 1), "BudgetSpent");
  await rig.restart({ clock });
  assertEquals(await code("chat-c", 2), "BudgetSpent");
  // A larger budget counts on, whatever the grant's place.
  await Deno.writeTextFile(
    rig.paths.grantsToml,
    `${allowPrivate}sessions = ["job-*"]\n${allowAlways}per_day = 3\n`,
  );
  await rig.owner("POST", "/v1/grants/reload", {});
  assertEquals([await code("chat-c", 3), await code("chat-c", 4)], ["ok", "BudgetSpent"]);
  await clock.advance(3_600_000);
  assertEquals(await code("chat-c", 5), "ok");
  assertEquals(rig.endpoint.requests.length, 4);
});

Deno.test("while the log cannot be trusted every call and label is AuditUnavailable, hello says so, and nothing is sent or written", async () => {
  await using rig = await brokerRig({ grants: allowAlways });
  await rig.call("chat-a", 1);
  await rig.stop();
  const [{ path }] = await listSegments(rig.paths.audit);
  const sound = await Deno.readTextFile(path);
  await Deno.writeTextFile(path, sound.replace("2+2", "2+3"));
  await rig.restart();
  const hello = (await rig.loop("GET", "/v1/hello")).body as { denyAll?: string };
  assertStringIncludes(hello.denyAll ?? "", "does not verify");
  const answer = await rig.call("chat-a", 2);
  assert(answer.status === "denied");
  assertEquals([answer.code, answer.runbook], ["AuditUnavailable", "audit-unavailable"]);
  const label = await rig.loop("POST", "/v1/label", { session: "chat-a", label: privateTrusted });
  assertEquals([label.httpStatus, (label.body as { code: string }).code], [200, "AuditUnavailable"]);
  const retire = await rig.owner("POST", "/v1/retire", { session: "chat-a" });
  assertEquals((retire.body as { code: string }).code, "AuditUnavailable");
  assertEquals(rig.endpoint.requests.length, 1);
  await rig.stop();
  assertEquals(await Deno.readTextFile(path), sound.replace("2+2", "2+3"));

  await Deno.writeTextFile(path, sound);
  await rig.restart();
  assertEquals((await rig.call("chat-a", 2)).status, "ok");
});

Deno.test("a log that stops taking writes denies what comes: before the send nothing leaves, after it nothing is released", async () => {
  for (const failAt of ["intent", "decision"] as const) {
    let full = false;
    await using rig = await brokerRig({
      grants: allowAlways,
      behaviour: () => {
        full = failAt === "decision";
        return { kind: "answer", content: "Four." };
      },
      audit: {
        openFile: (path, options) => {
          const file = Deno.openSync(path, options);
          return {
            writeSync(bytes) {
              if (full) throw new Error("No space left on device (os error 28)");
              return file.writeSync(bytes);
            },
            syncData: () => file.syncData(),
            close: () => file.close(),
          };
        },
      },
    });
    await rig.label("chat-a", privateTrusted);
    full = failAt === "intent";
    const answer = await rig.call("chat-a", 1);
    assertEquals(answer.status === "denied" && answer.code, "AuditUnavailable");
    assertEquals(rig.endpoint.requests.length, failAt === "intent" ? 0 : 1);
    full = false;
    // Until a new start, whatever the disk says meanwhile.
    const next = await rig.call("chat-b", 1);
    assertEquals(next.status === "denied" && next.code, "AuditUnavailable");
    rig.endpoint.setBehaviour({ kind: "answer" });
    await rig.restart();
    assertEquals((await rig.call("chat-b", 1)).status, "ok");
  }
});

/** Cuts the log behind its last record of `kind`, as a kill would have left it: no head knows of what follows. */
async function cutAfter(rig: BrokerRig, kind: string): Promise<void> {
  await Deno.remove(`${rig.paths.audit}/head.json`);
  for (const { path } of (await listSegments(rig.paths.audit)).reverse()) {
    const lines = (await Deno.readTextFile(path)).split("\n").slice(0, -1);
    const at = lines.findLastIndex((line) => JSON.parse(line).kind === kind);
    if (at !== -1) {
      return await Deno.writeTextFile(path, lines.slice(0, at + 1).map((line) => `${line}\n`).join(""));
    }
    await Deno.remove(path);
  }
}
