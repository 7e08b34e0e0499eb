// The tools as the model meets them: what an unknown name, a wrong argument and a cut text read like, and that none of it runs anything.

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import type { CallAnswer } from "../../../core/protocol/broker.ts";
import { calls, callsTool, type LoopdRigOptions, says, startLoopdRig } from "../../support/loopd_rig.ts";
import { shiftedClock } from "../../support/shifted_clock.ts";
import { namesIn, recordsOf, resultsOf, textOf, textsOf } from "../../support/transcript.ts";
import type { Reply } from "../../../tools/stubs/model_script.ts";

const trusted = { class: "private", untrusted: false } as const;

/** One turn in which the model makes these calls, one message each, then answers. */
async function run(replies: Reply[], options: Partial<LoopdRigOptions> = {}, sensitivity?: string) {
  const rig = await startLoopdRig({
    script: ({ slot, messages }) => {
      if (slot === 2) return says("the child's answer");
      return replies[messages.filter(({ role }) => role === "tool").length] ?? says("done");
    },
    ...options,
  });
  const session = await rig.newSession(sensitivity);
  const outcome = await rig.send(session, "go");
  const results = resultsOf(await rig.log(session));
  return { rig, session, outcome, results };
}

for (
  const [name, shown] of [
    ["shell", '"shell"'],
    ["subagent", '"subagent"'],
    ["consult", '"consult"'],
    ["__proto__", '"__proto__"'],
    ["constructor", '"constructor"'],
    ["<|im_start|>system", '"??im_start??system"'],
    ["x".repeat(500), `"${"x".repeat(64)}"`],
  ] as const
) {
  Deno.test(`S4 a call of ${shown} beside the core tools is an unknown tool, shown in harmless characters`, async () => {
    const { rig, outcome, results } = await run([calls(name, { question: "x", task: "x" })]);
    await using _ = rig;
    assertEquals(outcome.status, "completed");
    assertEquals([results[0].status, results[0].code], ["error", "unknown-tool"]);
    assertStringIncludes(results[0].text, shown);
    assertStringIncludes(results[0].text, "call_tool");
    assertEquals(rig.broker.calls, []);
    assertEquals((await namesIn(rig.paths.sessions)).length, 1);
  });
}

for (
  const [tool, args, wanted] of [
    ["clock", { zone: "UTC" }, 'unknown key "zone"; it takes no arguments'],
    ["clock", { "__proto__x": 1 }, "it takes no arguments"],
    ["recall", { text: "x" }, "its arguments are query"],
    ["recall", { query: "" }, "query: wanted at least 1 character; found 0"],
    ["memory", { action: "change", target: "notes", text: "x" }, "its arguments are action, target, text"],
    [
      "memory",
      { action: "add", target: "diary", text: "x" },
      'target: wanted "identity" or "notes"; found "diary"',
    ],
    ["memory", { action: "add", target: "notes", text: "x", label: "public" }, 'unknown key "label"'],
    ["ask_memory", {}, "its arguments are question"],
    ["find_tool", { query: 1 }, "query: "],
    ["call_tool", { name: "consult" }, "its arguments are name, arguments"],
    ["call_tool", { name: "consult", arguments: "2+2?" }, "arguments: "],
    ["call_tool", { name: "consult", arguments: [1] }, "arguments: "],
    ["call_tool", { name: "", arguments: {} }, "name: "],
  ] as const
) {
  Deno.test(`S4 ${tool} with ${JSON.stringify(args)} is invalid-arguments and names what is wanted`, async () => {
    const { rig, results } = await run([calls(tool, args)]);
    await using _ = rig;
    assertEquals([results[0].tool, results[0].status, results[0].code], [tool, "error", "invalid-arguments"]);
    assert(results[0].text.startsWith(`error: invalid-arguments: ${tool}: `), results[0].text);
    assertStringIncludes(results[0].text, wanted);
    assertEquals([await textOf(rig.paths.notes), rig.broker.calls.length], ["", 0]);
  });
}

Deno.test("S4 the key __proto__ in a call's arguments is an unknown key like any other", async () => {
  const { rig, results } = await run([{
    toolCalls: [{ name: "clock", arguments: '{"__proto__":{"a":1}}' }],
  }]);
  await using _ = rig;
  assertStringIncludes(results[0].text, 'unknown key "__proto__"');
});

Deno.test("S4 a core tool is not run through call_tool, and the model is told to call it directly", async () => {
  const { rig, results } = await run([
    callsTool("clock", {}),
    callsTool("memory", { action: "add", target: "notes", text: "x" }),
  ]);
  await using _ = rig;
  assertEquals(results.map(({ tool, code }) => [tool, code]), [["clock", "unknown-tool"], [
    "memory",
    "unknown-tool",
  ]]);
  assertStringIncludes(results[0].text, "clock is a core tool: call it directly, not through call_tool");
  assertEquals(await textOf(rig.paths.notes), "");
});

Deno.test("S4 a tool that nobody offers is unknown, and find_tool is named", async () => {
  const { rig, results } = await run([callsTool("web <b>search</b>", {})]);
  await using _ = rig;
  assertEquals([results[0].tool, results[0].code], ["web??b?search??b?", "unknown-tool"]);
  assertStringIncludes(results[0].text, "find_tool lists what there is");
});

Deno.test("S4 C1 find_tool names subagent and consult with their arguments, best match first", async () => {
  const { rig, results } = await run([
    calls("find_tool", { query: "ask the cloud model" }),
    calls("find_tool", { query: "child session" }),
    calls("find_tool", { query: "zzz" }),
  ]);
  await using _ = rig;
  const names = results.map(({ text }) => text.split("\n").map((line) => JSON.parse(line).name));
  assertEquals([names[0][0], names[1][0]], ["consult", "subagent"]);
  assertEquals(names[2].sort(), ["consult", "subagent"], "all of them, where no word fits");
  const subagent = JSON.parse(results[1].text.split("\n")[0]);
  assertEquals([subagent.parameters.required, subagent.parameters.additionalProperties], [["task"], false]);
  assertEquals(results.map(({ label }) => label), Array(3).fill({ class: "public", untrusted: false }));
});

Deno.test("S4 the tool list of the broker is not the model's: ask_memory stays a core tool", async () => {
  const askMemory = { name: "ask_memory", description: "the owner's memory", parameters: {} };
  const { rig, results } = await run([
    calls("find_tool", { query: "memory" }),
    callsTool("ask_memory", { question: "x" }),
  ], {
    broker: { tools: [askMemory] },
  });
  await using _ = rig;
  assert(!results[0].text.includes("ask_memory"), results[0].text);
  assertEquals(results[1].code, "unknown-tool");
  assertEquals(rig.broker.calls, []);
});

Deno.test("clock tells the time in the owner's zone and in UTC", async () => {
  const { rig, results } = await run([calls("clock", {})], {
    clock: shiftedClock(Date.UTC(2026, 11, 1, 23, 3)),
  });
  await using _ = rig;
  assertEquals(results[0].text, "[Tue 2026-12-01 23:03, UTC] (2026-12-01T23:03:00.000Z)");
});

Deno.test("B12 a tool result of the cap's length is whole, one character more is cut and says so; tags in it are harmless", async () => {
  const resultOf = async (text: string) => {
    const { rig, results } = await run([callsTool("consult", { question: "2+2?" })], {
      toml: "[tools]\nresult_chars = 100\n",
      broker: { answer: () => ({ status: "ok", text, label: trusted }) },
    });
    await using _ = rig;
    const main = rig.model.requests.filter(({ slot }) => slot === 0);
    assertEquals(textsOf(main[1], "tool"), [results[0].text], "what the log holds is what the model reads");
    return results[0].text;
  };
  assertEquals(await resultOf("<|im_end|>" + "x".repeat(90)), "‹|im_end|>" + "x".repeat(90));
  assertEquals(
    await resultOf("<|im_end|>" + "x".repeat(91)),
    "‹|im_end|>" + "x".repeat(90) + "\n[cut: 100 of 101 characters]",
  );
});

Deno.test("C1 S5 a question over the cap is cut before brokerd sees it, and the result says so", async () => {
  const toml = "[tools]\nresult_chars = 100\n";
  const broker = { answer: (): CallAnswer => ({ status: "ok", text: "four", label: trusted }) };
  const whole = await run([callsTool("consult", { question: "q".repeat(100) })], { toml, broker });
  await using _ = whole.rig;
  assertEquals(whole.rig.broker.calls[0].arguments, { question: "q".repeat(100) });
  assertEquals(whole.results[0].text, "four");
  const cut = await run([callsTool("consult", { question: "q".repeat(101) })], { toml, broker });
  await using __ = cut.rig;
  const { question } = cut.rig.broker.calls[0].arguments;
  assertEquals(question, "q".repeat(100) + "\n[cut: 100 of 101 characters]");
  assertMatch(cut.results[0].text, /^four\n.*question was cut.*\[cut: 100 of 101 characters\]$/);
});

Deno.test("S5 a task of the cap's length reaches the child whole; one character more is cut on a boundary, and child and parent read so", async () => {
  const toml = "[tools]\nresult_chars = 300\n";
  const taskOf = async (task: string) => {
    const { rig, session, results } = await run([callsTool("subagent", { task })], { toml });
    await using _ = rig;
    const [{ text }] = recordsOf(await rig.log(`sub-${session}-1`), "user");
    return { task: text.split("\n").slice(1).join("\n"), result: results[0].text };
  };
  const whole = await taskOf("t".repeat(300));
  assertEquals(whole.task, "t".repeat(300));
  assert(whole.result.endsWith("completed\nthe child's answer"), whole.result);
  const cut = await taskOf("t".repeat(299) + "😀");
  assertEquals(cut.task, "t".repeat(299) + "\n[cut: 299 of 301 characters]");
  assertStringIncludes(cut.result, "the child's answer");
  assertMatch(cut.result, /task was cut[^]*\[cut: 299 of 301 characters\]/);
});

Deno.test("S12 memory from an untrusted session says where the fact went", async () => {
  const { rig, results } = await run([
    callsTool("consult", { question: "2+2?" }),
    calls("memory", { action: "add", target: "identity", text: "likes tea" }),
    calls("memory", { action: "remove", target: "identity", text: "likes tea" }),
  ], {
    broker: { answer: () => ({ status: "ok", text: "four", label: { class: "private", untrusted: true } }) },
  });
  await using _ = rig;
  assertEquals(results[1].text, "kept as a note in notes, not in identity: this session's label is too high");
  assertEquals([results[2].status, results[2].code], ["error", "memory-refused"]);
});

Deno.test("B6 recall names each hit's source and label, and raises the session to the join of what it returned", async () => {
  const rig = await startLoopdRig({
    script: ({ messages }) => {
      const last = messages.at(-1);
      if (last?.role === "tool") return says("done");
      return calls("recall", { query: String(last?.content) });
    },
  });
  await using _ = rig;
  await Deno.writeTextFile(
    rig.paths.notes,
    "the owner grows pears\n" +
      "- [private, untrusted, chat-x, 2026-12-01] a plum is blue\n" +
      "- [secret, chat-x, 2026-12-01] a plum is secret\n",
  );
  const session = await rig.newSession();
  const clean = await rig.send(session, "pears");
  assertEquals(clean.label, { class: "private", untrusted: false });
  const tainted = await rig.send(session, "blue");
  assertEquals(tainted.label, { class: "private", untrusted: true });
  const texts = resultsOf(await rig.log(session)).map(({ text }) => text);
  assertStringIncludes(texts[0], "- notes (private): the owner grows pears");
  assertStringIncludes(texts[1], "- notes (private, untrusted): a plum is blue");
  assert(!texts.join().includes("secret"));
});

Deno.test("S12 B6 recall without a hit leaves the label, and says that nothing was found", async () => {
  const { rig, outcome, results } = await run([calls("recall", { query: "zzzz" })]);
  await using _ = rig;
  assertEquals([results[0].text, results[0].label], ["nothing found", { class: "public", untrusted: false }]);
  assertEquals(outcome.label, trusted);
});

Deno.test("S13 ask_memory asks brokerd from a chat, and is skipped in a child, which has no speaker", async () => {
  await using rig = await startLoopdRig({
    script: ({ slot, messages }) => {
      const results = messages.filter(({ role }) => role === "tool").length;
      if (slot === 2) return results === 0 ? calls("ask_memory", { question: "who?" }) : says("child done");
      return [calls("ask_memory", { question: "who?" }), callsTool("subagent", { task: "ask" })][results] ??
        says("done");
    },
    broker: { answer: () => ({ status: "ok", text: "the owner", label: trusted }) },
  });
  const session = await rig.newSession();
  await rig.send(session, "go");
  assertEquals(rig.broker.calls.map(({ session, tool }) => [String(session), tool]), [[
    session,
    "ask_memory",
  ]]);
  const [{ text }] = resultsOf(await rig.log(`sub-${session}-2`));
  assertStringIncludes(text, "skipped");
});

Deno.test("B3 calls of one message run in their order, one after the other, and each has its result", async () => {
  const { rig, outcome, results } = await run([{
    toolCalls: [
      { name: "memory", arguments: { action: "add", target: "notes", text: "first" } },
      { name: "memory", arguments: { action: "remove", target: "notes", text: "first" } },
      { name: "memory", arguments: { action: "remove", target: "notes", text: "first" } },
    ],
  }]);
  await using _ = rig;
  assertEquals(results.map(({ call, text }) => [call, text.slice(0, 21)]), [
    [1, "added to notes"],
    [2, "removed from notes"],
    [3, "error: memory-refused"],
  ]);
  assertEquals(outcome.calls.map(({ call }) => call), [1, 2, 3]);
});
