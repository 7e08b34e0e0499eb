// After kill -9, wherever it fell: every call has exactly one result, what may have acted is not done again, and the turn goes on or says why not.

import { assert, assertEquals, assertMatch, assertRejects, assertStringIncludes } from "@std/assert";
import type { CallAnswer, CallState } from "../../../core/protocol/broker.ts";
import { PeerRefused } from "../../../core/wire/client.ts";
import { sessionLogPath } from "../../../loopd/session/log.ts";
import type { SessionRecord } from "../../../loopd/session/record.ts";
import type { SessionId } from "../../../core/ids.ts";
import type { Reply, ScriptRequest } from "../../../tools/stubs/model_script.ts";
import { crash, restoreSnapshot, type Snapshot, takeSnapshot } from "../../support/crash.ts";
import { startFakeBroker } from "../../support/fake_broker.ts";
import { calls, callsTool, type LoopdRig, says, startLoopdRig } from "../../support/loopd_rig.ts";
import { shiftedClock } from "../../support/shifted_clock.ts";
import { namesIn, recordsOf, resultsOf, textOf, textsOf } from "../../support/transcript.ts";

const heard = { class: "private", untrusted: true } as const;
const four: CallAnswer = { status: "ok", text: "four", label: heard };
const resultsIn = ({ messages }: Pick<ScriptRequest, "messages">) =>
  messages.filter(({ role }) => role === "tool").length;
const note = (text: string) => calls("memory", { action: "add", target: "notes", text });

/** Each call of a model message has one result, and each turn one end. */
function assertWhole(log: readonly SessionRecord[], id: string): void {
  const asked = recordsOf(log, "assistant").flatMap(({ calls }) => calls.map(({ call }) => call));
  assertEquals(resultsOf(log).map(({ call }) => call), asked, `results of ${id}`);
  assertEquals(recordsOf(log, "end").length, recordsOf(log, "user").length, `ends of ${id}`);
}

const encoder = new TextEncoder();
const pathOf = (rig: LoopdRig, id: string) => sessionLogPath(rig.paths.sessions, id as SessionId);

Deno.test("F1 B1 a turn that a crash cut in its model request goes on by itself, asks once more, and ends once", async () => {
  const hold = Promise.withResolvers<void>();
  let asked = 0;
  await using rig = await startLoopdRig({
    script: () => ++asked === 1 ? { content: "lost", hold: hold.promise } : says("here"),
  });
  const session = await rig.newSession();
  const lost = assertRejects(() => rig.send(session, "hello"));
  await rig.model.nextRequest();
  await crash(rig);
  await lost;
  hold.resolve();
  await rig.loopd.resumed;
  const log = await rig.log(session);
  assertWhole(log, session);
  assertEquals(recordsOf(log, "resume").map(({ after }) => after), ["crash"]);
  assertEquals(recordsOf(log, "assistant").map(({ content }) => content), ["here"]);
  assertEquals(rig.model.requests[1].messages, rig.model.requests[0].messages);
});

Deno.test("B1 an orderly stop leaves the turn open, says so, and it goes on after the start", async () => {
  const hold = Promise.withResolvers<void>();
  let asked = 0;
  await using rig = await startLoopdRig({
    script: () => ++asked === 1 ? { content: "lost", hold: hold.promise } : says("here"),
  });
  const session = await rig.newSession();
  const lost = assertRejects(() => rig.send(session, "hello"));
  await rig.model.nextRequest();
  await rig.restart();
  await lost;
  hold.resolve();
  await rig.loopd.resumed;
  const log = await rig.log(session);
  assertWhole(log, session);
  assertEquals([recordsOf(log, "pause").length, recordsOf(log, "resume")[0].after], [1, "stop"]);
});

/** A tree of three with a consult in the deepest, a memory write in the middle: run once, its records in the order in which they were written. */
async function wholeRun() {
  /** The calls that brokerd knows of. */
  const posted = new Set<string>();
  const rig = await startLoopdRig({
    script: (request): Reply => {
      const asked = String(request.messages.find(({ role }) => role === "user")?.content);
      const results = resultsIn(request);
      if (asked.endsWith("deepest")) {
        return results === 0 ? callsTool("consult", { question: "2+2?" }) : says("deepest done");
      }
      if (asked.endsWith("middle")) {
        return [note("once"), callsTool("subagent", { task: "deepest" })][results] ?? says("middle done");
      }
      return results === 0 ? callsTool("subagent", { task: "middle" }) : says("root done");
    },
    broker: {
      answer: (call) => {
        const key = `${call.session} ${call.call}`;
        assert(!posted.has(key), `the call ${key} is posted once`);
        posted.add(key);
        return four;
      },
      state: (session, call): CallState => posted.has(`${session} ${call}`) ? four : { status: "unknown" },
    },
  });
  const root = await rig.newSession();
  await rig.send(root, "go");
  const [middle, deepest] = [`sub-${root}-1`, `sub-sub-${root}-1-2`];
  const written = new Map<string, string[]>();
  for (const id of [root, middle, deepest]) {
    written.set(id, (await textOf(pathOf(rig, id))).trimEnd().split("\n"));
  }
  // A child's whole log stands between its parent's spawn and result records.
  const order = (id: string, child?: string): { id: string; line: string }[] =>
    (written.get(id) ?? []).flatMap((line) => [
      { id, line },
      ...(line.includes('"kind":"spawn"') && child !== undefined
        ? order(child, child === middle ? deepest : undefined)
        : []),
    ]);
  return { rig, root, posted, lines: order(root, middle) };
}

Deno.test("F1 F2 F4 B1 cut after any record, or in the middle of the next, a tree of three ends as if nothing had been: one result a call, one consult, one note", async () => {
  const run = await wholeRun();
  await using rig = run.rig;
  const { root, lines, posted } = run;
  assertEquals(lines.length, 25);
  const notes = [...await takeSnapshot(rig)].filter(([path]) => path === rig.paths.notes);
  const family = [root, `sub-${root}-1`, `sub-sub-${root}-1-2`];
  const knownCalls = [...posted];
  const firstCut = lines.findIndex(({ line }) => line.includes('"kind":"user"')) + 1;

  for (let cut = firstCut; cut <= lines.length; cut++) {
    for (const torn of cut < lines.length ? [false, true] : [false]) {
      const place = `cut after record ${cut}${torn ? " and a half" : ""}`;
      const kept = lines.slice(0, cut).map(({ id, line }) => ({ id, text: line + "\n" }));
      if (torn) kept.push({ id: lines[cut].id, text: lines[cut].line.slice(0, lines[cut].line.length / 2) });
      const files = family.map((id) => [pathOf(rig, id), kept.filter((entry) => entry.id === id)] as const)
        .filter(([, entries]) => entries.length > 0)
        .map(([path, entries]) => [path, encoder.encode(entries.map(({ text }) => text).join(""))] as const);
      // A call may have acted as soon as its message is on disk, and not before: here it always had.
      const asked = (words: string) =>
        kept.some(({ text }) =>
          text.endsWith("\n") && text.includes('"kind":"assistant"') && text.includes(words)
        );
      const snapshot: Snapshot = new Map([...files, ...(asked("once") ? notes : [])]);
      posted.clear();
      if (asked("2+2?")) { for (const call of knownCalls) posted.add(call); }

      await rig.restart(() => restoreSnapshot(rig, snapshot));
      await rig.loopd.resumed;
      for (const id of family) assertWhole(await rig.log(id), `${id}, ${place}`);
      const log = await rig.log(root);
      assertEquals(recordsOf(log, "end").map(({ status }) => status), ["completed"], place);
      assertEquals(
        resultsOf(log).map(({ text }) => text),
        [`subagent ${family[1]} completed\nmiddle done`],
        place,
      );
      assertEquals((await textOf(rig.paths.notes)).match(/once/g)?.length, 1, place);
      assertEquals([...posted], knownCalls, place);
      assertEquals(await namesIn(rig.paths.sessions), family.toSorted(), place);
    }
  }
});

Deno.test("F1 S7 a child that had finished is not run again: its answer is delivered to the waiting call, once", async () => {
  await using rig = await startLoopdRig({
    script: (request) => {
      if (request.slot === 2) return says("child done");
      return resultsIn(request) === 0 ? callsTool("subagent", { task: "work" }) : says("parent done");
    },
  });
  const session = await rig.newSession();
  await rig.send(session, "go");
  const text = await textOf(pathOf(rig, session));
  const beforeResult = text.slice(0, text.lastIndexOf("\n", text.indexOf('"kind":"result"')) + 1);
  for (let start = 0; start < 2; start++) {
    await rig.restart(() =>
      start === 0 ? Deno.writeTextFile(pathOf(rig, session), beforeResult) : Promise.resolve()
    );
    await rig.loopd.resumed;
    assertEquals(resultsOf(await rig.log(session)).map(({ text }) => text), [
      `subagent sub-${session}-1 completed\nchild done`,
    ]);
    assertEquals(rig.model.requests.filter(({ slot }) => slot === 2).length, 1);
  }
});

Deno.test("F2 a child that is cut in its third tool call resumes from its log: the call that may have acted is interrupted, not run again", async () => {
  const answer = Promise.withResolvers<CallAnswer>();
  const asked = Promise.withResolvers<void>();
  await using rig = await startLoopdRig({
    script: (request) => {
      const results = resultsIn(request);
      if (request.slot === 0) {
        return results === 0 ? callsTool("subagent", { task: "work" }) : says("parent done");
      }
      return [calls("clock", {}), note("once"), callsTool("consult", { question: "2+2?" })][results] ??
        says("child done");
    },
    broker: { answer: () => (asked.resolve(), answer.promise), state: () => ({ status: "unknown" }) },
  });
  const session = await rig.newSession();
  const lost = assertRejects(() => rig.send(session, "go"));
  await asked.promise;
  await crash(rig);
  await lost;
  answer.resolve(four);
  await rig.loopd.resumed;
  const child = await rig.log(`sub-${session}-1`);
  assertWhole(child, "the child");
  assertEquals(resultsOf(child).map(({ tool, status, code }) => [tool, status, code]), [
    ["clock", "ok", undefined],
    ["memory", "ok", undefined],
    ["consult", "error", "interrupted"],
  ]);
  assertEquals(rig.broker.calls.length, 1);
  assertEquals(resultsOf(await rig.log(session)).map(({ text }) => text), [
    `subagent sub-${session}-1 completed\nchild done`,
  ]);
});

Deno.test("F2 a memory write that a crash cut is interrupted and said so, and the fact stands at most once", async () => {
  await using rig = await startLoopdRig({
    script: (request) => resultsIn(request) === 0 ? note("once") : says("done"),
  });
  const session = await rig.newSession();
  await rig.send(session, "go");
  const text = await textOf(pathOf(rig, session));
  const beforeResult = text.slice(0, text.lastIndexOf("\n", text.indexOf('"kind":"result"')) + 1);
  await rig.restart(() => Deno.writeTextFile(pathOf(rig, session), beforeResult));
  await rig.loopd.resumed;
  const [result] = resultsOf(await rig.log(session));
  assertEquals([result.status, result.code], ["error", "interrupted"]);
  assertStringIncludes(result.text, "memory");
  assertEquals((await textOf(rig.paths.notes)).match(/once/g)?.length, 1);
});

Deno.test("F4 of several calls in one message the first open one may have acted, those behind it had not begun and run now", async () => {
  await using rig = await startLoopdRig({
    script: (request) =>
      resultsIn(request) > 0 ? says("done") : {
        toolCalls: ["one", "two", "three"].map((text) => ({
          name: "memory",
          arguments: { action: "add", target: "notes", text },
        })),
      },
  });
  const session = await rig.newSession();
  await rig.send(session, "go");
  const lines = (await textOf(pathOf(rig, session))).trimEnd().split("\n");
  const firstResult = lines.findIndex((line) => line.includes('"kind":"result"'));
  await rig.restart(async () => {
    await Deno.writeTextFile(pathOf(rig, session), lines.slice(0, firstResult + 1).join("\n") + "\n");
    const notes = (await textOf(rig.paths.notes)).split("\n");
    await Deno.writeTextFile(rig.paths.notes, notes.slice(0, 1).join("\n") + "\n");
  });
  await rig.loopd.resumed;
  assertEquals(resultsOf(await rig.log(session)).map(({ code }) => code ?? "ok"), [
    "ok",
    "interrupted",
    "ok",
  ]);
  assertEquals((await textOf(rig.paths.notes)).match(/one|two|three/g), ["one", "three"]);
});

Deno.test("F3 a parent and its child that were left open 16 days ago are both expired: nothing is asked, nothing acts", async () => {
  const clock = shiftedClock();
  const asked = Promise.withResolvers<void>();
  await using rig = await startLoopdRig({
    clock,
    script: (request) => {
      if (request.slot === 0) {
        return resultsIn(request) === 0 ? callsTool("subagent", { task: "work" }) : says("parent done");
      }
      return resultsIn(request) === 0 ? callsTool("consult", { question: "2+2?" }) : note("too late");
    },
    broker: {
      answer: () => (asked.resolve(), new Promise<never>(() => {})),
      state: () => ({ status: "unknown" }),
    },
  });
  const session = await rig.newSession();
  const lost = assertRejects(() => rig.send(session, "go"));
  await asked.promise;
  const snapshot = await takeSnapshot(rig);
  const requests = rig.model.requests.length;
  await rig.restart(async () => {
    await restoreSnapshot(rig, snapshot);
    clock.set(clock.now() + 16 * 86_400_000);
  });
  await lost;
  await rig.loopd.resumed;
  for (const id of [session, `sub-${session}-1`]) {
    const log = await rig.log(id);
    assertWhole(log, id);
    assertEquals(
      recordsOf(log, "end").map(({ status, reason }) => [status, reason]),
      [["failed", "expired"]],
      id,
    );
  }
  assertMatch(resultsOf(await rig.log(session))[0].text, /expired/);
  assertEquals([rig.model.requests.length, rig.broker.calls.length], [requests, 1]);
  assertEquals(await textOf(rig.paths.notes), "");
  assertEquals(
    (await rig.send(session, "hello again")).status,
    "completed",
    "the session itself stays usable",
  );
});

Deno.test("F3 a turn that is resume_hours old goes on, one that is older does not", async () => {
  for (const [ageMs, status] of [[24 * 3_600_000, "completed"], [24 * 3_600_000 + 1, "failed"]] as const) {
    const clock = shiftedClock();
    let asked = 0;
    await using rig = await startLoopdRig({
      clock,
      script: () => ++asked === 1 ? { content: "lost", hold: new Promise(() => {}) } : says("here"),
    });
    const session = await rig.newSession();
    const lost = assertRejects(() => rig.send(session, "hello"));
    await rig.model.nextRequest();
    const snapshot = await takeSnapshot(rig);
    await rig.restart(async () => {
      await restoreSnapshot(rig, snapshot);
      clock.set(clock.now() + ageMs);
    });
    await lost;
    await rig.loopd.resumed;
    assertEquals(recordsOf(await rig.log(session), "end").map(({ status }) => status), [status]);
  }
});

for (
  const [what, cut] of [
    ["after the assistant's tool call", (text: string, at: number) => text.slice(0, at)],
    ["in the middle of the tool's result", (text: string, at: number) => text.slice(0, at + 40)],
    ["in the middle of the assistant's tool call", (text: string, at: number) => text.slice(0, at - 40)],
  ] as const
) {
  Deno.test(`F4 a log cut ${what} is repaired on disk, and a strict server accepts what "hi" makes of it`, async () => {
    await using rig = await startLoopdRig({
      script: (request) =>
        resultsIn(request) === 0 && request.messages.length === 2 ? note("once") : says("hello"),
    });
    const session = await rig.newSession();
    await rig.send(session, "go");
    const text = await textOf(pathOf(rig, session));
    const resultAt = text.lastIndexOf("\n", text.indexOf('"kind":"result"')) + 1;
    await rig.restart(async () => {
      await Deno.writeTextFile(pathOf(rig, session), cut(text, resultAt));
      // A call acts only when its message is on disk.
      if (what.includes("of the assistant")) await Deno.remove(rig.paths.notes);
    });
    await rig.loopd.resumed;
    const outcome = await rig.send(session, "hi");
    assertEquals([outcome.status, outcome.content], ["completed", "hello"]);
    const log = await rig.log(session);
    assertWhole(log, session);
    if (!what.includes("of the assistant")) assertEquals(resultsOf(log)[0].code, "interrupted");
    if (what.includes("middle")) assertEquals(recordsOf(log, "repair").length, 1);
    assertEquals(rig.model.requests.filter(({ state }) => state !== "completed"), []);
    assertEquals((await textOf(rig.paths.notes)).match(/once/g)?.length, 1);
  });
}

Deno.test("F4 a message that comes before an open turn could be resumed ends that turn first, and a strict server accepts it", async () => {
  await using rig = await startLoopdRig({
    script: (request) =>
      resultsIn(request) === 0 && request.messages.length === 2 ? note("once") : says("hello"),
  });
  const session = await rig.newSession();
  await rig.send(session, "go");
  const text = await textOf(pathOf(rig, session));
  await rig.restart(() =>
    Deno.writeTextFile(
      pathOf(rig, session),
      text.slice(0, text.lastIndexOf("\n", text.indexOf('"kind":"result"')) + 1),
    )
  );
  // Whoever is first, the resuming or the message: no call stays without a result, and no turn without an end.
  const outcome = await rig.send(session, "hi").catch((error) => error);
  assert(outcome instanceof PeerRefused ? outcome.code === "busy" : outcome.status === "completed");
  await rig.loopd.resumed;
  assertWhole(await rig.log(session), session);
  assertEquals((await rig.send(session, "hi again")).status, "completed");
});

Deno.test("B1 an end record torn at any byte is found at the start, and the turn is ended anew", async () => {
  await using rig = await startLoopdRig({ script: () => says("hello") });
  const session = await rig.newSession();
  await rig.send(session, "hi");
  const text = await textOf(pathOf(rig, session));
  const lastLine = text.lastIndexOf("\n", text.length - 2) + 1;
  for (let length = lastLine; length < text.length; length += 3) {
    await rig.restart(() => Deno.writeTextFile(pathOf(rig, session), text.slice(0, length)));
    await rig.loopd.resumed;
    const ends = recordsOf(await rig.log(session), "end");
    assertEquals(ends.map(({ status }) => status), ["completed"], `torn after ${length - lastLine} bytes`);
  }
  assertEquals(rig.model.requests.length, 1, "the answer was there already");
});

Deno.test("F2 a turn that loopd crashed in twice is not tried a third time: it is interrupted, and its session stays usable", async () => {
  let asked = 0;
  await using rig = await startLoopdRig({
    script: () => ++asked <= 2 ? { content: "lost", hold: new Promise(() => {}) } : says("here"),
  });
  const session = await rig.newSession();
  const lost = assertRejects(() => rig.send(session, "hello"));
  await rig.model.nextRequest();
  await crash(rig);
  await lost;
  await rig.model.nextRequest();
  await crash(rig);
  await rig.loopd.resumed;
  const [end] = recordsOf(await rig.log(session), "end");
  assertEquals([end.status, end.reason], ["failed", "interrupted"]);
  assertEquals(asked, 2);
  assertEquals((await rig.send(session, "again")).content, "here");
});

Deno.test("F2 a child that loopd crashed in twice fails as interrupted, its parent reads so and goes on", async () => {
  let asked = 0;
  await using rig = await startLoopdRig({
    script: (request) => {
      if (request.slot === 0) {
        return resultsIn(request) === 0 ? callsTool("subagent", { task: "work" }) : says("parent done");
      }
      return ++asked <= 2 ? { content: "lost", hold: new Promise(() => {}) } : says("child done");
    },
  });
  const session = await rig.newSession();
  const lost = assertRejects(() => rig.send(session, "go"));
  await rig.model.waitFor(({ slot }) => slot === 2);
  await crash(rig);
  await lost;
  await rig.model.waitFor(({ slot }) => slot === 2 && asked === 2);
  await crash(rig);
  await rig.loopd.resumed;
  const [result] = resultsOf(await rig.log(session));
  assert(result.text.startsWith(`subagent sub-${session}-1 failed: interrupted`), result.text);
  assertEquals(recordsOf(await rig.log(session), "end").map(({ status }) => status), ["completed"]);
  assertEquals(asked, 2);
});

Deno.test("B1 orderly stops are no crashes: a turn goes on after as many as there are", async () => {
  let asked = 0;
  await using rig = await startLoopdRig({
    script: () => ++asked <= 3 ? { content: "lost", hold: new Promise(() => {}) } : says("here"),
  });
  const session = await rig.newSession();
  const lost = assertRejects(() => rig.send(session, "hello"));
  for (let stops = 0; stops < 3; stops++) {
    await rig.model.nextRequest();
    await rig.restart();
  }
  await lost;
  await rig.loopd.resumed;
  assertEquals(recordsOf(await rig.log(session), "end").map(({ status }) => status), ["completed"]);
});

Deno.test("F1 a brokered call that a restart cut waits for a brokerd that starts later, and gets what it had decided", async () => {
  const asked = Promise.withResolvers<void>();
  await using rig = await startLoopdRig({
    script: (request) => resultsIn(request) === 0 ? callsTool("consult", { question: "2+2?" }) : says("done"),
    broker: { answer: () => (asked.resolve(), new Promise<never>(() => {})) },
  });
  const session = await rig.newSession();
  const lost = assertRejects(() => rig.send(session, "go"));
  await asked.promise;
  const snapshot = await takeSnapshot(rig);
  await rig.restart(async () => {
    await rig.broker.close();
    await restoreSnapshot(rig, snapshot);
  });
  await lost;
  while (rig.loopd.services.holds.get(session as SessionId) === undefined) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await using later = await startFakeBroker(rig.paths.brokerSocket, { state: () => four });
  await rig.loopd.resumed;
  assertEquals(resultsOf(await rig.log(session)).map(({ tool, text, label }) => [tool, text, label]), [[
    "consult",
    "four",
    heard,
  ]]);
  assertEquals(later.calls, []);
});

Deno.test("F13 a parent that began a new epoch in the middle of its turn is found open after a crash", async () => {
  await using rig = await startLoopdRig({ script: () => says("hello") });
  const session = await rig.newSession();
  await rig.send(session, "hi");
  const lines = (await textOf(pathOf(rig, session))).trimEnd().split("\n");
  const user = lines.findIndex((line) => line.includes('"kind":"user"'));
  const epoch = {
    ...JSON.parse(lines[1]),
    seq: user + 2,
    epoch: 2,
    system: "s",
    tools: "[]",
    summary: "short",
    coversTo: 2,
  };
  await rig.restart(() =>
    Deno.writeTextFile(
      pathOf(rig, session),
      [...lines.slice(0, user + 1), JSON.stringify(epoch)].join("\n") + "\n",
    )
  );
  await rig.loopd.resumed;
  assertEquals(recordsOf(await rig.log(session), "end").map(({ status }) => status), ["completed"]);
});

Deno.test("S17 a child that its parent's open call waits for is busy, before that call is resumed too", async () => {
  const gate = Promise.withResolvers<void>();
  let asked = 0;
  await using rig = await startLoopdRig({
    script: (request) => {
      if (request.slot === 0) {
        return resultsIn(request) === 0 ? callsTool("subagent", { task: "work" }) : says("parent done");
      }
      return ++asked === 1 ? { content: "lost", hold: new Promise(() => {}) } : says("child done");
    },
  });
  const session = await rig.newSession();
  const lost = assertRejects(() => rig.send(session, "go"));
  await rig.model.waitFor(({ slot }) => slot === 2);
  const snapshot = await takeSnapshot(rig);
  await using relay = gatedServer(rig.model.url, gate.promise);
  await rig.restart(async () => {
    await restoreSnapshot(rig, snapshot);
    const toml = await textOf(rig.paths.loopdToml);
    await Deno.writeTextFile(rig.paths.loopdToml, toml.replace(rig.model.url, relay.url));
  });
  await lost;
  const refused = await assertRejects(() => rig.send(`sub-${session}-1`, "hello"), PeerRefused);
  assertEquals(refused.code, "busy");
  gate.resolve();
  await rig.loopd.resumed;
  for (const id of [session, `sub-${session}-1`]) assertWhole(await rig.log(id), id);
  assertEquals(textsOf(rig.model.requests.at(-1) as never, "tool"), [
    `subagent sub-${session}-1 completed\nchild done`,
  ]);
});

/** The same server, but its `/props` is answered only when the gate opens: loopd has started and knows nothing of it yet. */
function gatedServer(url: string, gate: Promise<void>): AsyncDisposable & { url: string } {
  const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, async (request) => {
    const { pathname } = new URL(request.url);
    if (pathname === "/props") await gate;
    const { method } = request;
    const body = method === "POST" ? await request.text() : undefined;
    return await fetch(url + pathname, { method, body, signal: request.signal });
  });
  return { url: `http://127.0.0.1:${server.addr.port}`, [Symbol.asyncDispose]: () => server.shutdown() };
}

Deno.test("K2 a consult while no brokerd was ever met is broker-unavailable with its runbook entry, not an unknown tool", async () => {
  await using rig = await startLoopdRig({
    script: ({ messages }) =>
      messages.at(-1)?.role === "tool" ? says("done") : callsTool("consult", { question: "2+2?" }),
  });
  await rig.broker.close();
  const session = await rig.newSession();
  const outcome = await rig.send(session, "go");
  assertEquals(outcome.status, "completed");
  const [{ code, text }] = resultsOf(await rig.log(session));
  assertEquals(code, "broker-unavailable", text);
  assertStringIncludes(text, "docs/runbook.md#broker-unavailable");
});
