// What keeps a prompt cache warm: within an epoch each request is the one before it and more, byte for byte, whatever happens in between.

import { assert, assertEquals, assertMatch } from "@std/assert";
import type { CallAnswer } from "../../../core/protocol/broker.ts";
import type { ModelRequest } from "../../../tools/stubs/model_requests.ts";
import type { Script } from "../../../tools/stubs/model_script.ts";
import { calls, callsTool, type LoopdRig, says, startLoopdRig } from "../../support/loopd_rig.ts";
import { shiftedClock } from "../../support/shifted_clock.ts";
import { lawfulCacheN, recordsOf } from "../../support/transcript.ts";

/** The inside of the messages array and the tools array of a body, as the text that was sent. */
function parts({ bytes }: ModelRequest): { messages: string; tools: string } {
  const text = new TextDecoder().decode(bytes);
  const match = /"messages":\[(.*)\],"tools":(\[.*\])\}$/s.exec(text);
  assert(match !== null, "a body carries messages, then tools, and nothing behind them");
  return { messages: match[1], tools: match[2] };
}

function assertBytesExtend(requests: readonly ModelRequest[]): void {
  for (const [at, request] of requests.entries()) {
    if (at === 0) continue;
    const [before, after] = [parts(requests[at - 1]), parts(request)];
    assert(after.messages.startsWith(before.messages + ","), `request ${at + 1} extends the one before it`);
    assertEquals(after.tools, before.tools);
  }
}

Deno.test("F14 B2 twenty turns, a child, an approval, a failure, a restart and midnight: each body of a session extends its last, byte for byte, and every prefix is kept", async () => {
  const clock = shiftedClock(Date.UTC(2026, 11, 31, 23, 50));
  const approval = Promise.withResolvers<CallAnswer>();
  const asked = Promise.withResolvers<void>();
  await using rig = await startLoopdRig({
    clock,
    script: ({ slot, messages }) => {
      const last = messages.at(-1);
      if (slot === 2) return says("child's answer");
      if (last?.role === "tool") return { content: "so it is — é 😀 \u2028", thinking: "noted" };
      switch (last?.content) {
        case "turn 3":
          return callsTool("subagent", { task: "work" });
        case "turn 6":
          return callsTool("consult", { question: "2+2?" });
        case "turn 9":
          return { fault: { kind: "status", status: 400 } };
        case "turn 12":
          return calls("clock", {});
        case "turn 15":
          return calls("memory", { action: "add", target: "identity", text: "new" });
        default:
          return { content: `answer to ${last?.content}`, thinking: "hm" };
      }
    },
    broker: {
      answer: () => (asked.resolve(), approval.promise),
      state: () => ({ status: "waiting", approval: "a1" }),
    },
  });
  const session = await rig.newSession();
  for (let turn = 1; turn <= 20; turn++) {
    clock.set(clock.now() + 120_000);
    if (turn === 10) await rig.restart();
    const sending = rig.send(session, `turn ${turn}`);
    if (turn === 6) {
      await asked.promise;
      approval.resolve({ status: "ok", text: "four", label: { class: "private", untrusted: true } });
    }
    assertEquals((await sending).status, turn === 9 ? "failed" : "completed", `turn ${turn}`);
  }
  assert(new Date(clock.now()).getUTCFullYear() === 2027, "midnight, and the year, have passed");

  const main = rig.model.requests.filter(({ slot }) => slot === 0);
  assertEquals(main.length, 20 + 4);
  assertBytesExtend(main);
  const answered = main.filter(({ state }) => state === "completed");
  for (const [at, request] of answered.entries()) {
    if (at > 0) assertEquals(request.cacheN, lawfulCacheN(answered[at - 1]), `request ${request.order}`);
  }
  assertEquals(
    recordsOf(await rig.log(session), "assistant").map(({ lostN }) => lostN).filter((lost) => lost > 0),
    [],
  );
});

Deno.test("B2 a request's time, label and holds stand nowhere in what is sent, and thinking goes back in one fixed way", async () => {
  await using rig = await startLoopdRig({
    script: ({ messages }) =>
      messages.at(-1)?.role === "tool"
        ? says("done")
        : { ...callsTool("consult", { question: "2+2?" }), thinking: "plum" },
    broker: { answer: () => ({ status: "ok", text: "four", label: { class: "secret", untrusted: true } }) },
  });
  const session = await rig.newSession();
  await rig.send(session, "go");
  await rig.send(session, "again");
  const bodies = rig.model.requests.map(parts);
  for (const { messages } of bodies) {
    assert(
      !/secret|untrusted|\d{4}-\d\d-\d\d|chat-/.test(messages.slice(messages.indexOf('"role":"user"'))),
      messages,
    );
  }
  const thinking = bodies.map(({ messages }) => (messages.match(/"reasoning_content":"plum"/g) ?? []).length);
  assertEquals(thinking, [0, 1, 1, 2]);
});

Deno.test("B2 a child's requests extend each other too, over a wait for its own child", async () => {
  await using rig = await startLoopdRig({
    script: ({ messages }) => {
      const asked = String(messages.find(({ role }) => role === "user")?.content);
      const results = messages.filter(({ role }) => role === "tool").length;
      if (asked.endsWith("inner")) return says("inner done");
      if (asked.endsWith("outer")) {
        return [calls("clock", {}), callsTool("subagent", { task: "inner" })][results] ?? says("outer done");
      }
      return results === 0 ? callsTool("subagent", { task: "outer" }) : says("done");
    },
  });
  await rig.send(await rig.newSession(), "go");
  const outer = rig.model.requests.filter(({ messages }) =>
    String(messages.find(({ role }) => role === "user")?.content).endsWith("outer")
  );
  assertEquals(outer.length, 3);
  assertBytesExtend(outer);
});

function lostCauses(rig: LoopdRig): unknown[] {
  return rig.events.filter(({ event }) => event === "prefix-lost").map(({ cause }) => cause);
}

Deno.test("B2 a child that clears its parent's slot is told once as a unified cache, and beside slots that are apart nothing is", async () => {
  const script: Script = ({ slot, messages }) => {
    if (slot === 2) return says("child's answer");
    return messages.at(-1)?.role === "tool" ? says("done") : callsTool("subagent", { task: "work" });
  };
  await using rig = await startLoopdRig({ script, model: { unifiedCache: true } });
  for (const text of ["one", "two"]) await rig.send("chat-a", text);
  assertEquals(lostCauses(rig), ["unified"]);
  assertMatch(
    String(rig.events.find(({ event }) => event === "prefix-lost")?.text),
    /^\d+ of \d+ tokens were computed again: .* start it with -np 3 --cache-ram 0$/,
  );
  await using apart = await startLoopdRig({ script });
  for (const text of ["one", "two"]) await apart.send("chat-a", text);
  assertEquals(lostCauses(apart), []);
});

Deno.test("B2 a slot that somebody else uses is told as that; one that two sessions of ours share is not told", async () => {
  await using rig = await startLoopdRig({ script: () => says("a word") });
  await rig.send("chat-a", "one");
  await rig.send("chat-b", "one");
  await rig.send("chat-a", "two");
  assertEquals(lostCauses(rig), []);
  const stranger = { model: "local", id_slot: 0, messages: [{ role: "user", content: "mine now" }] };
  const answer = await fetch(`${rig.model.url}/v1/chat/completions`, {
    method: "POST",
    body: JSON.stringify(stranger),
  });
  await answer.body?.cancel();
  await rig.send("chat-a", "three");
  assertEquals(lostCauses(rig), ["stranger"]);
});
