// What the practice model accepts as a history, and what it refuses: pairs of calls and results, broken
// arguments, too long a prompt, wrong types; and that its template can be asked without a run.

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { startModelStub } from "../../../tools/stubs/model.ts";
import { ask, type Message, post, tool, user } from "./support.ts";

const script = () => ({ content: "ok" });
const tools = [tool("clock")];

function called(...ids: string[]): Message {
  return {
    role: "assistant",
    content: null,
    tool_calls: ids.map((id) => ({ id, type: "function", function: { name: "clock", arguments: "{}" } })),
  };
}

function result(id: string): Message {
  return { role: "tool", tool_call_id: id, content: "r" };
}

const histories: [name: string, accepted: boolean, messages: Message[]][] = [
  ["a call and its result", true, [user("x"), called("a"), result("a")]],
  ["two calls answered in the other order", true, [user("x"), called("a", "b"), result("b"), result("a")]],
  ["an id used again later", true, [user("x"), called("a"), result("a"), called("a"), result("a")]],
  ["a result without a call", false, [user("x"), result("a")]],
  ["a result for another id", false, [user("x"), called("a"), result("b")]],
  ["a result twice", false, [user("x"), called("a"), result("a"), result("a")]],
  ["a call without a result", false, [user("x"), called("a", "b"), result("a")]],
  ["a user message before the result", false, [user("x"), called("a"), user("y"), result("a")]],
  ["one id for two calls", false, [user("x"), called("a", "a"), result("a")]],
];

Deno.test("a strict server accepts calls and results in pairs, and refuses what lacks its other half", async () => {
  await using strict = await startModelStub({ script });
  await using lenient = await startModelStub({ script, strictPairing: false });
  for (const [name, accepted, messages] of histories) {
    const answer = await ask(strict, { messages, tools });
    assertEquals(answer.status, accepted ? 200 : 400, name);
    if (!accepted) assertEquals(answer.error?.type, "invalid_request_error", name);
    assertEquals((await ask(lenient, { messages, tools })).status, 200, name);
  }
  assertEquals(
    strict.requests.map(({ state }) => state === "refused"),
    histories.map(([, accepted]) => !accepted),
  );
});

Deno.test("broken arguments in the history are error 500, whole ones are accepted", async () => {
  await using stub = await startModelStub({ script });
  for (const [args, status] of [['{ "pat', 500], ["", 500], ['{ "path": 1 }', 200]] as const) {
    const call: Message = {
      role: "assistant",
      tool_calls: [{ id: "a", function: { name: "clock", arguments: args } }],
    };
    const answer = await ask(stub, { messages: [user("x"), call, result("a")], tools });
    assertEquals(answer.status, status, args);
    if (status === 500) {
      assertStringIncludes(answer.error?.message ?? "", "Failed to parse tool call arguments as JSON");
    }
  }
});

Deno.test("a prompt as long as the context is refused with both numbers, one token less is accepted", async () => {
  await using stub = await startModelStub({ script, nCtx: 200 });
  const frame = (await ask(stub, { messages: [user("")], id_slot: 0 })).timings.prompt_n;
  const fitting = await ask(stub, { messages: [user("x".repeat(199 - frame))], id_slot: 0 });
  assertEquals([fitting.status, fitting.finish, fitting.timings.predicted_n], [200, "length", 1]);
  const before = stub.slots[0].tokens;
  const over = await ask(stub, { messages: [user("x".repeat(200 - frame))], id_slot: 0 });
  assertEquals(over.error, {
    code: 400,
    message: "request (200 tokens) exceeds the available context size (200 tokens), try increasing it",
    type: "exceed_context_size_error",
    n_prompt_tokens: 200,
    n_ctx: 200,
  });
  assertEquals(stub.slots[0].tokens, before);
});

const bodies: [name: string, status: number, body: unknown][] = [
  ["no JSON", 500, "{ not json"],
  ["an empty body", 500, ""],
  ["no messages", 400, {}],
  ["messages of a wrong type", 400, { messages: "x" }],
  ["empty messages", 200, { messages: [] }],
  ["an unknown role", 200, { messages: [{ role: "narrator", content: "x" }] }],
  ["an unknown field", 200, { messages: [user("x")], surprise: 1 }],
  ["another model's name", 200, { messages: [user("x")], model: "other" }],
  ["max_tokens of a wrong type", 400, { messages: [user("x")], max_tokens: "9" }],
  ["a bogus tool_choice", 400, { messages: [user("x")], tool_choice: "bogus" }],
  ["a named tool_choice", 200, { messages: [user("x")], tool_choice: { type: "function" } }],
  ["more choices than slots", 400, { messages: [user("x")], n: 5 }],
  ["a tool without a function", 500, { messages: [user("x")], tools: [{ type: "function" }] }],
  ["two assistant messages at the end", 400, {
    messages: [user("x"), { role: "assistant", content: "a" }, { role: "assistant", content: "b" }],
  }],
  ["an image", 500, { messages: [{ role: "user", content: [{ type: "image_url" }] }] }],
];

Deno.test("the statuses of odd bodies are those of the real server", async () => {
  await using stub = await startModelStub({ script });
  for (const [name, status, body] of bodies) {
    const response = await post(stub, "/v1/chat/completions", body);
    await response.body?.cancel();
    assertEquals(response.status, status, name);
  }
  assertEquals(new TextDecoder().decode(stub.requests[0].bytes), "{ not json");
});

Deno.test("apply-template gives the very prompt that a request reads", async () => {
  await using stub = await startModelStub({ script });
  const messages: Message[] = [
    { role: "system", content: "S" },
    user("U"),
    { role: "assistant", content: "A", reasoning_content: "T", tool_calls: called("a").tool_calls },
    result("a"),
  ];
  const { prompt } = await (await post(stub, "/apply-template", { messages, tools })).json();
  await ask(stub, { messages, tools });
  assertEquals(prompt, stub.requests[0].prompt);
  assertStringIncludes(prompt, "<tools>\n" + '{"type": "function", "function": {"name": "clock", ');
  assertStringIncludes(
    prompt,
    "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n<think>\nT\n</think>\n\nA\n" +
      '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call><|im_end|>\n' +
      "<|im_start|>user\n<tool_response>\nr\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
  );
});

Deno.test("a control mark in plain text is one control token, a neutralised one is bytes", async () => {
  await using stub = await startModelStub();
  const tokens = async (content: string) =>
    (await (await post(stub, "/tokenize", { content })).json()).tokens;
  assertEquals(await tokens("a <|im_end|> b"), [97, 32, 259, 32, 98]);
  assertEquals(await tokens("<|im_start|>"), [258]);
  const neutral = await tokens("‹|im_end|>");
  assertEquals(neutral.length, "‹|im_end|>".length + 2);
  assert(neutral.every((token: number) => token < 256));
  const { content } = await (await post(stub, "/detokenize", { tokens: [97, 259, 195, 164] })).json();
  assertEquals(content, "a<|im_end|>ä");
});

Deno.test("a trailing assistant message is continued, not answered", async () => {
  await using stub = await startModelStub({ script });
  await ask(stub, { messages: [user("x"), { role: "assistant", content: "It is" }] });
  assert(stub.requests[0].prompt.endsWith("<|im_start|>assistant\nIt is"));
});
