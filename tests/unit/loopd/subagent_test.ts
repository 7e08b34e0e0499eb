// How a child ends, in every way there is: what its parent reads, what it never reads, and where the bounds of a tree stand.

import { assert, assertEquals, assertMatch, assertRejects, assertStringIncludes } from "@std/assert";
import { badArgumentsTriesMax, childrenPerTurnMax, serverErrorTriesMax } from "../../../core/limits.ts";
import { PeerRefused } from "../../../core/wire/client.ts";
import type { Reply, ScriptRequest } from "../../../tools/stubs/model_script.ts";
import { calls, callsTool, type LoopdRigOptions, says, startLoopdRig } from "../../support/loopd_rig.ts";
import { namesIn, recordsOf, resultsOf } from "../../support/transcript.ts";

type ChildScript = (request: ScriptRequest, results: number) => Reply;

const resultsIn = ({ messages }: Pick<ScriptRequest, "messages">) =>
  messages.filter(({ role }) => role === "tool").length;

/** The parent spawns one child and says done; the child does what `child` says. */
async function spawnOne(child: ChildScript, options: Partial<LoopdRigOptions> = {}) {
  const rig = await startLoopdRig({
    script: (request) => {
      if (request.slot === 2) return child(request, resultsIn(request));
      return resultsIn(request) === 0 ? callsTool("subagent", { task: "work" }) : says("parent done");
    },
    ...options,
  });
  const session = await rig.newSession();
  const outcome = await rig.send(session, "go");
  const childId = `sub-${session}-1`;
  const [result] = resultsOf(await rig.log(session));
  const childEnd = recordsOf(await rig.log(childId), "end").at(-1);
  const childRequests = rig.model.requests.filter(({ slot }) => slot === 2);
  return { rig, session, outcome, childId, result, childEnd, childRequests };
}

const fastLiveness = { toml: "liveness_ms = 800\n" };
const endings: [
  what: string,
  reason: string,
  child: ChildScript,
  options: Partial<LoopdRigOptions>,
  requests: number,
][] = [
  ["F5 whose server answers 400", "model-error", () => ({ fault: { kind: "status", status: 400 } }), {}, 1],
  [
    "F5 whose server answers 500 for ever",
    "model-error",
    () => ({ fault: { kind: "status", status: 500 } }),
    {},
    serverErrorTriesMax,
  ],
  [
    "F5 whose context is too small for its task",
    "overflow",
    () => ({
      fault: {
        kind: "status",
        status: 400,
        body: {
          error: {
            code: 400,
            message: "exceeds the available context size",
            type: "exceed_context_size_error",
          },
        },
      },
    }),
    {},
    1,
  ],
  ["F18 whose server says nothing", "silent", () => ({ fault: { kind: "silent" } }), fastLiveness, 1],
  [
    "F18 whose server stops in mid-answer",
    "silent",
    () => ({
      content: "half an answer",
      chunkBytes: 2,
      fault: { kind: "stall", afterChunks: 3 },
    }),
    fastLiveness,
    1,
  ],
  [
    "F18 whose stream ends without its mark",
    "cut",
    () => ({
      content: "a whole answer",
      fault: { kind: "cut", afterChunks: 99, clean: true },
    }),
    {},
    1,
  ],
  [
    "F18 whose server reports an error in mid-answer",
    "model-error",
    () => ({
      content: "half an answer",
      fault: { kind: "error-event", message: "lost the GPU", afterChunks: 1 },
    }),
    {},
    1,
  ],
  [
    "F5 whose answer reaches the token limit",
    "cut",
    () => ({ content: "and so on", finish: "length" }),
    {},
    1,
  ],
  [
    "F19 whose call is cut by the token limit",
    "cut",
    () => ({ ...calls("clock", {}), finish: "length" }),
    {},
    1,
  ],
  [
    "F19 whose calls are no JSON for ever",
    "bad-arguments",
    () => ({ toolCalls: [{ name: "clock", arguments: "{oops" }] }),
    {},
    badArgumentsTriesMax,
  ],
  ["F6 that ends with empty text", "empty", () => says(""), {}, 1],
  ["F6 that ends with white space alone", "empty", () => says(" \n\t "), {}, 1],
  ["F6 S6 that ends with thinking alone", "empty", () => ({ thinking: "plum thinking" }), {}, 1],
  ["S7 F5 F6 that asks for tools for ever", "iterations", () => calls("clock", {}), {
    toml: "[session]\ntool_iterations = 4\n",
  }, 4],
];

for (const [what, reason, child, options, requests] of endings) {
  Deno.test(`S7 a child ${what} is failed: ${reason}, its parent reads so once and goes on`, async () => {
    const { rig, outcome, childId, result, childEnd, childRequests } = await spawnOne(child, options);
    await using _ = rig;
    assertEquals(outcome.status, "completed");
    assertEquals(outcome.calls, [{ call: 1, tool: "subagent", status: "error", code: reason }]);
    assert(result.text.startsWith(`subagent ${childId} failed: ${reason}`), result.text);
    assert(!/completed/i.test(result.text), result.text);
    assert(!/half an|whole answer|and so on|plum/.test(result.text), "a failed child returns no text");
    assertEquals([childEnd?.status, childEnd?.reason], ["failed", reason]);
    assertEquals(childRequests.length, requests);
    const slots = rig.loopd.services.gate.view();
    assert(slots.every(({ state, queue }) => state !== "busy" && queue.length === 0), JSON.stringify(slots));
  });
}

Deno.test("F19 a call whose arguments are no JSON is asked for again, and a good one ends the matter: nothing bad is kept", async () => {
  let asked = 0;
  const { rig, childId, result, childRequests } = await spawnOne((_, results) => {
    if (results > 0) return says("it is noon");
    return ++asked < badArgumentsTriesMax
      ? { toolCalls: [{ name: "clock", arguments: "{oops" }] }
      : calls("clock", {});
  });
  await using _ = rig;
  assertStringIncludes(result.text, "it is noon");
  assertEquals(childRequests.length, badArgumentsTriesMax + 1);
  assert(!JSON.stringify(await rig.log(childId)).includes("oops"));
  assert(!JSON.stringify(childRequests.map(({ messages }) => messages)).includes("oops"));
});

Deno.test("F5 a server that answers 500 once is asked again, and the child completes", async () => {
  let asked = 0;
  const { rig, result, childRequests } = await spawnOne(() =>
    ++asked === 1 ? { fault: { kind: "status", status: 500 } } : says("here it is")
  );
  await using _ = rig;
  assertStringIncludes(result.text, "completed\nhere it is");
  assertEquals(childRequests.length, 2);
});

Deno.test("F5 a failed child's reason is told without the word completed, though its server says it", async () => {
  const { rig, result } = await spawnOne(() => ({
    fault: {
      kind: "status",
      status: 400,
      body: { error: { code: 400, message: "Completed nothing, completed" } },
    },
  }));
  await using _ = rig;
  assert(!/completed/i.test(result.text), result.text);
});

Deno.test("S6 a completed child returns its last text alone: no thinking, no earlier text, tags made harmless", async () => {
  const { rig, childId, result, outcome } = await spawnOne((_, results) =>
    results === 0
      ? { ...calls("clock", {}), content: "let me look", thinking: "plum thinking" }
      : { content: "it is <|im_end|> noon <b>now</b>", thinking: "more plum" }
  );
  await using _ = rig;
  assertEquals(result.text, `subagent ${childId} completed\nit is ‹|im_end|> noon ‹b>now‹/b>`);
  assertEquals([result.status, result.tool], ["ok", "subagent"]);
  assert(!JSON.stringify(await rig.log(outcome.session)).includes("plum"));
});

for (
  const [what, character] of [["three bytes", "語"], ["four bytes", "😀"], [
    "a base and a mark",
    "e\u0301",
  ]] as const
) {
  Deno.test(`F7 S6 400 KB of characters of ${what} are cut between two of them at summary_chars, marked, and whole in the child's log`, async () => {
    const bytes = new TextEncoder().encode(character).length;
    const text = character.repeat(Math.ceil(400_000 / bytes));
    const { rig, childId, result } = await spawnOne(() => ({ content: text, chunkBytes: 60_000 }), {
      toml: "max_tokens = 1000000\n[compact]\nsummary_chars = 1001\n",
      model: { nCtx: 4_000_000 },
    });
    await using _ = rig;
    const kept = character.repeat(Math.floor(1001 / character.length));
    assertEquals(
      result.text,
      `subagent ${childId} completed\n${kept}\n[cut: ${kept.length} of ${text.length} characters]`,
    );
    assertEquals(recordsOf(await rig.log(childId), "assistant")[0].content, text);
  });
}

Deno.test("S6 a summary of summary_chars is whole, one character more is cut", async () => {
  const toml = "[compact]\nsummary_chars = 100\n";
  for (
    const [length, wanted] of [[100, "x".repeat(100)], [
      101,
      "x".repeat(100) + "\n[cut: 100 of 101 characters]",
    ]] as const
  ) {
    const { rig, childId, result } = await spawnOne(() => says("x".repeat(length)), { toml });
    await using _ = rig;
    assertEquals(result.text, `subagent ${childId} completed\n${wanted}`);
  }
});

Deno.test("F12 a child whose own spawn is refused and then says done completes with what it said; the refusal stands in its log", async () => {
  const parent = "mm-" + "a".repeat(55);
  await using rig = await startLoopdRig({
    script: (request) => {
      if (resultsIn(request) === 0) return callsTool("subagent", { task: "work" });
      return says(request.slot === 2 ? "done, all of it" : "parent done");
    },
  });
  const outcome = await rig.send(parent, "go");
  const child = `sub-${parent}-1`;
  assertEquals(child.length, 64);
  assertEquals(resultsOf(await rig.log(child)).map(({ code }) => code), ["invalid-arguments"]);
  assertEquals(resultsOf(await rig.log(parent)).map(({ text }) => text), [
    `subagent ${child} completed\ndone, all of it`,
  ]);
  assertEquals(outcome.calls.map(({ status }) => status), ["ok"]);
});

Deno.test("F11 S14 a model that always spawns ends with a plain reason, within the bounds of depth, children and iterations", async () => {
  await using rig = await startLoopdRig({
    script: () => callsTool("subagent", { task: "work" }),
    toml: "[session]\ntool_iterations = 6\n",
  });
  const session = await rig.newSession();
  const outcome = await rig.send(session, "go");
  assertEquals(outcome.status, "failed");
  assertMatch(outcome.reason ?? "", /^iterations: /);
  const sessions = await namesIn(rig.paths.sessions);
  assert(sessions.length <= 1 + childrenPerTurnMax, `${sessions.length} sessions`);
  assert(Math.max(...sessions.map((name) => name.length)) <= 64);
  assertEquals(rig.model.collisions, 0);
  for (const id of sessions) {
    const log = await rig.log(id);
    assertEquals(recordsOf(log, "end").length, 1, id);
    const asked = recordsOf(log, "assistant").flatMap(({ calls }) => calls.map(({ call }) => call));
    assertEquals(resultsOf(log).map(({ call }) => call), asked, id);
  }
});

Deno.test("S14 one live turn spawns as many children as the bound, over its whole tree; the next is too-many-children, a later turn begins anew", async () => {
  // Two branches of sixteen calls each: the root's own count, and those of its children's children, come to the one bound.
  const many = (count: number): Reply => ({
    toolCalls: Array.from({ length: count }, () => ({
      name: "call_tool",
      arguments: { name: "subagent", arguments: { task: "leaf" } },
    })),
  });
  await using rig = await startLoopdRig({
    script: (request) => {
      const asked = String(request.messages.find(({ role }) => role === "user")?.content);
      const last = request.messages.at(-1);
      if (last?.role === "tool") return says("done");
      if (asked.endsWith("branch")) return many(20);
      if (request.slot === 2) return says("leaf done");
      if (last?.content === "again") return many(1);
      return {
        toolCalls: ["branch", "leaf", "leaf"].map((task) => ({
          name: "call_tool",
          arguments: { name: "subagent", arguments: { task } },
        })).concat(many(11).toolCalls as []),
      };
    },
  });
  const session = await rig.newSession();
  const outcome = await rig.send(session, "go");
  const branch = resultsOf(await rig.log(`sub-${session}-1`));
  assertEquals(branch.map(({ status }) => status), Array(20).fill("ok"));
  // 1 branch + 20 leaves + 11 of the root's thirteen others.
  assertEquals(outcome.calls.map(({ code }) => code ?? "ok"), [
    ...Array(12).fill("ok"),
    "too-many-children",
    "too-many-children",
  ]);
  assertEquals((await namesIn(rig.paths.sessions)).length, 1 + childrenPerTurnMax);
  const refused = resultsOf(await rig.log(session))[12];
  assert(refused.text.startsWith("error: too-many-children: "), refused.text);
  assertStringIncludes(refused.text, "docs/runbook.md#too-many-children");
  assertEquals((await rig.send(session, "again")).calls.map(({ status }) => status), ["ok"]);
});

Deno.test("S14 a child gets the rounds of tools that its parent has left after the call: with one it completes, with none it fails", async () => {
  for (const [iterations, ended] of [[3, "completed"], [2, "failed: iterations"]] as const) {
    await using rig = await startLoopdRig({
      toml: `[session]\ntool_iterations = ${iterations}\n`,
      script: (request) => {
        const results = resultsIn(request);
        if (request.slot === 2) return results === 0 ? calls("clock", {}) : says("child done");
        return [calls("clock", {}), callsTool("subagent", { task: "work" })][results] ?? says("parent done");
      },
    });
    const session = await rig.newSession();
    const outcome = await rig.send(session, "go");
    assertEquals(outcome.status, "completed");
    const [, result] = resultsOf(await rig.log(session));
    assert(result.text.startsWith(`subagent sub-${session}-2 ${ended}`), result.text);
  }
});

Deno.test("S14 B3 a turn runs as many rounds of tools as tool_iterations, and fails at the one after them with every call answered", async () => {
  for (const [rounds, status] of [[3, "completed"], [4, "failed"]] as const) {
    await using rig = await startLoopdRig({
      toml: "[session]\ntool_iterations = 3\n",
      script: (request) => resultsIn(request) < rounds ? calls("clock", {}) : says("done"),
    });
    const session = await rig.newSession();
    const outcome = await rig.send(session, "go");
    assertEquals(outcome.status, status);
    assertEquals(outcome.calls.length, rounds);
    if (status === "completed") continue;
    assertEquals(outcome.calls.at(-1), { call: 4, tool: "clock", status: "error", code: "iterations" });
    assertEquals((await rig.send(session, "go on")).session, session, "the session stays usable");
  }
});

Deno.test("S12 what a child heard rises into its parent when its result is appended, not before", async () => {
  const seen: unknown[] = [];
  const { rig, session, outcome } = await spawnOne(
    (_, results) => results === 0 ? callsTool("consult", { question: "2+2?" }) : says("four"),
    {
      broker: { answer: () => ({ status: "ok", text: "four", label: { class: "secret", untrusted: true } }) },
    },
  );
  await using _ = rig;
  assertEquals(outcome.label, { class: "secret", untrusted: true });
  const log = await rig.log(session);
  seen.push(...resultsOf(log).map(({ label }) => label));
  assertEquals(seen, [{ class: "secret", untrusted: true }]);
  assertEquals(recordsOf(await rig.log(`sub-${session}-1`), "open")[0].label, {
    class: "private",
    untrusted: false,
  });
});

Deno.test("S12 a failed child's label rises into its parent too", async () => {
  const { rig, outcome, result } = await spawnOne(
    (_, results) => results === 0 ? callsTool("consult", { question: "2+2?" }) : says(""),
    {
      broker: {
        answer: () => ({ status: "ok", text: "four", label: { class: "private", untrusted: true } }),
      },
    },
  );
  await using _ = rig;
  assertMatch(result.text, /failed: empty/);
  assertEquals([result.label, outcome.label], Array(2).fill({ class: "private", untrusted: true }));
});

Deno.test("S12 a child that heard nothing leaves its parent's label as it is", async () => {
  const { rig, outcome } = await spawnOne(() => says("nothing new"));
  await using _ = rig;
  assertEquals(outcome.label, { class: "private", untrusted: false });
});

Deno.test("F10 S8 a brokered tool that is denied is denied to parent, child and grandchild, each under its own id; the spawns never reach brokerd", async () => {
  await using rig = await startLoopdRig({
    script: (request) => {
      const results = resultsIn(request);
      const deepest = String(request.messages.find(({ role }) => role === "user")?.content).endsWith(
        "deepest",
      );
      if (results === 0) return callsTool("consult", { question: "2+2?" });
      if (results === 1 && !deepest) {
        return callsTool("subagent", { task: request.slot === 0 ? "middle" : "deepest" });
      }
      return says("done");
    },
  });
  const session = await rig.newSession();
  await rig.send(session, "go");
  const family = [session, `sub-${session}-2`, `sub-sub-${session}-2-2`];
  assertEquals(
    rig.broker.calls.map(({ session, tool }) => [String(session), tool]),
    family.map((id) => [id, "consult"]),
  );
  assertEquals(
    rig.broker.labels.map(({ session }) => String(session)),
    family,
    "each ancestor is known before its child calls",
  );
  for (const id of family) {
    const [denied] = resultsOf(await rig.log(id));
    assertEquals([denied.status, denied.code], ["denied", "NoGrant"]);
    assert(denied.text.startsWith("denied: NoGrant"), denied.text);
  }
});

Deno.test("S17 B4 a turn to a held child, and one to its waiting parent, are refused busy; afterwards both take one", async () => {
  const hold = Promise.withResolvers<void>();
  await using rig = await startLoopdRig({
    script: (request) => {
      if (request.slot === 2) return { content: "child done", hold: hold.promise };
      return resultsIn(request) === 0 ? callsTool("subagent", { task: "work" }) : says("parent done");
    },
  });
  const session = await rig.newSession();
  const child = `sub-${session}-1`;
  const turn = rig.send(session, "go");
  await rig.model.waitFor(({ slot }) => slot === 2);
  for (const id of [child, session]) {
    const refused = await assertRejects(() => rig.send(id, "hello"), PeerRefused, id);
    assertEquals([refused.httpStatus, refused.code], [409, "busy"]);
  }
  hold.resolve();
  assertEquals((await turn).status, "completed");
  for (const id of [child, session]) assertEquals((await rig.send(id, "hello")).status, "completed");
  const onBackground = rig.model.requests.filter(({ slot }) => slot === 2);
  assertEquals(onBackground.length, 2, "a child that is spoken to stays on its slot");
});

Deno.test("S17 an id of a child, a job or the heartbeat that is not there is not made by a message; a chat's is", async () => {
  await using rig = await startLoopdRig({ script: () => says("ok") });
  for (const id of ["sub-chat-a-1", "job-a", "heartbeat", "other"]) {
    const refused = await assertRejects(() => rig.send(id, "hello"), PeerRefused);
    assertEquals([refused.httpStatus, refused.code], [404, "unknown-session"], id);
  }
  assertEquals((await rig.send("chat-mine", "hello")).status, "completed");
  assertEquals(await namesIn(rig.paths.sessions), ["chat-mine"]);
});

Deno.test("S9 while a parent waits for its child its slot is idle, and another live session uses it", async () => {
  const hold = Promise.withResolvers<void>();
  await using rig = await startLoopdRig({
    script: (request) => {
      if (request.slot === 2) return { content: "child done", hold: hold.promise };
      if (request.messages.at(-1)?.content === "quick") return says("at once");
      return resultsIn(request) === 0 ? callsTool("subagent", { task: "work" }) : says("parent done");
    },
  });
  const session = await rig.newSession();
  const turn = rig.send(session, "go");
  await rig.model.waitFor(({ slot }) => slot === 2);
  assertEquals((await rig.send(await rig.newSession(), "quick")).content, "at once");
  hold.resolve();
  assertEquals((await turn).content, "parent done");
  assertEquals(rig.model.collisions, 0);
});

Deno.test("F33 a parent's usage is its own: its child's tokens stand in the child's log and are not counted twice", async () => {
  const { rig, outcome, session, childId } = await spawnOne(() => says("child done"));
  await using _ = rig;
  const total = async (id: string) =>
    recordsOf(await rig.log(id), "assistant").reduce(
      (sum, { timings }) => ({
        promptTokens: sum.promptTokens + timings.cacheN + timings.promptN,
        cachedTokens: sum.cachedTokens + timings.cacheN,
        completionTokens: sum.completionTokens + timings.predictedN,
      }),
      { promptTokens: 0, cachedTokens: 0, completionTokens: 0 },
    );
  assertEquals(outcome.usage, await total(session));
  assert((await total(childId)).promptTokens > 0);
});
