// The practice model's phrases: which words call which tool, what follows a result, and that it never pretends.

import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { phrases } from "../../../tools/stubs/model_phrases.ts";
import type { Reply } from "../../../tools/stubs/model_script.ts";
import type { ChatMessage } from "../../../tools/stubs/model_template.ts";

const names = ["clock", "recall", "memory", "ask_memory", "find_tool", "call_tool"];
const tools = names.map((name) => ({ function: { name } }));
const script = phrases();

async function reply(messages: ChatMessage[], offered = tools): Promise<Reply> {
  return await script({ messages, tools: offered, slot: 0, index: 0, prompt: "" });
}

async function say(content: string): Promise<Reply> {
  return await reply([{ role: "user", content }]);
}

const subagent = (task: string) => ["call_tool", { name: "subagent", arguments: { task } }];
const consult = (question: string) => ["call_tool", { name: "consult", arguments: { question } }];
const memory = (action: string, target: string, text: string) => ["memory", { action, target, text }];

const calls: [said: string, call: unknown][] = [
  ["what time is it", ["clock", {}]],
  ["What time is it?", ["clock", {}]],
  ["time", ["clock", {}]],
  ["remember the milk", memory("add", "notes", "the milk")],
  ["Please remember that tea is at five", memory("add", "notes", "tea is at five")],
  ["forget the milk", memory("remove", "notes", "the milk")],
  ["I am a gardener", memory("add", "identity", "I am a gardener")],
  ["my name is Ada", memory("add", "identity", "my name is Ada")],
  ["recall milk", ["recall", { query: "milk" }]],
  ["what do you know about my garden?", ["recall", { query: "my garden" }]],
  ["ask memory: who am I", ["ask_memory", { question: "who am I" }]],
  ["find tools for help from outside", ["find_tool", { query: "help from outside" }]],
  ["find tools consult", ["find_tool", { query: "consult" }]],
  ["ask the cloud: what is 2+2?", consult("what is 2+2?")],
  ["consult what is 2+2", consult("what is 2+2")],
  ["second opinion: a\nb", consult("a\nb")],
  ["delegate: what time is it", subagent("what time is it")],
  ["subagent count to three", subagent("count to three")],
  ["have a subagent recall milk", subagent("recall milk")],
  ["delegate: delegate: ask the cloud: x", subagent("delegate: ask the cloud: x")],
  ["[Tue 2026-12-01 23:03, Europe/Berlin]\ndelegate: time", subagent("time")],
  ["[Tue 2026-12-01 23:03, Europe/Berlin]\ntime", ["clock", {}]],
];

Deno.test("each phrase calls its tool with the words that follow it", async () => {
  for (const [said, call] of calls) {
    const [first, ...others] = (await say(said)).toolCalls ?? [];
    assertEquals([first?.name, first?.arguments], call, said);
    assertEquals(others, []);
  }
});

const plain = ["hello", "", "remember", "the time is up", "do not delegate: x", "I was here"];

Deno.test("anything else is answered by a practice model that says so and offers help", async () => {
  for (const said of plain) {
    const { content = "", toolCalls } = await say(said);
    assertEquals(toolCalls, undefined, said);
    assertMatch(content, /practice model, not a real one.*“help”/s, said);
  }
});

Deno.test("help lists the phrases, think thinks, write writes that many words", async () => {
  assertStringIncludes((await say("help")).content ?? "", "- ask the cloud: QUESTION");
  const thought = await say("think about rain");
  assertStringIncludes(thought.thinking ?? "", "“rain”");
  assertStringIncludes(thought.content ?? "", "“rain”");
  assertEquals((await say("write 300 words")).content?.split(" ").length, 300);
  assertEquals((await say("write 999999999 words")).content?.split(" ").length, 50_000);
});

function after(call: { name: string; arguments: string }, content: string): ChatMessage[] {
  return [
    { role: "user", content: "time" },
    { role: "assistant", tool_calls: [{ id: "a", function: call }] },
    { role: "tool", tool_call_id: "a", content },
  ];
}

const consultCall = { name: "call_tool", arguments: '{"name":"consult","arguments":{"question":"x"}}' };

Deno.test("after a result comes one sentence that quotes it, denials and errors told apart", async () => {
  const table: [content: string, sentence: string][] = [
    ["four", "consult answered: “four”."],
    ["a\n\nb", "consult answered: “a b”."],
    ["denied: TaintTooHigh no", "consult was denied: “denied: TaintTooHigh no”."],
    ["error: consult-timeout", "consult did not work: “error: consult-timeout”."],
    ["subagent sub-a-1 failed: empty", "consult did not work: “subagent sub-a-1 failed: empty”."],
    ["what time is it", "consult answered: “what time is it”."],
    ["é".repeat(500), `consult answered: “${"é".repeat(400)}…”.`],
  ];
  for (const [content, sentence] of table) {
    assertEquals(await reply(after(consultCall, content)), { content: sentence });
  }
  assertEquals(await reply(after({ name: "clock", arguments: "{}" }, "noon")), {
    content: "clock answered: “noon”.",
  });
});

Deno.test("a tool that the request does not offer is not called", async () => {
  const { content, toolCalls } = await reply([{ role: "user", content: "time" }], tools.slice(1));
  assertEquals(toolCalls, undefined);
  assertStringIncludes(content ?? "", "offers no such tool");
});

Deno.test("summarise quotes what the owner said before", async () => {
  const { content = "" } = await reply([
    { role: "user", content: "first" },
    { role: "assistant", content: "…" },
    { role: "user", content: "Summarise the conversation." },
  ]);
  assertStringIncludes(content, "Summary by the practice model, of 2 messages");
  assertStringIncludes(content, "“first”");
});

Deno.test("a request that wants a call gets one, whatever was said; one that leaves it open gets words", async () => {
  const parameters = { type: "object", required: ["city"] };
  const messages = [{ role: "user", content: "What is the weather in Paris? Use the tool." }];
  const request = {
    messages,
    tools: [{ function: { name: "weather", parameters } }],
    slot: 0,
    index: 0,
    prompt: "",
  };
  const forced = await script({ ...request, mustCall: true });
  assertEquals(forced.toolCalls, [{ name: "weather", arguments: { city: "practice" } }]);
  assertEquals((await script({ ...request, mustCall: false })).toolCalls, undefined);
});
