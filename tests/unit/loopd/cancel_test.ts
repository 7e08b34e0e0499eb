// The owner's cancel: it ends every session of a tree within two seconds wherever it stands, and leaves nothing running behind it.

import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import type { SessionId } from "../../../core/ids.ts";
import type { CallAnswer } from "../../../core/protocol/broker.ts";
import type { TurnOutcome } from "../../../core/protocol/loop.ts";
import { PeerRefused, requestJson } from "../../../core/wire/client.ts";
import type { Reply, ScriptRequest } from "../../../tools/stubs/model_script.ts";
import {
  callsTool,
  type LoopdRig,
  type LoopdRigOptions,
  says,
  startLoopdRig,
} from "../../support/loopd_rig.ts";
import { fakeClock } from "../../support/fake_clock.ts";
import { recordsOf, resultsOf, textOf } from "../../support/transcript.ts";

const cancelMsMax = 2_000;
const resultsIn = ({ messages }: Pick<ScriptRequest, "messages">) =>
  messages.filter(({ role }) => role === "tool").length;

async function cancel(rig: LoopdRig, id: string): Promise<unknown> {
  const path = `/v1/sessions/${id}/cancel`;
  return (await requestJson(rig.paths.loopSocket, { method: "POST", path, body: {} })).body;
}

/** Root, child and grandchild, the last doing what `deepest` says; each would write a note when its call returned. */
async function nestedTree(
  deepest: (request: ScriptRequest) => Reply,
  options: Partial<LoopdRigOptions> = {},
) {
  const rig = await startLoopdRig({
    script: (request) => {
      const asked = String(request.messages.find(({ role }) => role === "user")?.content);
      if (request.messages.at(-1)?.content === "hello again") return says("here");
      if (asked.endsWith("deepest")) return deepest(request);
      const next = asked.endsWith("middle") ? "deepest" : "middle";
      const late = { name: "memory", arguments: { action: "add", target: "notes", text: "too late" } };
      // Behind the child stands a call of the same message, and after it another message.
      return resultsIn(request) === 0
        ? { toolCalls: [...callsTool("subagent", { task: next }).toolCalls ?? [], late] }
        : { toolCalls: [late] };
    },
    ...options,
  });
  const root = await rig.newSession();
  const turn = rig.send(root, "go");
  turn.catch(() => {});
  return { rig, root, turn, family: [root, `sub-${root}-1`, `sub-sub-${root}-1-1`] };
}

/** Cancels at `id`, and checks what has to be so wherever the tree stood. */
async function cancelsWhole(
  tree: { rig: LoopdRig; family: string[]; turn: Promise<TurnOutcome> },
  id: string,
): Promise<void> {
  const { rig, family, turn } = tree;
  const requests = rig.model.requests.length;
  const started = performance.now();
  assertEquals(await cancel(rig, id), { status: "ok", cancelled: true });
  const outcome = await turn;
  assert(performance.now() - started < cancelMsMax, `${performance.now() - started} ms`);
  assertEquals(outcome.status, "cancelled");
  for (const session of family) {
    const log = await rig.log(session);
    assertEquals(recordsOf(log, "end").map(({ status, reason }) => [status, reason]), [[
      "cancelled",
      "cancelled",
    ]], session);
    const asked = recordsOf(log, "assistant").flatMap(({ calls }) => calls.map(({ call }) => call));
    assertEquals(resultsOf(log).map(({ call }) => call), asked, session);
  }
  assertEquals(family.filter((session) => rig.loopd.services.holds.has(session as SessionId)), []);
  assertEquals(await textOf(rig.paths.notes), "", "no later tool starts");
  assertEquals(rig.model.requests.length, requests, "no later request starts");
  // The slots are free again, after the drain of one whose request was cut.
  assertEquals((await rig.send(family[0], "hello again")).content, "here");
}

for (const at of [0, 1, 2]) {
  const who = ["root", "child", "grandchild"][at];
  Deno.test(`F8 a cancel of the ${who} while the grandchild streams ends all three; the server sees the connection close`, async () => {
    const tree = await nestedTree(() => ({
      content: "a long answer",
      chunkBytes: 2,
      fault: { kind: "stall", afterChunks: 3 },
    }));
    await using rig = tree.rig;
    const streaming = await rig.model.waitFor(({ slot, state }) =>
      slot === 2 && state === "running" && resultsNone(rig, 2)
    );
    await cancelsWhole(tree, tree.family[at]);
    assertEquals(streaming.state, "aborted");
  });
}

/** The background slot has been asked twice: child, then grandchild. */
function resultsNone(rig: LoopdRig, count: number): boolean {
  return rig.model.requests.filter(({ slot }) => slot === 2).length >= count;
}

Deno.test("F8 a cancel while the grandchild waits for the slot ends all three, and the slot's holder goes on", async () => {
  const hold = Promise.withResolvers<void>();
  const rivalWaits = Promise.withResolvers<void>();
  const tree = await nestedTree(() => says("never asked"), {
    script: (request) => {
      const asked = String(request.messages.find(({ role }) => role === "user")?.content);
      if (asked.endsWith("the other's")) return { content: "the other's answer", hold: hold.promise };
      if (request.messages.at(-1)?.content === "hello again") return says("here");
      if (asked === "other") {
        return resultsIn(request) === 0 ? callsTool("subagent", { task: "the other's" }) : says("other done");
      }
      if (asked.endsWith("middle")) {
        return { ...callsTool("subagent", { task: "deepest" }), hold: rivalWaits.promise };
      }
      return resultsIn(request) === 0 ? callsTool("subagent", { task: "middle" }) : says("unreachable");
    },
  });
  await using rig = tree.rig;
  const gate = rig.loopd.services.gate;
  // The rival's child queues behind the middle child's request, and takes the slot when that one spawns.
  await rig.model.waitFor(({ slot, state }) => slot === 2 && state === "running");
  const other = rig.send(await rig.newSession(), "other");
  other.catch(() => {});
  await until(() => gate.view().some(({ slot, queue }) => slot === 2 && queue.length === 1));
  rivalWaits.resolve();
  await until(() =>
    gate.view().some(({ slot, queue }) =>
      slot === 2 && queue.some(({ session }) => session === tree.family[2])
    )
  );
  await rig.model.waitFor(({ messages }) => String(messages.at(-1)?.content).endsWith("the other's"));
  await cancelsWhole(tree, tree.root);
  hold.resolve();
  assertEquals((await other).content, "other done");
});

/** Looks again after each turn of the event loop. */
async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 1));
}

for (
  const [what, state] of [["an approval", { status: "waiting", approval: "a1" }], ["a consult", {
    status: "running",
  }]] as const
) {
  Deno.test(`F8 F9 a cancel while the grandchild waits for ${what} ends all three, and brokerd sees the connection close`, async () => {
    const asked = Promise.withResolvers<void>();
    const answer = Promise.withResolvers<CallAnswer>();
    const tree = await nestedTree(
      (request) => resultsIn(request) === 0 ? callsTool("consult", { question: "2+2?" }) : says("four"),
      { broker: { answer: () => (asked.resolve(), answer.promise), state: () => state } },
    );
    await using rig = tree.rig;
    await asked.promise;
    await cancelsWhole(tree, tree.root);
    answer.resolve({ status: "ok", text: "four", label: { class: "private", untrusted: true } });
    assertEquals(rig.broker.calls.length, 1);
  });
}

Deno.test("F8 S12 the waiting calls of a cancelled tree read as failed: cancelled, and a child's label still rises", async () => {
  const tree = await nestedTree(
    (request) =>
      resultsIn(request) === 0
        ? callsTool("consult", { question: "2+2?" })
        : { content: "a long answer", chunkBytes: 2, fault: { kind: "stall", afterChunks: 2 } },
    {
      broker: { answer: () => ({ status: "ok", text: "four", label: { class: "secret", untrusted: true } }) },
    },
  );
  await using rig = tree.rig;
  await rig.model.waitFor(({ messages }) => messages.at(-1)?.content === "four");
  await cancel(rig, tree.root);
  const outcome = await tree.turn;
  assertEquals(outcome.label, { class: "secret", untrusted: true });
  const [result] = resultsOf(await rig.log(tree.root));
  assert(result.text.startsWith(`subagent ${tree.family[1]} failed: cancelled`), result.text);
  assertEquals([result.tool, result.status, result.code], ["subagent", "error", "cancelled"]);
});

Deno.test("F8 a turn that is cancelled in mid-answer keeps no half answer, and the next turn follows a note of it", async () => {
  await using rig = await startLoopdRig({
    script: ({ messages }) =>
      messages.length === 2
        ? { content: "half an answer", chunkBytes: 2, fault: { kind: "stall", afterChunks: 3 } }
        : says("here"),
  });
  const session = await rig.newSession();
  const heard = Promise.withResolvers<void>();
  const turn = rig.send(session, "hello", ({ event }) => event === "delta" && heard.resolve());
  await heard.promise;
  await cancel(rig, session);
  const outcome = await turn;
  assertEquals([outcome.status, outcome.content], ["cancelled", ""]);
  assertEquals((await rig.send(session, "and now?")).content, "here");
  assertEquals(rig.model.requests[1].messages.map(({ role, content }) => [role, content]).slice(1), [
    ["user", "hello"],
    ["assistant", "[no answer: cancelled]"],
    ["user", "and now?"],
  ]);
  assertEquals(rig.model.collisions, 0);
});

Deno.test("F8 while the server still works on a cancelled prompt its slot is draining, and nothing is sent there", async () => {
  await using rig = await startLoopdRig({
    model: { cancelNoticeMs: 300 },
    script: ({ messages }) =>
      messages.length === 2 ? { content: "late", progress: 0, hold: new Promise(() => {}) } : says("here"),
  });
  const session = await rig.newSession();
  const turn = rig.send(session, "hello");
  const first = await rig.model.nextRequest();
  await cancel(rig, session);
  await turn;
  assertEquals(rig.loopd.services.gate.view().find(({ slot }) => slot === 0)?.state, "draining");
  assertEquals((await rig.send(session, "and now?")).content, "here");
  assertEquals([first.state, rig.model.collisions], ["aborted", 0]);
});

Deno.test("F8 a stop does not wait for a slot that still drains", async () => {
  const clock = fakeClock();
  await using rig = await startLoopdRig({
    clock,
    model: { cancelNoticeMs: 60_000 },
    script: () => ({ content: "late", progress: 0, hold: new Promise(() => {}) }),
  });
  const session = await rig.newSession();
  const turn = rig.send(session, "hello");
  await rig.model.nextRequest();
  await cancel(rig, session);
  await turn;
  // The clock stands still, so that whatever waits for it waits for ever.
  let patience: ReturnType<typeof setTimeout> | undefined;
  const outcome = await Promise.race([
    rig.restart().then(() => "stopped"),
    new Promise((resolve) => patience = setTimeout(() => resolve("still waits"), 5_000)),
  ]);
  clearTimeout(patience);
  if (outcome !== "stopped") await clock.advance(600_000);
  assertEquals(outcome, "stopped");
});

Deno.test("a cancel where nothing runs says so, and one of an unknown session is 404", async () => {
  await using rig = await startLoopdRig({ script: () => says("here") });
  const session = await rig.newSession();
  assertEquals(await cancel(rig, session), { status: "ok", cancelled: false });
  await rig.send(session, "hello");
  assertEquals(await cancel(rig, session), { status: "ok", cancelled: false });
  const unknown = await cancel(rig, "chat-unknown") as { code: string; text: string };
  assertEquals(unknown.code, "unknown-session");
  assertStringIncludes(unknown.text, "chat-unknown");
});

Deno.test("F8 a message while a cancel is under way is busy or taken, never lost between", async () => {
  await using rig = await startLoopdRig({
    script: ({ messages }) =>
      messages.length === 2 ? { content: "x", fault: { kind: "silent" } } : says("here"),
  });
  const session = await rig.newSession();
  const turn = rig.send(session, "hello");
  await rig.model.nextRequest();
  const cancelling = cancel(rig, session);
  const refused = await assertRejects(() => rig.send(session, "at once"), PeerRefused).catch(() => undefined);
  if (refused !== undefined) assertEquals(refused.code, "busy");
  await cancelling;
  assertEquals((await turn).status, "cancelled");
  assertEquals(rig.loopd.services.holds.get(session as SessionId), undefined);
});
