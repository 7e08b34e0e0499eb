// The two sockets as their callers meet them: hello, refusals of what is not well formed, and the owner's rows.

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import {
  allowPrivate,
  askPrivate,
  type BrokerRig,
  brokerRig,
  privateTrusted,
  privateUntrusted,
  secretTrusted,
} from "../../support/broker_rig.ts";
import { brokerHelloSchema } from "../../../core/protocol/broker.ts";
import { sha256 } from "../../../core/audit/chain.ts";
import { listSegments } from "../../../core/audit/segments.ts";
import { requestBodyBytesMax } from "../../../core/limits.ts";

type Answer = { status?: string; code?: string } & Record<string, unknown>;
const answerOf = async (asked: Promise<{ body: unknown }>) => (await asked).body as Answer;

Deno.test("C9 hello names the protocol, the role, the longest consult and the tools, on each socket what concerns it", async () => {
  await using rig = await brokerRig({ consult: "timeout_ms = 7000" });
  const hello = brokerHelloSchema.parse((await rig.loop("GET", "/v1/hello")).body);
  assertEquals([hello.protocol, hello.role, hello.consultTimeoutMs, hello.denyAll], [
    1,
    "brokerd",
    7000,
    undefined,
  ]);
  assertEquals(hello.tools.map(({ name }) => name), ["consult", "ask_memory"]);
  for (const { parameters } of hello.tools) {
    assertEquals([parameters.required, parameters.additionalProperties], [["question"], false]);
  }
  assertEquals((await rig.owner("GET", "/v1/hello")).body, { protocol: 1, role: "brokerd" });
});

Deno.test("what is not well formed is refused with 400, 404 or 413 in one shape, and nothing is recorded of it", async () => {
  await using rig = await brokerRig({ grants: allowPrivate });
  const good = {
    session: "chat-a",
    call: 1,
    tool: "consult",
    arguments: { question: "Q" },
    label: privateTrusted,
  };
  const bad: [unknown, number][] = [
    [{ ...good, extra: 1 }, 400],
    [{ ...good, call: 0 }, 400],
    [{ ...good, call: 1.5 }, 400],
    [{ ...good, call: "1" }, 400],
    [{ ...good, call: 2 ** 53 }, 400],
    [{ ...good, tool: "" }, 400],
    [{ ...good, arguments: [] }, 400],
    [{ ...good, arguments: null }, 400],
    [{ ...good, label: { class: "top", untrusted: false } }, 400],
    [{ ...good, label: { class: "private" } }, 400],
    [{ ...good, label: { ...privateTrusted, more: 1 } }, 400],
    [[], 400],
    [null, 400],
    [{ ...good, arguments: { question: "x".repeat(requestBodyBytesMax) } }, 413],
  ];
  for (const [body, wanted] of bad) {
    const { httpStatus, body: answer } = await rig.loop("POST", "/v1/call", body);
    assertEquals([JSON.stringify(body).slice(0, 100), httpStatus], [
      JSON.stringify(body).slice(0, 100),
      wanted,
    ]);
    assertEquals(Object.keys(answer as object), ["status", "code", "text"]);
  }
  for (
    const path of ["/v1/calls/chat-a/0", "/v1/calls/chat-a/01", "/v1/calls/chat-a/x", "/v1/calls/Chat/1"]
  ) {
    assertEquals([path, (await rig.loop("GET", path)).httpStatus], [path, 400]);
  }
  for (const path of ["/v1/nothing", "/", "/v2/hello", "/v1/calls/chat-a"]) {
    assertEquals([path, (await rig.loop("GET", path)).httpStatus], [path, 404]);
  }
  for (const query of ["limit=0", "limit=1001", "before=x", "session=Chat", "kind=other", "other=1"]) {
    assertEquals([query, (await rig.owner("GET", `/v1/audit?${query}`)).httpStatus], [query, 400]);
  }
  assertEquals((await rig.records()).map(({ kind }) => kind), ["ledger", "start", "config"]);
  assertEquals((await rig.call("chat-a", 1)).status, "ok");
});

Deno.test("check gives the verdict, the exact body and what the nearest grant lacks; nothing is sent, raised or recorded", async () => {
  await using rig = await brokerRig({ grants: askPrivate });
  await rig.label("chat-a", privateUntrusted);
  const before = (await rig.records()).length;
  const check = (request: Record<string, unknown>) =>
    answerOf(rig.owner("POST", "/v1/check", { tool: "consult", ...request }));

  const ask = await check({ session: "chat-new", label: privateTrusted, arguments: { question: "Q" } });
  const body = '{"model":"big-model","temperature":0.6,"messages":[{"role":"user","content":"Q"}]}';
  assertEquals([ask.status, ask.verdict, ask.grant, ask.body, ask.bodySha256], [
    "ok",
    "ask",
    1,
    body,
    sha256(body),
  ]);
  const refused = await check({ session: "chat-a", label: privateTrusted });
  assertEquals([refused.verdict, refused.code, refused.cause, refused.grant], [
    "deny",
    "TaintTooHigh",
    "untrusted",
    1,
  ]);
  assertStringIncludes(String(refused.lacks), "allow_untrusted = true");
  assertEquals(refused.label, privateUntrusted);
  assertEquals((await check({ label: secretTrusted })).cause, "class");
  assertEquals((await check({ label: privateTrusted, arguments: { q: 1 } })).code, "invalid-arguments");
  const unknown = await rig.owner("POST", "/v1/check", { tool: "shell", label: privateTrusted });
  assertEquals(unknown.httpStatus, 400);

  assertEquals((await rig.records()).length, before);
  assertEquals(rig.endpoint.connections, 0);
  const { body: ledger } = await rig.owner("GET", "/v1/ledger");
  assertEquals((ledger as { sessions: unknown[] }).sessions.length, 1);
});

Deno.test("check without a session admits by grants for some sessions, and says for which", async () => {
  await using rig = await brokerRig({ grants: `${allowPrivate}sessions = ["job-*"]\n` });
  const answer = await answerOf(rig.owner("POST", "/v1/check", { tool: "consult", label: privateTrusted }));
  assertEquals(answer.verdict, "allow");
  assertStringIncludes(String(answer.text), "job-*");
});

Deno.test("retire forgets a session and all below it, recorded, and its id begins anew with its numbers; others stay", async () => {
  await using rig = await brokerRig({ grants: allowPrivate });
  await rig.call("heartbeat", 1);
  await rig.label("sub-heartbeat-2", secretTrusted);
  await rig.label("chat-a", privateUntrusted);
  assertEquals((await answerOf(rig.owner("POST", "/v1/retire", { session: "heartbeat" }))).status, "ok");
  const check = async () => {
    const orphan = await rig.loop("POST", "/v1/label", { session: "sub-heartbeat-2", label: privateTrusted });
    assertEquals(orphan.httpStatus, 400);
    const { body } = await rig.owner("GET", "/v1/ledger");
    assertEquals((body as { sessions: unknown }).sessions, [{ session: "chat-a", label: privateUntrusted }]);
  };
  await check();
  await rig.restart();
  await check();
  assertEquals((await rig.call("heartbeat", 1)).status, "ok");
  assertEquals((await rig.records()).filter(({ kind }) => kind === "retire").length, 1);
  // A session that brokerd never heard of may be retired as well: loopd knew it.
  assertEquals((await answerOf(rig.owner("POST", "/v1/retire", { session: "chat-z" }))).status, "ok");
});

Deno.test("retire is refused with 409 while a call of the session or of one below it is under way, accepted after", async () => {
  await using rig = await brokerRig({ grants: allowPrivate, behaviour: { kind: "silence" } });
  await rig.label("chat-a", privateTrusted);
  const waiting = rig.call("sub-chat-a-1", 1);
  await rig.endpoint.nextRequest();
  const busy = await rig.owner("POST", "/v1/retire", { session: "chat-a" });
  assertEquals([busy.httpStatus, (busy.body as Answer).code], [409, "busy"]);
  rig.endpoint.release();
  assertEquals((await waiting).status, "ok");
  assertEquals((await rig.owner("POST", "/v1/retire", { session: "chat-a" })).httpStatus, 200);
});

Deno.test("reload puts changed grants in force and pins their hash; a file with faults changes nothing and all faults are told", async () => {
  await using rig = await brokerRig();
  assertEquals((await rig.call("chat-a", 1)).status, "denied");
  await Deno.writeTextFile(rig.paths.grantsToml, allowPrivate);
  const reloaded = await answerOf(rig.owner("POST", "/v1/grants/reload", {}));
  assertEquals([reloaded.status, reloaded.grants, reloaded.grantsSha256], ["ok", 1, sha256(allowPrivate)]);
  assertEquals((await rig.call("chat-a", 2)).status, "ok");
  const configs = (await rig.records()).filter((record) => record.kind === "config");
  assertEquals(configs.map(({ grantsSha256 }) => grantsSha256), [sha256(""), sha256(allowPrivate)]);

  await Deno.writeTextFile(
    rig.paths.grantsToml,
    '[[grant]]\ntool = "consult"\nmax_taint = "top"\nmode = "maybe"\n',
  );
  const faulty = await answerOf(rig.owner("POST", "/v1/grants/reload", {}));
  assertEquals([faulty.status, faulty.code], ["error", "config-fault"]);
  assertEquals(String(faulty.text).split("\n").length, 2);
  assertEquals((await rig.call("chat-b", 1)).status, "ok");
});

Deno.test("the owner reads head, pages and verification of the log while brokerd writes it", async () => {
  await using rig = await brokerRig({ audit: { segmentBytesMax: 3_000 } });
  for (let call = 1; call <= 12; call++) await rig.call(call % 3 === 0 ? "chat-b" : "chat-a", call);
  const records = await rig.records();
  const head = await answerOf(rig.owner("GET", "/v1/audit/head"));
  assertEquals(head.seq, records.at(-1)?.seq);
  const verdict = await answerOf(rig.owner("POST", "/v1/audit/verify", {}));
  assertEquals([verdict.status, verdict.exit, verdict.records], ["ok", 0, records.length]);

  const seen: number[] = [];
  let before: number | undefined;
  do {
    const page = await answerOf(
      rig.owner("GET", `/v1/audit?limit=5${before === undefined ? "" : `&before=${before}`}`),
    );
    const seqs = (page.records as { seq: number }[]).map(({ seq }) => seq);
    assert(seqs.length <= 5);
    seen.unshift(...seqs);
    before = page.before as number | undefined;
  } while (before !== undefined);
  assertEquals(seen, records.map(({ seq }) => seq));

  const filtered = await answerOf(rig.owner("GET", "/v1/audit?session=chat-b&tool=consult&limit=3"));
  assertEquals((filtered.records as { call: number }[]).map(({ call }) => call), [6, 9, 12]);
  const ledgers = await answerOf(rig.owner("GET", "/v1/audit?kind=ledger"));
  assertEquals(
    (ledgers.records as { seq: number }[]).map(({ seq }) => seq),
    records.filter(({ kind }) => kind === "ledger").map(({ seq }) => seq),
  );
});

Deno.test("prune drops whole segments that ended before the day, recorded, and the log stays sound and known", async () => {
  await using rig = await brokerRig({ grants: allowPrivate, audit: { segmentBytesMax: 3_000 } });
  await rig.label("chat-a", secretTrusted);
  for (let call = 1; call <= 12; call++) await rig.call("chat-b", call);
  const before = (await listSegments(rig.paths.audit)).length;
  const none = await answerOf(rig.owner("POST", "/v1/audit/prune", { before: "2000-01-01" }));
  assertEquals(none.segments, []);
  const pruned = await answerOf(rig.owner("POST", "/v1/audit/prune", { before: "2999-01-01" }));
  assert((pruned.segments as unknown[]).length > 0);
  assert((await listSegments(rig.paths.audit)).length < before);
  assertEquals((await answerOf(rig.owner("POST", "/v1/audit/verify", {}))).exit, 0);
  await rig.restart();
  assertEquals((await rig.call("chat-a", 1, { label: privateTrusted })).status, "denied");
  assertEquals(codeOf(await rig.call("chat-b", 1)), "duplicate-call");
  const wrong = await rig.owner("POST", "/v1/audit/prune", { before: "yesterday" });
  assertEquals(wrong.httpStatus, 400);
});

Deno.test("the sockets and the folder are the owner's alone", async () => {
  await using rig: BrokerRig = await brokerRig();
  for (const path of [rig.paths.brokerSocket, rig.paths.ownerSocket]) {
    assertEquals((await Deno.stat(path)).mode! & 0o777, 0o600);
  }
  assertEquals((await Deno.stat(rig.paths.audit)).mode! & 0o777, 0o700);
});

function codeOf(answer: { status: string; code?: string }): string | undefined {
  return answer.code;
}
