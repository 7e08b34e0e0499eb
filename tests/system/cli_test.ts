// The CLI as its own process under exactly the flags that the launcher's table gives it: streams, pipes, signals, exit codes. The roles
// are scripted; the process, its permissions and the sockets are real.

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { encodeRecord } from "../../core/audit/chain.ts";
import type { NewAuditRecord } from "../../core/audit/record.ts";
import { homePaths } from "../../core/home.ts";
import { denoArguments, plan } from "../../tools/launch/plan.ts";
import { type FakeHome, outcome, sessionRow, streamTurn, withRoles } from "../unit/bxctl/fake_roles.ts";

const root = new URL("../../", import.meta.url).pathname.replace(/\/$/, "");

/** `bx` as the launcher starts it: no environment but what Deno itself needs, no power but the table's. */
function start(home: string, words: readonly string[]): Deno.ChildProcess {
  const denoDir = Deno.env.get("DENO_DIR");
  return new Deno.Command(Deno.execPath(), {
    args: [
      ...denoArguments(root, ["--cached-only"]),
      ...plan("bxctl", { paths: homePaths(home) }),
      `${root}/tools/bxctl/main.ts`,
      "--home",
      home,
      ...words,
    ],
    clearEnv: true,
    env: {
      DENO_NO_UPDATE_CHECK: "1",
      ...(denoDir === undefined ? { HOME: Deno.env.get("HOME") ?? "/" } : { DENO_DIR: denoDir }),
    },
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
}

async function run(home: string, words: readonly string[], input = "") {
  const child = start(home, words);
  const writer = child.stdin.getWriter();
  // A process that does not read its input may be gone already.
  await writer.write(new TextEncoder().encode(input)).catch(() => {});
  await writer.close().catch(() => {});
  const { code, stdout, stderr } = await child.output();
  const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
  return { code, stdout: text(stdout), stderr: text(stderr) };
}

Deno.test("B11 under its own flags bx sends a turn and prints the final text alone on a pipe", () =>
  withRoles(async ({ home, loopd }) => {
    streamTurn(loopd, [["thinking", { text: "hm" }], ["delta", { text: "Four." }], [
      "done",
      outcome("chat-1"),
    ]]);
    assertEquals(await run(home, ["send", "chat-1", "2+2"]), { code: 0, stdout: "Four.\n", stderr: "" });
    assertEquals(
      JSON.parse((await run(home, ["send", "chat-1", "2+2", "--json"])).stdout),
      outcome("chat-1"),
    );
  }));

Deno.test("B11 under its own flags bx chats over pipes, line by line", () =>
  withRoles(async ({ home, asked, loopd }) => {
    loopd.post("/v1/sessions", (c) => c.json({ session: "chat-1" }));
    loopd.get("/v1/sessions", (c) => c.json({ sessions: [sessionRow("chat-1")] }));
    streamTurn(loopd, [["done", outcome("chat-1")]]);
    const result = await run(home, ["chat"], "one\r\ntwo");
    assertEquals(result, { code: 0, stdout: "Four.\nFour.\n", stderr: "" });
    const turns = asked.filter(({ path }) => path.endsWith("/turns"));
    assertEquals(turns.map(({ body }) => body), [{ text: "one" }, { text: "two" }]);
  }));

Deno.test("B11 under its own flags bx asks brokerd on the owner's socket", () =>
  withRoles(async ({ home, brokerd }) => {
    brokerd.get("/v1/approvals", (c) => c.json({ approvals: [] }));
    assertEquals(await run(home, ["approvals"]), {
      code: 0,
      stdout: "nothing waits for approval\n",
      stderr: "",
    });
  }));

Deno.test("B8 under its own flags bx reads and verifies the audit log with no role running", async () => {
  const home = await Deno.makeTempDir({ prefix: "bx" });
  try {
    await Deno.mkdir(`${home}/audit`, { mode: 0o700 });
    const fields: NewAuditRecord = { kind: "ledger", part: 1, parts: 1, sessions: [], open: [], spent: [] };
    const { bytes, hash } = encodeRecord(fields, { head: undefined, time: "2026-12-01T10:00:00.000Z" });
    await Deno.writeFile(`${home}/audit/audit-000001.jsonl`, bytes);
    const show = await run(home, ["audit", "show", "--json"]);
    assertEquals([show.code, show.stdout, show.stderr], [0, new TextDecoder().decode(bytes), ""]);
    const verify = await run(home, ["audit", "verify", "--head", `1:${hash}`]);
    assertEquals([verify.code, verify.stderr], [0, ""]);
    await Deno.writeFile(`${home}/audit/audit-000001.jsonl`, bytes.subarray(0, -5));
    assertEquals((await run(home, ["audit", "verify", "--head", `1:${hash}`])).code, 11);
    assertEquals((await run(home, ["audit", "verify"])).code, 12);
  } finally {
    await Deno.remove(home, { recursive: true });
  }
});

Deno.test("F34 with no role running and a home that does not exist bx exits 3 with one message", async () => {
  const { code, stdout, stderr } = await run("/nowhere/home", ["sessions"]);
  assertEquals([code, stdout, stderr.trimEnd().split("\n").length], [3, "", 1]);
  assertStringIncludes(stderr, "docs/runbook.md#roles-not-running");
  assertEquals((await run("/nowhere/home", ["sessions", "--nope"])).code, 2);
  assertEquals((await run("/nowhere/home", ["--help"])).code, 0);
});

/** A turn that streams nothing until it is cancelled; `begun` once it was asked for. */
function turnUntilCancelled({ loopd }: FakeHome): { begun: Promise<void>; cancelled: Promise<void> } {
  const begun = Promise.withResolvers<void>();
  const cancelled = Promise.withResolvers<void>();
  loopd.post("/v1/sessions/:id/cancel", (c) => {
    cancelled.resolve();
    return c.json({ status: "ok" });
  });
  loopd.post("/v1/sessions/:id/turns", () => {
    begun.resolve();
    const done = outcome("chat-1", { status: "cancelled", content: "" });
    return new Response(
      new ReadableStream({
        async start(controller) {
          await cancelled.promise;
          controller.enqueue(new TextEncoder().encode(`event: done\ndata: ${JSON.stringify(done)}\n\n`));
          controller.close();
        },
      }),
      { headers: { "content-type": "text/event-stream" } },
    );
  });
  return { begun: begun.promise, cancelled: cancelled.promise };
}

Deno.test("F8 SIGINT during bx send cancels the turn and exits 1 once it ended", () =>
  withRoles(async (fake) => {
    const { begun, cancelled } = turnUntilCancelled(fake);
    const child = start(fake.home, ["send", "chat-1", "hi"]);
    await child.stdin.close();
    await begun;
    child.kill("SIGINT");
    await cancelled;
    const { code, stdout, stderr } = await child.output();
    assertEquals([code, new TextDecoder().decode(stdout)], [1, ""]);
    assertStringIncludes(new TextDecoder().decode(stderr), "the turn of chat-1 was cancelled");
  }));

Deno.test("B11 bx ends quietly when nobody reads its output any more", () =>
  withRoles(async ({ home, loopd }) => {
    const records = Array.from(
      { length: 2_000 },
      (_, index) => ({ kind: "user", time: "t", text: "x".repeat(200 + index) }),
    );
    loopd.get("/v1/sessions/:id/log", (c) => c.json({ records }));
    const child = start(home, ["log", "chat-1"]);
    await child.stdin.close();
    const reader = child.stdout.getReader();
    assert(!(await reader.read()).done);
    await reader.cancel();
    const [status, stderr] = await Promise.all([child.status, new Response(child.stderr).text()]);
    assertEquals([status.code, stderr], [0, ""]);
  }));
