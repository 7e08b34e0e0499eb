// The console's pages at their worst: every text as long and as hostile as the roles let it be, every list as long. Before fake roles on real
// sockets, in this process, without a browser.

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import type { SessionId } from "../../../core/ids.ts";
import type { SessionListRow, SlotSpan } from "../../../core/protocol/loop.ts";
import type { Approval } from "../../../core/protocol/owner.ts";
import { createApp, listenOnSocket } from "../../../core/wire/server.ts";
import { Access } from "../../../tools/console/access.ts";
import { fieldPages } from "../../../tools/console/fields.tsx";
import { html } from "../../../tools/console/layout.tsx";
import { consoleApp } from "../../../tools/console/server.ts";
import { Sources } from "../../../tools/console/sources.ts";
import { beginning, Block, pieces, Text, Times } from "../../../tools/console/text.tsx";
import { tempHome } from "../../support/temp_home.ts";

const pageBytesMax = 100_000;
const time = "2026-12-01T12:00:00.000Z";
const label = { class: "secret", untrusted: true } as const;
const longId = (number: number) => `chat-${String(number).padStart(59, "x")}` as SessionId;
/** The dearest text: each of its characters is marked, or escaped, or takes four bytes. */
const dear = (length: number) => '\u202e&"<\u200b\u{1f600}'.repeat(Math.ceil(length / 7)).slice(0, length);
const hash = "0123456789abcdef".repeat(4);

interface FakeRoles extends AsyncDisposable {
  readonly base: string;
  get(path: string): Promise<{ status: number; body: string }>;
}

/** The console before roles that answer these paths of theirs. */
async function withFakeRoles(answers: Record<string, (url: URL) => unknown>): Promise<FakeRoles> {
  const home = await tempHome();
  const app = createApp((error) => {
    throw error;
  });
  app.get("*", (c) => {
    const url = new URL(c.req.url);
    const answer = Object.entries(answers).find(([path]) => new RegExp(`^${path}$`).test(url.pathname));
    return answer === undefined
      ? c.json({ status: "error", code: "unknown-path", text: "no such path" }, 404)
      : c.json({ status: "ok", ...answer[1](url) as object });
  });
  const loopd = await listenOnSocket(home.paths.loopSocket, app);
  const brokerd = await listenOnSocket(home.paths.ownerSocket, app);
  const access = new Access(1);
  const cookie = access.enter(new URL(access.newAddress()).searchParams.get("key") ?? "")?.split(";")[0] ??
    "";
  const pages = consoleApp({
    access,
    sources: new Sources(home.paths),
    times: new Times("UTC"),
    allowDecisions: true,
  });
  return {
    base: access.base,
    async get(path) {
      const response = await pages.request(access.base + path, { headers: { host: "127.0.0.1:1", cookie } });
      return { status: response.status, body: await response.text() };
    },
    async [Symbol.asyncDispose]() {
      await loopd.close();
      await brokerd.close();
      await home[Symbol.asyncDispose]();
    },
  };
}

function bytesOf(text: string): number {
  return new TextEncoder().encode(text).length;
}

function listRow(session: SessionId, children: number): SessionListRow {
  return {
    session,
    parent: null,
    kind: "chat",
    status: "completed",
    slot: 0,
    changed: time,
    children,
    title: dear(120),
    summary: {
      label,
      turns: 999_999,
      cachedShare: 0.5,
      usage: { promptTokens: 9_999_999, cachedTokens: 9_999_999, completionTokens: 9_999_999 },
    },
  };
}

const usualAnswers = {
  "/v1/approvals": () => ({ approvals: [] }),
  "/v1/hello": () => ({ protocol: 1, role: "brokerd", denyAll: dear(500) }),
  "/v1/audit/head": () => ({ seq: 1_000_000, hash }),
};

Deno.test("a page of a session keeps its weight, however long and hostile its texts, its calls and its children are", async () => {
  const calls = Array.from(
    { length: 32 },
    (_, call) => ({ call: call + 1, name: dear(64), arguments: dear(40_000) }),
  );
  const records = (session: string) => [
    {
      v: 1,
      seq: 1,
      time,
      kind: "assistant",
      turn: 1,
      content: dear(90_000),
      thinking: dear(90_000),
      calls,
      slot: 0,
    },
    ...calls.map(({ call }) => ({
      v: 1,
      seq: call + 1,
      time,
      kind: "spawn",
      call,
      child: `sub-${session}-${call}`.slice(0, 64),
      task: dear(500),
    })),
    ...calls.slice(0, 7).map(({ call }) => ({
      v: 1,
      seq: call + 40,
      time,
      kind: "result",
      call,
      tool: dear(64),
      status: "denied",
      code: "TaintTooHigh",
      text: dear(16_000),
      label,
    })),
  ];
  await using roles = await withFakeRoles({
    ...usualAnswers,
    "/v1/sessions": ({ searchParams }) => {
      const session = searchParams.get("session");
      if (session !== null) return { sessions: [listRow(session as SessionId, 32)] };
      const limit = Number(searchParams.get("limit"));
      const more = (searchParams.get("parent") ?? "") === "" ? 9 : 0;
      return {
        sessions: Array.from({ length: limit }, (_, at) => listRow(longId(at), more)),
        after: longId(1),
      };
    },
    "/v1/sessions/.*/log": ({ pathname }) => ({ records: records(pathname.split("/")[3]), before: 1 }),
  });
  for (
    const path of ["/sessions", `/sessions/${longId(1)}`, "/sessions/sub-a-1", "/sessions/chat-a/records/1"]
  ) {
    const { status, body } = await roles.get(path);
    assertEquals([path, status], [path, 200]);
    assert(bytesOf(body) <= pageBytesMax, `${path} weighs ${bytesOf(body)} bytes`);
    assert(!/[\u202e\u200b]/.test(body), `${path} holds a character that hides itself`);
  }
});

Deno.test("pages of the audit log keep their weight with bodies of the largest question", async () => {
  const decision = (seq: number) => ({
    v: 1,
    seq,
    prev: hash,
    time,
    kind: "decision",
    session: longId(seq),
    call: 9_999_999,
    tool: dear(64),
    label,
    verdict: "deny",
    code: "TaintTooHigh",
    cause: "untrusted",
    grant: 12,
    body: dear(262_144),
    bodySha256: hash,
    answer: dear(16_000),
    reason: dear(600),
  });
  await using roles = await withFakeRoles({
    ...usualAnswers,
    "/v1/audit": ({ searchParams }) => {
      const limit = Number(searchParams.get("limit"));
      const before = Number(searchParams.get("before") ?? 1_000_000);
      return {
        records: Array.from({ length: limit }, (_, at) => decision(before - limit + at)),
        before: before - limit,
      };
    },
  });
  const last = fieldPages([{ name: "body", kind: "exact", text: dear(262_144) }]).length;
  for (
    const path of [
      "/consults",
      `/consults?session=${longId(1)}`,
      "/consults/7",
      `/consults/7?part=${last}`,
      "/consults/7?part=999",
      "/record",
      "/record?before=500000",
      "/record/7",
    ]
  ) {
    const { status, body } = await roles.get(path);
    assertEquals([path, status], [path, 200]);
    assert(bytesOf(body) <= pageBytesMax, `${path} weighs ${bytesOf(body)} bytes`);
    assert(!/[\u202e\u200b]/.test(body), `${path} holds a character that hides itself`);
  }
});

Deno.test("B6 a body too long for one page is read piece by piece, and the decision stands behind the last", async () => {
  const body = dear(60_000);
  const approval = (number: number): Approval => ({
    id: `a${number}`,
    status: "pending",
    session: longId(number),
    ancestors: Array.from({ length: 12 }, (_, at) => longId(at)),
    call: 1,
    tool: "consult",
    label,
    grant: 1,
    body,
    bodySha256: hash,
    expiresAt: time,
  });
  await using roles = await withFakeRoles({
    ...usualAnswers,
    "/v1/approvals": () => ({ approvals: Array.from({ length: 16 }, (_, at) => approval(at + 1)) }),
  });
  const list = await roles.get("/approvals");
  assert(bytesOf(list.body) <= pageBytesMax, `the list weighs ${bytesOf(list.body)} bytes`);
  assert(!list.body.includes("<form"), "what was not shown cannot be decided");
  assertStringIncludes(list.body, "6 more wait behind these.");

  const count = pieces(body).length;
  assert(count > 1);
  const shown: string[] = [];
  for (let part = 1; part <= count; part++) {
    const page = await roles.get(`/approvals/a1?part=${part}`);
    assert(bytesOf(page.body) <= pageBytesMax, `piece ${part} weighs ${bytesOf(page.body)} bytes`);
    assertEquals([part, page.body.includes("<form")], [part, part === count]);
    shown.push(pieces(body)[part - 1]);
  }
  assertEquals(shown.join(""), body);
});

Deno.test("the hour of the slots keeps its weight with as many spans as are remembered, of ever other sessions", async () => {
  const nowMs = Date.parse(time);
  const spans = Array.from({ length: 2_000 }, (_, at): SlotSpan => ({
    slot: at % 2 === 0 ? 0 : 2,
    state: at % 50 === 0 ? "draining" : "busy",
    session: longId(at % 97),
    priority: "orphan-subagent",
    queuedMs: 90_000,
    start: new Date(nowMs - 3_600_000 + at * 1_800).toISOString(),
    end: at === 1_999 ? null : new Date(nowMs - 3_600_000 + at * 1_800 + 1_500).toISOString(),
    how: "abandoned",
    kept: { cacheN: 1, promptN: 9_999_999, lostN: at % 3 },
  }));
  const queue = Array.from(
    { length: 128 },
    (_, at) => ({ session: longId(at), priority: "tool-summary", waitedMs: 1e7 }),
  );
  const held = Array.from({ length: 64 }, (_, at) => ({
    session: longId(at),
    parent: null,
    kind: "chat",
    status: "waiting",
    label,
    slot: 0,
    turns: 9,
    cachedShare: 0.5,
    usage: { promptTokens: 1, cachedTokens: 1, completionTokens: 1 },
  }));
  await using roles = await withFakeRoles({
    ...usualAnswers,
    "/v1/slots/history": () => ({
      time,
      since: "2026-12-01T00:00:00.000Z",
      spans,
      held,
      slots: [
        { slot: 0, use: "main", state: "busy", holder: longId(1), queue },
        { slot: 2, use: "background", state: "draining", queue },
      ],
    }),
    "/v1/status": () => ({
      inference: { url: "http://127.0.0.1:1", remote: true, reachable: false, text: dear(2_000) },
      broker: { reachable: false, text: dear(2_000) },
      slots: [],
      held: [],
      schedule: Array.from({ length: 40 }, (_, at) => ({
        name: dear(64),
        session: longId(at),
        next: time,
        lastStart: time,
        lastSkip: { time, reason: dear(400) },
      })),
      sessions: 10_000,
    }),
  });
  const { status, body } = await roles.get("/now");
  assertEquals(status, 200);
  assert(bytesOf(body) <= pageBytesMax, `the page weighs ${bytesOf(body)} bytes`);
  assert((body.match(/<rect/g) ?? []).length < 1_200);
});

Deno.test("what is shown of a text is the text: markup escaped, what hides or reorders written out, a first newline kept", () => {
  const cases: [string, string][] = [
    ["plain", "plain"],
    ["<b>&\"'", "&lt;b&gt;&amp;&quot;&#39;"],
    ["a\u202eb", 'a<b class="odd">⟨U+202E⟩</b>b'],
    ["\u{e0041}", '<b class="odd">⟨U+E0041⟩</b>'],
    ["\ud800", '<b class="odd">⟨U+D800⟩</b>'],
    ["tab\tline\n", "tab\tline\n"],
    ["⟨U+202E⟩", "⟨U+202E⟩"],
    ["👩‍👧 שלום", "👩‍👧 שלום"],
  ];
  for (const [text, wanted] of cases) assertEquals(html(Text({ value: text })), wanted);
  assertEquals(html(Block({ value: "\nx" })), '<pre class="prose" dir="auto">\n\nx</pre>');
});

Deno.test("pieces of a text are the text, none splits a character, and each is shown within its bound", () => {
  for (const text of ["", "short", dear(50_000), "😀".repeat(20_000), "\u202e".repeat(3_000)]) {
    const cut = pieces(text, 10_000);
    assertEquals(cut.join(""), text);
    for (const piece of cut) {
      assert(bytesOf(html(Text({ value: piece }))) <= 10_000);
      assert(!/^[\udc00-\udfff]/.test(piece));
    }
  }
  assertEquals(pieces("ab", 1), ["a", "b"]);
  for (const text of ["", "short", dear(5_000), "a".repeat(5_000), "😀".repeat(2_000)]) {
    for (const bytesMax of [999, 1_000, 1_001]) {
      assertEquals(beginning(text, bytesMax), pieces(text, bytesMax)[0]);
    }
    assertEquals(beginning(text, 0), "");
  }
});
