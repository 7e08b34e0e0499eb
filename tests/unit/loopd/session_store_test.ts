// Sessions in memory against sessions on disk: the same after any restart, made once, and closed when nobody uses them.

import { assert, assertEquals, assertRejects } from "@std/assert";
import { parseSessionId, type SessionId } from "../../../core/ids.ts";
import { type Label, labelAtMost } from "../../../core/labels.ts";
import type { Session } from "../../../loopd/session/session.ts";
import { sessionLogPath } from "../../../loopd/session/log.ts";
import { SessionStore } from "../../../loopd/session/store.ts";
import { fakeClock } from "../../support/fake_clock.ts";
import { calls, callsTool, says, startLoopdRig } from "../../support/loopd_rig.ts";
import { recordsOf, textOf } from "../../support/transcript.ts";

const label: Label = { class: "private", untrusted: false };
const id = parseSessionId("chat-a");

async function store(freezeBaseline = () => Promise.resolve({ system: "system", tools: "[]" })) {
  const directory = await Deno.makeTempDir({ prefix: "bx-" });
  const stores: SessionStore[] = [];
  const open = () => {
    const made = new SessionStore({ directory, clock: fakeClock(), freezeBaseline, onAppend: () => {} });
    stores.push(made);
    return made;
  };
  return {
    directory,
    open,
    async [Symbol.asyncDispose]() {
      for (const made of stores) await made.close();
      await Deno.remove(directory, { recursive: true });
    },
  };
}

/** What a session is to the rest of loopd. */
function seen(session: Session): Record<string, unknown> {
  const { id, parent, label, messagesJson, toolsJson, epoch, turn, lastCall, last, lastContent, unanswered } =
    session;
  const { turnOpen, turnIterations, usage, turnUsage, contextTokens, children, lastEnd, turnResults } =
    session;
  return {
    ...{ id, parent, label, messagesJson, toolsJson, epoch, turn, lastCall, last, lastContent, unanswered },
    ...{ turnOpen, turnIterations, usage, turnUsage, contextTokens, children, lastEnd, turnResults },
  };
}

Deno.test("B1 B2 after a restart a session is what it was: messages, label, numbers, usage, children", async () => {
  let asked = 0;
  await using rig = await startLoopdRig({
    script: ({ slot, messages }) => {
      if (slot === 2) return says("child's answer");
      if (messages.at(-1)?.role === "tool") return { content: "done", thinking: "hm" };
      return [
        callsTool("subagent", { task: "work" }),
        callsTool("consult", { question: "2+2?" }),
        says(""),
        { fault: { kind: "status", status: 400 } } as const,
        calls("clock", {}),
      ][asked++];
    },
    broker: { answer: () => ({ status: "ok", text: "four", label: { class: "private", untrusted: true } }) },
  });
  const session = await rig.newSession();
  for (let turn = 0; turn < 5; turn++) await rig.send(session, `turn ${turn} <|im_end|>`);
  for (const one of [session, `sub-${session}-1`] as SessionId[]) {
    const before = seen(await rig.loopd.services.store.get(one));
    await rig.restart();
    assertEquals(seen(await rig.loopd.services.store.get(one)), before);
  }
});

Deno.test("B7 a session's label never falls from record to record, and is the join of what it began with and heard", async () => {
  const heard: Label[] = [
    { class: "public", untrusted: false },
    { class: "private", untrusted: true },
    { class: "public", untrusted: false },
    { class: "secret", untrusted: false },
    { class: "private", untrusted: false },
  ];
  await using rig = await startLoopdRig({
    script: ({ messages }) =>
      messages.at(-1)?.role === "tool" ? says("done") : callsTool("consult", { question: "?" }),
    broker: { answer: ({ call }) => ({ status: "ok", text: "x", label: heard[call - 1] }) },
  });
  const session = await rig.newSession("public");
  const labels: Label[] = [];
  for (const _ of heard) {
    labels.push((await rig.send(session, "go")).label);
    await rig.restart();
  }
  for (const [at, each] of labels.entries()) if (at > 0) assert(labelAtMost(labels[at - 1], each));
  assertEquals(labels, [
    { class: "public", untrusted: false },
    { class: "private", untrusted: true },
    { class: "private", untrusted: true },
    { class: "secret", untrusted: true },
    { class: "secret", untrusted: true },
  ]);
  assertEquals(rig.broker.calls.map(({ label }) => label.class), [
    "public",
    "public",
    "private",
    "private",
    "secret",
  ]);
});

Deno.test("B1 a session is opened once, however many ask for it at once", async () => {
  await using home = await store();
  const first = home.open();
  const [made, again] = await Promise.all([first.create(id, label), first.get(id)]);
  assert(made === again);
  await first.close();
  const second = home.open();
  const opened = await Promise.all([second.get(id), second.get(id), second.get(id)]);
  assert(opened.every((session) => session === opened[0]));
});

Deno.test("B1 a session that exists is not made again, one that does not is not found", async () => {
  await using home = await store();
  const sessions = home.open();
  await assertRejects(() => sessions.get(id), Deno.errors.NotFound);
  assertEquals(await sessions.exists(id), false);
  await sessions.create(id, label);
  assertEquals(await sessions.exists(id), true);
  await sessions.close();
  await assertRejects(() => home.open().create(id, label), Deno.errors.AlreadyExists);
});

Deno.test("B1 a session that a crash left without its first records never began, and begins when it is made", async () => {
  for (const left of ["", '{"v":1,"seq":1,"time":"2026-12-01T12:00:00.000Z","kind":"op']) {
    await using home = await store();
    await Deno.mkdir(`${home.directory}/${id}`);
    await Deno.writeTextFile(sessionLogPath(home.directory, id), left);
    const sessions = home.open();
    assertEquals(await sessions.exists(id), false);
    await assertRejects(() => sessions.get(id), Deno.errors.NotFound);
    const session = await sessions.create(id, { class: "secret", untrusted: true });
    assertEquals([session.epoch, session.label], [1, { class: "secret", untrusted: true }]);
    await sessions.close();
    assertEquals((await home.open().get(id)).label, { class: "secret", untrusted: true });
  }
});

Deno.test("B1 a session whose baseline cannot be made is not there afterwards, and can be made later", async () => {
  let fails = true;
  await using home = await store(() =>
    fails ? Promise.reject(new Error("memory is gone")) : Promise.resolve({ system: "s", tools: "[]" })
  );
  const sessions = home.open();
  await assertRejects(() => sessions.create(id, label), Error, "memory is gone");
  fails = false;
  assertEquals((await sessions.create(id, label)).epoch, 1);
});

Deno.test("B1 only folders that are named like sessions are sessions", async () => {
  await using home = await store();
  const sessions = home.open();
  await sessions.create(id, label);
  await Deno.mkdir(`${home.directory}/Not A Session`);
  await Deno.mkdir(`${home.directory}/chat-a.retired-1`);
  await Deno.writeTextFile(`${home.directory}/chat-file`, "");
  assertEquals(await sessions.ids(), [id]);
});

Deno.test("B1 sessions that nobody uses are closed beyond a bound, those in use and those followed stay", async () => {
  await using home = await store();
  const sessions = home.open();
  const ids = Array.from({ length: 60 }, (_, at) => parseSessionId(`chat-${String(at).padStart(2, "0")}`));
  const made = new Map<SessionId, Session>();
  for (const each of ids) made.set(each, await sessions.create(each, label));
  const unfollow = made.get(ids[1])?.follow(() => {});
  await sessions.trim((each) => each === ids[0]);
  assert(await sessions.get(ids[0]) === made.get(ids[0]), "in use");
  assert(await sessions.get(ids[1]) === made.get(ids[1]), "followed");
  const reopened = await sessions.get(ids[2]);
  assert(reopened !== made.get(ids[2]), "closed, and opened again");
  assertEquals(seen(reopened), seen(made.get(ids[2]) as Session));
  unfollow?.();
});

Deno.test("B1 a session that is taken up while others are trimmed stays open, whichever came first", async () => {
  await using home = await store();
  const sessions = home.open();
  const ids = Array.from({ length: 80 }, (_, at) => parseSessionId(`chat-${at}`));
  for (const id of ids) await sessions.create(id, label);
  const nobody = () => false;
  const [first] = await Promise.all([sessions.get(ids[0]), sessions.trim(nobody)]);
  await first.append({ kind: "repair", text: "written" });
  for (const id of ids) await sessions.get(id);
  const [, again] = await Promise.all([sessions.trim(nobody), sessions.get(ids[0]), sessions.trim(nobody)]);
  await again.append({ kind: "repair", text: "written again" });
  assertEquals(again.lastSeq, first.lastSeq + 1);
  // As two who list all sessions at once do it.
  const list = async () => {
    for (const id of ids) {
      await sessions.get(id);
      await sessions.trim(nobody);
    }
  };
  await Promise.all([list(), list(), list()]);
});

Deno.test("B1 a session that was just given to somebody is not trimmed, though all others are in use", async () => {
  await using home = await store();
  const sessions = home.open();
  for (let at = 0; at < 33; at++) await sessions.create(parseSessionId(`chat-used-${at}`), label);
  await sessions.create(id, label);
  const isUsed = (other: SessionId) => other !== id;
  // Between any two steps of who takes it up, opened already or read from disk.
  const trim = async () => {
    for (let time = 0; time < 100; time++) await sessions.trim(isUsed);
  };
  for (let time = 0; time < 20; time++) {
    const [, session] = await Promise.all([trim(), sessions.get(id)]);
    await session.append({ kind: "repair", text: "written" });
  }
});

Deno.test("B13 who asks for a session that is being taken away waits, and gets none of the old one", async () => {
  await using home = await store();
  const sessions = home.open();
  const old = await sessions.create(id, label);
  await old.append({ kind: "repair", text: "written" });
  const mayGo = Promise.withResolvers<void>();
  const removed = sessions.remove(id, async () => {
    await mayGo.promise;
    await Deno.rename(`${home.directory}/${id}`, `${home.directory}/${id}.retired-1`);
  });
  const refused = assertRejects(() => sessions.get(id), Deno.errors.NotFound);
  mayGo.resolve();
  await Promise.all([removed, refused]);
  const anew = await sessions.create(id, label);
  assertEquals(anew.lastSeq, 2);
  await assertRejects(
    () => sessions.remove(id, () => Promise.reject(new Error("no room"))),
    Error,
    "no room",
  );
  assertEquals((await sessions.get(id)).lastSeq, 2);
});

Deno.test("B1 a log is open to a start's look as long as its turn is, and only then", async () => {
  await using home = await store();
  const sessions = home.open();
  const session = await sessions.create(id, label);
  assertEquals(await sessions.mayBeOpen(id), false);
  await session.append({ kind: "user", turn: 1, text: 'a text that says "kind":"end" and "kind":"epoch"' });
  assertEquals(await sessions.mayBeOpen(id), true);
  await session.append({ kind: "user", turn: 1, text: "x".repeat(10_000) + '"kind":"end"' });
  assertEquals(await sessions.mayBeOpen(id), true);
  await session.append({ kind: "end", turn: 1, status: "completed" });
  assertEquals(await sessions.mayBeOpen(id), false);
  await session.append({ kind: "pause", turn: 1 });
  assertEquals(await sessions.mayBeOpen(id), true);
  assertEquals(await sessions.mayBeOpen(parseSessionId("chat-none")), false);
});

Deno.test("B1 a user's own words come back as they were sent, control tokens harmless only where the model reads them", async () => {
  await using rig = await startLoopdRig({ script: () => says("hello") });
  const session = await rig.newSession();
  const text = "a <|im_end|> and a <b>tag</b>, \u0000, \ud800 and 😀";
  await rig.send(session, text);
  assertEquals(recordsOf(await rig.log(session), "user")[0].text, text);
  assertEquals(rig.model.requests[0].messages[1].content, text.replace("<|", "‹|"));
  assert((await textOf(sessionLogPath(rig.paths.sessions, session))).includes("<|im_end|>"));
});
