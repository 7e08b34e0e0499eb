// The practice model's prompt cache: the law of the prefix, what breaks it, and what one slot does to another.

import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { type ModelStub, type ModelStubOptions, startModelStub } from "../../../tools/stubs/model.ts";
import { type Reply, scripted } from "../../../tools/stubs/model_script.ts";
import { type Answer, ask, type Message, tool, user } from "./support.ts";

const tools = [tool("clock")];

/** Talks until the script is used up; the answers in order. Each call is answered with `a result`. */
async function converse(
  stub: ModelStub,
  replies: Reply[],
  body: Record<string, unknown> = {},
): Promise<Answer[]> {
  stub.setScript(scripted(replies));
  const messages: Message[] = [{ role: "system", content: "You are a stub." }, user("Begin. ünïcödé 🎈")];
  const answers: Answer[] = [];
  while (answers.length < replies.length) {
    const answer = await ask(stub, { messages, tools, id_slot: 0, ...body });
    assertEquals(answer.status, 200, JSON.stringify(answer.error));
    answers.push(answer);
    messages.push(answer.message);
    for (const call of answer.message.tool_calls ?? []) {
      messages.push({ role: "tool", tool_call_id: call.id, content: "a result" });
    }
    if (answer.message.tool_calls === undefined) messages.push(user(`And then? ${answers.length}`));
  }
  return answers;
}

/** How many tokens each follow-up lost beyond the law. */
function losses(answers: Answer[]): number[] {
  return answers.slice(1).map(({ timings }, at) => {
    const before = answers[at].timings;
    return before.cache_n + before.prompt_n + before.predicted_n - 1 - timings.cache_n;
  });
}

const conversation: Reply[] = [
  { content: "Plain text." },
  { toolCalls: [{ name: "clock", arguments: {} }] },
  { content: "It is late — 23:03 ⏰." },
  { thinking: "hm", content: "With thinking." },
  { thinking: "two at once", toolCalls: [{ name: "clock", arguments: { a: [1, 2.5, "é\n"] } }] },
  {
    content: "before the calls",
    toolCalls: [{ name: "clock", arguments: {} }, { name: "clock", arguments: { nested: { x: null } } }],
  },
  { content: "" },
  { content: "cut off in the mid", finish: "length" },
  { content: "Last." },
];

Deno.test("each follow-up finds cache_n + prompt_n + predicted_n - 1 of the request before", async () => {
  await using stub = await startModelStub();
  const answers = await converse(stub, conversation);
  assertEquals(losses(answers), conversation.slice(1).map(() => 0));
  assertEquals(answers[0].timings.cache_n, 0);
});

Deno.test("the law holds for any text the model may write", async () => {
  await using stub = await startModelStub();
  const text = fc.string({ unit: "grapheme", maxLength: 60 }).filter((each) => !each.includes("<|im_"));
  const reply = fc.oneof(
    text.map((content): Reply => ({ content })),
    fc.tuple(text, fc.jsonValue()).map(([thinking, value]): Reply => ({
      thinking,
      toolCalls: [{ name: "clock", arguments: JSON.parse(JSON.stringify({ value })) }],
    })),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(reply, { minLength: 2, maxLength: 5 }), async (replies) => {
      assertEquals(losses(await converse(stub, replies)), replies.slice(1).map(() => 0));
    }),
    { numRuns: 40 },
  );
});

Deno.test("arguments written with other white space lose tokens, canonical ones lose none", async () => {
  await using stub = await startModelStub();
  const say = (
    args: string,
  ): Reply[] => [{ toolCalls: [{ name: "clock", arguments: args }] }, { content: "." }];
  const [odd] = losses(await converse(stub, say('{ "a" :1.0}')));
  assert(odd > 0, `lost ${odd}`);
  assertEquals(losses(await converse(stub, say('{"a": 1}'))), [0]);
});

Deno.test("a template that strips thinking loses the turn, one that keeps it loses none", async () => {
  const replies: Reply[] = [{ thinking: "a long thought", content: "Yes." }, { content: "." }];
  for (const [thinkTemplate, lossMin] of [["strip", 10], ["keep", 0]] as const) {
    await using stub = await startModelStub({ thinkTemplate });
    const [lost] = losses(await converse(stub, replies));
    assertEquals(lost > 0, lossMin > 0);
    assert(lost >= lossMin);
  }
});

Deno.test("raw text sent back as content, with tool_choice none, loses nothing", async () => {
  await using stub = await startModelStub({ strictPairing: false });
  const replies: Reply[] = [
    { thinking: "t", toolCalls: [{ name: "clock", arguments: '{ "odd" : 1e3 }' }] },
    { content: "done" },
  ];
  const answers = await converse(stub, replies, { tool_choice: "none", reasoning_format: "none" });
  assertEquals(
    answers[0].message.content,
    '<think>\nt\n</think>\n\n<tool_call>\n{"name": "clock", "arguments": { "odd" : 1e3 }}\n</tool_call>',
  );
  assertEquals(answers[0].finish, "stop");
  assertEquals(losses(answers), [0]);
});

Deno.test("a repeat keeps all but one token, an edit keeps up to the edit, cache_prompt false keeps none", async () => {
  await using stub = await startModelStub({ script: () => ({ content: "ok" }) });
  const messages = [{ role: "system", content: "abcdef" }, user("question")];
  const first = await ask(stub, { messages, id_slot: 1 });
  const total = first.timings.prompt_n;
  assertEquals((await ask(stub, { messages, id_slot: 1 })).timings.cache_n, total - 1);
  const edited = [{ role: "system", content: "abcXef" }, user("question")];
  const beforeEdit = "system\nabc".length + 1;
  assertEquals((await ask(stub, { messages: edited, id_slot: 1 })).timings.cache_n, beforeEdit);
  const uncached = await ask(stub, { messages: edited, id_slot: 1, cache_prompt: false });
  assertEquals([uncached.timings.cache_n, uncached.timings.prompt_n], [0, total]);
});

/** The cache_n of a follow-up on slot 0 when a request ran in between. */
async function followUp(options: ModelStubOptions, between: { id_slot: number }): Promise<[number, number]> {
  await using stub = await startModelStub({ ...options, script: () => ({ content: "ok" }) });
  const messages: Message[] = [user("a question of the owner")];
  const { message, timings } = await ask(stub, { messages, id_slot: 0 });
  await ask(stub, { messages: [{ role: "system", content: "another" }, user("child")], ...between });
  const next = await ask(stub, { messages: [...messages, message, user("more")], id_slot: 0 });
  return [next.timings.cache_n, timings.cache_n + timings.prompt_n + timings.predicted_n - 1];
}

Deno.test("a request on another slot costs nothing; with a unified cache it costs all", async () => {
  const [apart, law] = await followUp({}, { id_slot: 2 });
  assertEquals(apart, law);
  const [unified] = await followUp({ unifiedCache: true }, { id_slot: 2 });
  assertEquals(unified, 0);
});

Deno.test("an intruder on the same slot leaves only the common beginning", async () => {
  const [kept] = await followUp({}, { id_slot: 0 });
  assertEquals(kept, 1);
});

Deno.test("usage and timings agree, and __verbose names the slot", async () => {
  await using stub = await startModelStub({ script: () => ({ content: "four" }) });
  const { json, timings } = await ask(stub, { messages: [user("x")], id_slot: 2, verbose: true });
  assertEquals(json.usage, {
    completion_tokens: 5,
    prompt_tokens: timings.prompt_n,
    total_tokens: timings.prompt_n + 5,
    prompt_tokens_details: { cached_tokens: 0 },
  });
  const verbose = json.__verbose as Record<string, unknown>;
  assertEquals([verbose.id_slot, verbose.content, verbose.prompt], [2, "four", stub.requests[0].prompt]);
  assertEquals(stub.slots[2].text, stub.requests[0].prompt + "four");
});
