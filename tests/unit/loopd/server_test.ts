// loop.sock as the owner's programs meet it: what is refused and how, what a stream tells, and that one bad session harms no other.

import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { userTextBytesMax } from "../../../core/limits.ts";
import {
  loopHelloSchema,
  type StatusAnswer,
  statusAnswerSchema,
  type TurnEvent,
  turnEventSchema,
} from "../../../core/protocol/loop.ts";
import { PeerRefused, requestEvents, requestJson } from "../../../core/wire/client.ts";
import type { Reply } from "../../../tools/stubs/model_script.ts";
import { calls, type LoopdRig, says, startLoopdRig } from "../../support/loopd_rig.ts";
import { namesIn, recordsOf, resultsOf, textOf } from "../../support/transcript.ts";

const get = (rig: LoopdRig, path: string) => requestJson(rig.paths.loopSocket, { method: "GET", path });
const post = (rig: LoopdRig, path: string, body: unknown) =>
  requestJson(rig.paths.loopSocket, { method: "POST", path, body });
const codeOf = (
  { httpStatus, body }: { httpStatus: number; body: unknown },
) => [httpStatus, (body as { code?: string }).code];

const chat = (script: Reply = says("hello")) => startLoopdRig({ script: () => script });

Deno.test("hello names the role and the protocol", async () => {
  await using rig = await chat();
  const { httpStatus, body } = await get(rig, "/v1/hello");
  assertEquals(httpStatus, 200);
  const { status: _status, ...hello } = body as Record<string, unknown>;
  assertEquals([hello.protocol, hello.role], [1, "loopd"]);
  assert(loopHelloSchema.safeParse(body).success || loopHelloSchema.safeParse(hello).success);
});

for (
  const [what, method, path, body, status, code] of [
    [
      "an id with a capital letter",
      "POST",
      "/v1/sessions/chat-A/turns",
      { text: "x" },
      400,
      "bad-session-id",
    ],
    [
      "an id of 65 characters",
      "POST",
      `/v1/sessions/${"a".repeat(65)}/turns`,
      { text: "x" },
      400,
      "bad-session-id",
    ],
    [
      "an id that climbs out of its folder",
      "GET",
      "/v1/sessions/..%2f..%2fetc/log",
      undefined,
      400,
      "bad-session-id",
    ],
    ["an id with a line end", "GET", "/v1/sessions/chat-a%0a/log", undefined, 400, "bad-session-id"],
    [
      "an unknown key in a turn",
      "POST",
      "/v1/sessions/chat-a/turns",
      { text: "x", class: "public" },
      400,
      "bad-request",
    ],
    ["an empty text", "POST", "/v1/sessions/chat-a/turns", { text: "" }, 400, "bad-request"],
    ["a text that is none", "POST", "/v1/sessions/chat-a/turns", { text: 1 }, 400, "bad-request"],
    ["a class that is none", "POST", "/v1/sessions", { class: "top" }, 400, "bad-request"],
    ["a key in a cancel", "POST", "/v1/sessions/chat-a/cancel", { now: true }, 400, "bad-request"],
    ["the log of nobody", "GET", "/v1/sessions/chat-a/log", undefined, 404, "unknown-session"],
    ["the row of nobody", "GET", "/v1/sessions/chat-a", undefined, 404, "unknown-session"],
    ["a path that is none", "GET", "/v1/approvals", undefined, 404, "unknown-path"],
    ["a method that is none", "POST", "/v1/status", {}, 404, "unknown-path"],
  ] as const
) {
  Deno.test(`${what} is ${status} ${code}, and no session is made`, async () => {
    await using rig = await chat();
    assertEquals(codeOf(method === "GET" ? await get(rig, path) : await post(rig, path, body)), [
      status,
      code,
    ]);
    assertEquals(await namesIn(rig.paths.sessions), []);
  });
}

Deno.test("a message of the longest length is taken, one byte more is 413 and leaves no session", async () => {
  await using rig = await startLoopdRig({ script: () => says("hello"), model: { nCtx: 1_000_000 } });
  const refused = await post(rig, "/v1/sessions/chat-a/turns", {
    text: "x".repeat(userTextBytesMax - 1) + "é",
  });
  assertEquals(codeOf(refused), [413, "too-large"]);
  assertEquals(await namesIn(rig.paths.sessions), []);
  assertEquals((await rig.send("chat-a", "x".repeat(userTextBytesMax - 2) + "é")).status, "completed");
});

Deno.test("B13 a new session begins at the class that was asked for, or at the configured one", async () => {
  await using rig = await chat();
  for (
    const [asked, wanted] of [["secret", "secret"], ["public", "public"], [undefined, "private"]] as const
  ) {
    const session = await rig.newSession(asked);
    assert(/^chat-[a-z0-9]{8}$/.test(session), session);
    assertEquals(recordsOf(await rig.log(session), "open")[0].label, { class: wanted, untrusted: false });
  }
});

Deno.test("B3 a turn's stream is thinking, deltas, calls, results and one done, each as the protocol has it", async () => {
  await using rig = await startLoopdRig({
    script: ({ messages }) =>
      messages.at(-1)?.role === "tool"
        ? { content: "it is noon", thinking: "I see", chunkBytes: 4 }
        : { ...calls("clock", {}), content: "let me look" },
  });
  const session = await rig.newSession();
  const events: TurnEvent[] = [];
  const outcome = await rig.send(session, "what time is it?", (event) => events.push(event));
  for (const event of events) assert(turnEventSchema.safeParse(event).success, JSON.stringify(event));
  const kinds = events.map(({ event }) => event).filter((kind, at, all) => kind !== all[at - 1]);
  assertEquals(kinds, ["delta", "call", "result", "thinking", "delta", "done"]);
  const said = events.flatMap((event) => event.event === "delta" ? [event.data.text] : []).join("");
  assertEquals(said, "let me lookit is noon");
  assertEquals(outcome.content, "it is noon");
  assertEquals(
    outcome.usage.promptTokens,
    recordsOf(await rig.log(session), "assistant").reduce(
      (sum, { timings }) => sum + timings.cacheN + timings.promptN,
      0,
    ),
  );
});

Deno.test("B3 a reader that leaves does not end the turn", async () => {
  const hold = Promise.withResolvers<void>();
  await using rig = await startLoopdRig({ script: () => ({ content: "hello", hold: hold.promise }) });
  const session = await rig.newSession();
  const abort = new AbortController();
  const reading = Array.fromAsync(requestEvents(rig.paths.loopSocket, {
    method: "POST",
    path: `/v1/sessions/${session}/turns`,
    body: { text: "hi" },
    signal: abort.signal,
  }));
  await rig.model.nextRequest();
  abort.abort(new Error("left"));
  await assertRejects(() => reading, Error, "left");
  const ended = followUntil(rig, session, "end");
  hold.resolve();
  assertEquals((await ended).at(-1)?.kind, "end");
  assertEquals(recordsOf(await rig.log(session), "end").map(({ status }) => status), ["completed"]);
});

/** Follows a session's log until a record of this kind came. */
async function followUntil(
  rig: LoopdRig,
  session: string,
  kind: string,
): Promise<{ kind: string; seq: number }[]> {
  const records: { kind: string; seq: number }[] = [];
  const path = `/v1/sessions/${session}/log?follow=1`;
  for await (const { data } of requestEvents(rig.paths.loopSocket, { method: "GET", path })) {
    records.push(data as { kind: string; seq: number });
    if (records.at(-1)?.kind === kind) break;
  }
  return records;
}

Deno.test("F32 a log is followed from its first record, live, each record once and in order", async () => {
  await using rig = await startLoopdRig({
    script: ({ messages }) => messages.at(-1)?.role === "tool" ? says("noon") : calls("clock", {}),
  });
  const session = await rig.newSession();
  const following = followUntil(rig, session, "end");
  await rig.send(session, "what time is it?");
  const records = await following;
  assertEquals(records.map(({ seq }) => seq), records.map((_, at) => at + 1));
  assertEquals(records.length, (await rig.log(session)).length);
});

async function statusOf(rig: LoopdRig): Promise<StatusAnswer> {
  const { status: _status, ...answer } = (await get(rig, "/v1/status")).body as Record<string, unknown>;
  const parsed = statusAnswerSchema.safeParse(answer);
  assert(parsed.success, JSON.stringify(parsed.error?.issues));
  return parsed.data;
}

Deno.test("F32 status shows slots, holds and the queue with its reasons, in the protocol's own form", async () => {
  const hold = Promise.withResolvers<void>();
  await using rig = await startLoopdRig({ script: () => ({ content: "hello", hold: hold.promise }) });
  const [first, second] = [await rig.newSession(), await rig.newSession()];
  const turns = [rig.send(first, "hi")];
  await rig.model.nextRequest();
  turns.push(rig.send(second, "hi"));
  for (const turn of turns) turn.catch(() => {});
  let answer = await statusOf(rig);
  while (answer.slots.every(({ queue }) => queue.length === 0)) answer = await statusOf(rig);
  const main = answer.slots.find(({ use }) => use === "main");
  assertEquals([main?.state, String(main?.holder)], ["busy", first]);
  assertEquals(main?.queue.map(({ session, priority }) => [String(session), priority]), [[second, "live"]]);
  assertEquals(
    answer.held.map(({ session, status }) => [String(session), status]).sort(),
    [[first, "running"], [second, "waiting"]].sort(),
  );
  assertEquals([answer.inference.reachable, answer.broker.reachable, answer.sessions], [true, true, 2]);
  hold.resolve();
  await Promise.all(turns);
});

Deno.test("B1 a session whose log a newer Boxmaker wrote is refused by name; the others, and the role, go on", async () => {
  await using rig = await chat();
  await rig.send("chat-good", "hi");
  await rig.send("chat-newer", "hi");
  const path = `${rig.paths.sessions}/chat-newer/log.jsonl`;
  const newer = (await textOf(path)).replaceAll('"v":1', '"v":2');
  await rig.restart(() => Deno.writeTextFile(path, newer));
  await rig.loopd.resumed;
  const refused = await assertRejects(() => rig.send("chat-newer", "hi"), PeerRefused);
  assert(refused.httpStatus >= 400 && refused.httpStatus < 500, `HTTP ${refused.httpStatus}`);
  assertStringIncludes(refused.message, "newer than this Boxmaker reads");
  const { httpStatus, body } = await get(rig, "/v1/sessions");
  assertEquals(httpStatus, 200);
  assert(
    (body as { sessions: { session: string }[] }).sessions.some(({ session }) => session === "chat-good"),
  );
  assertEquals((await get(rig, "/v1/sessions/chat-newer/log")).httpStatus >= 500, false);
  assertEquals((await rig.send("chat-good", "hi")).status, "completed");
  assertEquals(await textOf(path), newer);
});

Deno.test("B1 a turn that meets a fault outside the model still gives every call a result and ends: its session stays usable", async () => {
  await using rig = await startLoopdRig({
    script: ({ messages }) =>
      messages.length === 2 ? calls("memory", { action: "add", target: "notes", text: "x" }) : says("hello"),
  });
  // A directory where the file should be: every read of it fails.
  await Deno.mkdir(rig.paths.notes);
  await rig.restart(async () => {
    await Deno.remove(rig.paths.notes);
  });
  const session = await rig.newSession();
  await Deno.mkdir(rig.paths.notes);
  const outcome = await rig.send(session, "keep it");
  assertEquals(outcome.status, "completed");
  assertEquals(resultsOf(await rig.log(session)).map(({ status }) => status), ["error"]);
  assertEquals((await rig.send(session, "and now?")).status, "completed");
  await Deno.remove(rig.paths.notes);
});

Deno.test("an inference server that is not configured fails the turn with what to write, and the session stays usable", async () => {
  await using rig = await chat();
  await rig.restart(() => Deno.writeTextFile(rig.paths.loopdToml, ""));
  const session = await rig.newSession();
  const outcome = await rig.send(session, "hi");
  assertEquals(outcome.status, "failed");
  assertStringIncludes(outcome.reason ?? "", "set [inference] url in loopd.toml");
  assertEquals((await rig.send(session, "hi")).status, "failed");
});

Deno.test("F6 a failed turn leaves a history in which no two messages of the model follow each other", async () => {
  let asked = 0;
  await using rig = await startLoopdRig({ script: () => ++asked === 1 ? says("") : says("hello") });
  const session = await rig.newSession();
  assertEquals((await rig.send(session, "hi")).status, "failed");
  await rig.send(session, "and now?");
  const roles = rig.model.requests[1].messages.map(({ role }) => role);
  assert(!roles.join().includes("assistant,assistant"), roles.join());
});

Deno.test("S17 B4 two first messages to one new chat make one session: one is answered, the other is busy", async () => {
  await using rig = await chat();
  const outcomes = await Promise.all(
    ["one", "two"].map((text) =>
      rig.send("chat-new", text).then(({ status }) => status, (error) => error.code)
    ),
  );
  assertEquals(outcomes.toSorted(), ["busy", "completed"]);
  assertEquals(recordsOf(await rig.log("chat-new"), "open").length, 1);
  assertEquals((await rig.send("chat-new", "three")).status, "completed");
});
