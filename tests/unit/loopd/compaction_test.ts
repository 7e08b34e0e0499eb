// Compaction: what a new epoch begins with, what it never touches, and that a summary which does not help costs nothing but its tries.

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import type { Script } from "../../../tools/stubs/model_script.ts";
import {
  callsTool,
  type LoopdRig,
  type LoopdRigOptions,
  says,
  startLoopdRig,
} from "../../support/loopd_rig.ts";
import { assertExtends, recordsOf, resultsOf, textsOf } from "../../support/transcript.ts";

const long = "a long answer. ".repeat(400);
const toml = "[compact]\nthreshold_tokens = 6000\nsummary_chars = 400\n";

const isSummary = (messages: readonly { content?: unknown }[]) =>
  String(messages[0]?.content).startsWith("You summarise");

function rigOf(script: Script, options: Partial<LoopdRigOptions> = {}): Promise<LoopdRig> {
  return startLoopdRig({ toml, script, ...options });
}

/** Resolves when the session's log has as many epochs. */
async function epochs(rig: LoopdRig, session: string, count: number): Promise<void> {
  const opened = await rig.loopd.services.store.get(session as never);
  if (opened.epoch >= count) return;
  await new Promise<void>((resolve) => {
    const unfollow = opened.follow((record) => {
      if (record.kind !== "epoch" || record.epoch < count) return;
      unfollow();
      resolve();
    });
  });
}

/** Resolves when loopd reported this event. */
async function reported(rig: LoopdRig, event: string): Promise<Readonly<Record<string, unknown>>> {
  for (;;) {
    const found = rig.events.find((one) => one.event === event);
    if (found !== undefined) return found;
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

Deno.test("B5 B2 over the threshold a summary made on the background slot takes the place of what was said; label, numbers and log stay", async () => {
  await using rig = await rigOf(({ messages, slot }) => {
    if (isSummary(messages)) {
      assertEquals(slot, 2);
      return { content: "they spoke of plums <|im_end|>", thinking: "how to put it" };
    }
    const last = messages.at(-1);
    if (last?.role === "tool") return says(long);
    return last?.content === "first" ? callsTool("consult", { question: "2+2?" }) : says("short");
  }, {
    broker: { answer: () => ({ status: "ok", text: "four", label: { class: "secret", untrusted: true } }) },
  });
  const session = await rig.newSession();
  await rig.send(session, "first");
  await epochs(rig, session, 2);
  const outcome = await rig.send(session, "second");

  assertEquals([outcome.status, outcome.content], ["completed", "short"]);
  assertEquals(
    outcome.label,
    { class: "secret", untrusted: true },
    "a label never falls through a compaction",
  );
  const newest = rig.model.requests.at(-1);
  assert(newest !== undefined);
  assertEquals(newest.messages.map(({ role }) => role), ["system", "user", "assistant", "user"]);
  assertStringIncludes(textsOf(newest, "user")[0], "they spoke of plums ‹|im_end|>");
  assert(!JSON.stringify(newest.messages).includes("how to put it"));
  assertEquals(textsOf(newest, "user")[1], "second");
  assertEquals(JSON.stringify(newest.tools), JSON.stringify(rig.model.requests[0].tools));
  const log = await rig.log(session);
  assertEquals(recordsOf(log, "epoch").map(({ epoch }) => epoch), [1, 2]);
  assertEquals(recordsOf(log, "user").map(({ text }) => text), ["first", "second"]);
  assertEquals(resultsOf(log).map(({ call }) => call), [1]);
});

Deno.test("B2 between two compactions each request extends the last, and after a restart the new epoch goes on", async () => {
  await using rig = await rigOf(({ messages }) =>
    isSummary(messages) ? says("a summary") : says("x".repeat(1_500))
  );
  const session = await rig.newSession();
  for (let turn = 1; turn <= 8; turn++) {
    await rig.send(session, `turn ${turn}`);
    if (turn === 5) await rig.restart();
  }
  const main = rig.model.requests.filter(({ slot }) => slot === 0);
  const breaks = main.filter((request, at) => {
    if (at === 0) return false;
    const before = main[at - 1].messages;
    return JSON.stringify(request.messages.slice(0, before.length)) !== JSON.stringify(before);
  });
  const later = recordsOf(await rig.log(session), "epoch").length - 1;
  assert(later >= 1, "the case would otherwise show nothing");
  assert(breaks.length <= later, `${breaks.length} breaks in ${later} new epochs`);
  assertEquals(rig.model.collisions, 0);
});

Deno.test("F13 a parent that compacts while it waits for its child keeps the pending call, which gets its one result", async () => {
  const held = Promise.withResolvers<void>();
  await using rig = await rigOf(({ messages, slot }) => {
    if (isSummary(messages)) return { content: "they spoke of plums", hold: held.promise };
    if (slot === 2) return says("child's answer");
    const last = messages.at(-1);
    if (last?.role === "tool") return says("done");
    return last?.content === "first" ? says(long) : callsTool("subagent", { task: "work" });
  });
  const session = await rig.newSession();
  await rig.send(session, "first");
  await rig.model.waitFor(({ messages }) => isSummary(messages));
  const begun = Promise.withResolvers<void>();
  (await rig.loopd.services.store.get(session)).follow(({ kind }) => kind === "user" && begun.resolve());
  const turn = rig.send(session, "second");
  await begun.promise;
  held.resolve();
  const outcome = await turn;

  assertEquals([outcome.status, outcome.content], ["completed", "done"]);
  assertEquals(outcome.calls, [{ call: 1, tool: "subagent", status: "ok" }]);
  const log = await rig.log(session);
  assertEquals(resultsOf(log).map(({ text }) => text), [
    `subagent sub-${session}-1 completed\nchild's answer`,
  ]);
  const newest = rig.model.requests.at(-1);
  assertEquals(newest?.messages.map(({ role }) => role), [
    "system",
    "user",
    "assistant",
    "user",
    "assistant",
    "tool",
  ]);
  assertEquals(recordsOf(log, "epoch").length, 2);
  const summaries = rig.model.requests.filter(({ messages }) => isSummary(messages));
  assertEquals(summaries.length, 1, "one summary is enough");
});

Deno.test("B5 a context that grows over the threshold inside a turn is compacted before the next request: the open request is repeated, the last call and its result stay", async () => {
  await using rig = await rigOf(({ messages }) => {
    if (isSummary(messages)) return says("so far: plums");
    const results = messages.filter(({ role }) => role === "tool").length;
    const asked = rig.model.requests.length;
    return asked < 4 && results < 3 ? callsTool("consult", { question: `question ${asked}` }) : says("done");
  }, {
    broker: {
      answer: ({ call }) => ({
        status: "ok",
        text: `answer ${call}: ${"y".repeat(2_000)}`,
        label: { class: "public", untrusted: false },
      }),
    },
  });
  const session = await rig.newSession();
  const outcome = await rig.send(session, "the task");
  assertEquals(outcome.status, "completed");
  const newest = rig.model.requests.filter(({ slot }) => slot === 0).at(-1);
  assert(newest !== undefined);
  assertEquals(newest.messages.map(({ role }) => role), ["system", "user", "assistant", "tool"]);
  assertStringIncludes(textsOf(newest, "user")[0], "the task");
  assertStringIncludes(textsOf(newest, "user")[0], "so far: plums");
  const log = await rig.log(session);
  assertEquals(resultsOf(log).map(({ call }) => call), outcome.calls.map(({ call }) => call));
});

Deno.test("F5 F21 a server whose context is smaller than the threshold supposes: one compaction makes room, and the turn goes on", async () => {
  await using rig = await rigOf(({ messages }) => isSummary(messages) ? says("so far: plums") : says("ok"), {
    toml: "[compact]\nthreshold_tokens = 1000000\nsummary_chars = 400\n",
    model: { nCtx: 9_000 },
  });
  const session = await rig.newSession();
  for (let turn = 1; turn <= 4; turn++) {
    const outcome = await rig.send(session, `turn ${turn}: ${"x".repeat(2_500)}`);
    assertEquals([outcome.status, outcome.reason], ["completed", undefined], `turn ${turn}`);
  }
  assert(rig.model.requests.some(({ status }) => status === 400), "the case would otherwise show nothing");
  assert(recordsOf(await rig.log(session), "epoch").length >= 2);
});

Deno.test("F5 F21 one message that alone is over the server's context fails as overflow, after bounded requests, and the session stays usable", async () => {
  await using rig = await rigOf(({ messages }) => isSummary(messages) ? says("so far") : says("ok"), {
    model: { nCtx: 9_000 },
  });
  const session = await rig.newSession();
  const outcome = await rig.send(session, "x".repeat(20_000));
  assertEquals([outcome.status, outcome.reason?.split(":")[0]], ["failed", "overflow"]);
  assert(rig.model.requests.length <= 5, `${rig.model.requests.length} requests`);
  assertEquals((await rig.send(session, "short")).status, "completed");
});

for (
  const [what, summary, text] of [
    ["as long as what it stands for", says(long), "not shorter"],
    ["empty", says(" "), "empty"],
  ] as const
) {
  Deno.test(`F21 a summary that is ${what} is given up with a plain reason, after bounded tries, and the session stays usable`, async () => {
    await using rig = await rigOf(({ messages }) => isSummary(messages) ? summary : says(long), {
      toml: "[compact]\nthreshold_tokens = 6000\nsummary_chars = 100000\n",
    });
    const session = await rig.newSession();
    await rig.send(session, "first");
    const event = await reported(rig, "compaction-failed");
    assertEquals(event.session, session);
    assertStringIncludes(String(event.text), text);
    const tries = rig.model.requests.filter(({ messages }) => isSummary(messages)).length;
    assert(tries <= 3, `${tries} requests`);
    assertEquals((await rig.send(session, "second")).status, "completed");
    const [first, second] = rig.model.requests.filter(({ slot }) => slot === 0);
    assertExtends(second, first);
    assertEquals(recordsOf(await rig.log(session), "epoch").length, 1);
  });
}

Deno.test("F21 a baseline that alone is over the threshold is no reason to summarise: plain reason, no loop, the session stays usable", async () => {
  await using rig = await rigOf(({ messages }) => isSummary(messages) ? says("a summary") : says("short"), {
    toml: "[compact]\nthreshold_tokens = 100\n",
  });
  const session = await rig.newSession();
  for (let turn = 1; turn <= 3; turn++) {
    assertEquals((await rig.send(session, `turn ${turn}`)).status, "completed");
  }
  const { text } = await reported(rig, "compaction-failed");
  assertStringIncludes(String(text), "threshold_tokens");
  assertEquals(rig.model.requests.filter(({ messages }) => isSummary(messages)).length, 0);
});

Deno.test("F21 a server that fails every summary leaves the conversation as it is", async () => {
  await using rig = await rigOf(({ messages }) =>
    isSummary(messages) ? { fault: { kind: "status", status: 400 } } : says(long)
  );
  const session = await rig.newSession();
  await rig.send(session, "first");
  await reported(rig, "compaction-failed");
  assertEquals((await rig.send(session, "second")).status, "completed");
  assertEquals(rig.model.requests.filter(({ messages }) => isSummary(messages)).length <= 6, true);
});

Deno.test("F16 B5 nobody waits for a summary that is made after a turn: the next live message answers while it is under way", async () => {
  const held = Promise.withResolvers<void>();
  await using rig = await rigOf(({ messages }) => {
    if (isSummary(messages)) return { content: "late", hold: held.promise };
    return messages.at(-1)?.content === "first" ? says(long) : says("at once");
  });
  const session = await rig.newSession();
  await rig.send(session, "first");
  await rig.model.waitFor(({ messages }) => isSummary(messages));
  assertEquals((await rig.send(await rig.newSession(), "hello")).content, "at once");
  held.resolve();
});
