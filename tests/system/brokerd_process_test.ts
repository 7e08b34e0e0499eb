// brokerd as the process that the launcher starts: its exact flags, an emptied environment, its exit codes, and what a kill leaves.

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { loadBrokerdConfig } from "../../core/config/brokerd_toml.ts";
import type { HomePaths } from "../../core/home.ts";
import { callAnswerSchema, callStateSchema } from "../../core/protocol/broker.ts";
import { verifyAudit } from "../../core/audit/verify.ts";
import { requestJson } from "../../core/wire/client.ts";
import { ownEnvironment, roleEnvironment } from "../../tools/launch/environment.ts";
import { roleArguments } from "../../tools/launch/plan.ts";
import { startConsultEndpoint } from "../../tools/stubs/consult_endpoint.ts";
import { allowAlways, decisions, privateTrusted, readRecords } from "../support/broker_rig.ts";
import { tempHome } from "../support/temp_home.ts";

const root = new URL("../../", import.meta.url).pathname.replace(/\/$/, "");

interface BrokerdProcess {
  readonly process: Deno.ChildProcess;
  /** Resolves at the ready line, with all events so far; rejects if it ends before. */
  readonly ready: Promise<Record<string, unknown>[]>;
  /** All it wrote on standard error, and its exit status. */
  readonly ended: Promise<{ code: number; stderr: string }>;
}

function startProcess(paths: HomePaths): BrokerdProcess {
  const config = loadBrokerdConfig(paths);
  const process = new Deno.Command(Deno.execPath(), {
    args: roleArguments("brokerd", { root, paths, brokerd: "value" in config ? config.value : undefined }),
    clearEnv: true,
    env: roleEnvironment(ownEnvironment(), `${paths.permissions}/brokerd.jsonl`),
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const ready = Promise.withResolvers<Record<string, unknown>[]>();
  ready.promise.catch(() => {});
  const reading = (async () => {
    const events: Record<string, unknown>[] = [];
    for await (const line of lines(process.stdout)) {
      events.push(JSON.parse(line));
      if (events.at(-1)?.event === "ready") ready.resolve(events);
    }
    ready.reject(new Error("brokerd ended before it was ready"));
  })();
  const ended = (async () => {
    const [stderr, status] = await Promise.all([
      new Response(process.stderr).text(),
      process.status,
      reading,
    ]);
    await process.stdin.close().catch(() => {});
    return { code: status.code, stderr };
  })();
  return { process, ready: ready.promise, ended };
}

async function* lines(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  let pending = "";
  for await (
    const text of stream.pipeThrough(new TextDecoderStream() as never) as unknown as AsyncIterable<string>
  ) {
    const parts = (pending + text).split("\n");
    pending = parts.pop()!;
    yield* parts;
  }
}

const consultToml = (url: string) => `[consult]\nurl = "${url}"\nmodel = "m"\nsecret = "consult"\n`;

async function consult(paths: HomePaths, call: number) {
  const { body } = await requestJson(paths.brokerSocket, {
    method: "POST",
    path: "/v1/call",
    body: { session: "chat-a", call, tool: "consult", arguments: { question: "Q" }, label: privateTrusted },
  });
  return callAnswerSchema.parse(body);
}

Deno.test("P2 brokerd under the launcher's flags answers a consult, and ends with 0 on SIGTERM and at the end of its lifeline", async () => {
  await using endpoint = await startConsultEndpoint();
  await using home = await tempHome({
    brokerdToml: consultToml(endpoint.url),
    grantsToml: allowAlways,
    secrets: { consult: "key\n" },
  });
  for (const [call, end] of (["SIGTERM", "lifeline"] as const).entries()) {
    const brokerd = startProcess(home.paths);
    const events = await brokerd.ready;
    assertEquals(events, [{ role: "brokerd", event: "ready" }]);
    assertEquals((await consult(home.paths, call + 1)).status, "ok");
    if (end === "SIGTERM") brokerd.process.kill("SIGTERM");
    else await brokerd.process.stdin.close();
    const { code, stderr } = await brokerd.ended;
    assertEquals([end, code], [end, 0]);
    assertEquals(stderr, "");
    assertEquals((await readRecords(home.paths.audit)).at(-1)?.kind, "stop");
    assertEquals((await verifyAudit(home.paths.audit)).exit, 0);
  }
  assertEquals(endpoint.requests.length, 2);
});

Deno.test("F24 brokerd killed in mid-consult closes the intent as unknown at its next start and does not send again", async () => {
  await using endpoint = await startConsultEndpoint({ behaviour: { kind: "silence" } });
  await using home = await tempHome({
    brokerdToml: consultToml(endpoint.url),
    grantsToml: allowAlways,
    secrets: { consult: "key\n" },
  });
  const first = startProcess(home.paths);
  await first.ready;
  const waiting = consult(home.paths, 1).catch((error) => error);
  await endpoint.nextRequest();
  first.process.kill("SIGKILL");
  assertEquals((await first.ended).code, 137);
  await waiting;

  const second = startProcess(home.paths);
  await second.ready;
  const { body } = await requestJson(home.paths.brokerSocket, { method: "GET", path: "/v1/calls/chat-a/1" });
  const state = callStateSchema.parse(body);
  assertEquals(state.status === "error" && state.code, "consult-unknown");
  const again = await consult(home.paths, 1);
  assertEquals(again.status === "error" && again.code, "duplicate-call");
  second.process.kill("SIGTERM");
  await second.ended;
  assertEquals(endpoint.requests.length, 1);
  assertEquals(decisions(await readRecords(home.paths.audit)).map(({ outcome }) => outcome), ["unknown"]);
  assertEquals((await verifyAudit(home.paths.audit)).exit, 0);
});

Deno.test("F34 a fault in what the owner wrote ends brokerd with 2, one line for each, before any socket or log appears", async () => {
  await using home = await tempHome({
    brokerdToml: consultToml("https://api.example.com/v1"),
    grantsToml: "[[grant]]\ntool = 1\n",
  });
  const { code, stderr } = await startProcess(home.paths).ended;
  assertEquals(code, 2);
  assertStringIncludes(stderr, "grants.toml");
  for (const dir of [home.paths.audit, home.paths.run]) {
    assertEquals([...Deno.readDirSync(dir)].map(({ name }) => name), []);
  }
});

Deno.test("brokerd whose log does not verify says so when it starts, lives, and denies", async () => {
  await using home = await tempHome({ grantsToml: allowAlways });
  await Deno.writeTextFile(`${home.paths.audit}/audit-000001.jsonl`, "no record\n");
  const brokerd = startProcess(home.paths);
  const [deny] = await brokerd.ready;
  assertEquals(deny.event, "deny-all");
  assertStringIncludes(String(deny.text), "does not verify");
  const answer = await consult(home.paths, 1);
  assert(answer.status === "denied");
  assertEquals(answer.code, "AuditUnavailable");
  brokerd.process.kill("SIGTERM");
  assertEquals((await brokerd.ended).code, 0);
});
