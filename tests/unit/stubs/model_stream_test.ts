// The practice model's streams: the order of chunks, the first delta of a call, progress, odd ends, and the
// errors that come in place of an answer.

import { assert, assertEquals, assertRejects } from "@std/assert";
import { startModelStub } from "../../../tools/stubs/model.ts";
import type { Reply } from "../../../tools/stubs/model_script.ts";
import { ask, askStream, type Event, EventReader, post, tool, user } from "./support.ts";

const messages = [user("x")];
const tools = [tool("clock")];

/** The stream that a reply gives. */
async function streamOf(reply: Reply, body: Record<string, unknown> = {}) {
  await using stub = await startModelStub({ script: () => reply });
  return await askStream(stub, { messages, tools, ...body });
}

function deltas(events: Event[]): Record<string, unknown>[] {
  return events.flatMap(({ choices = [] }) => choices.map(({ delta }) => delta));
}

Deno.test("a stream is a role, thinking, content, the finish with timings, and [DONE]", async () => {
  const { events, done } = await streamOf({ thinking: "abc", content: "defg", chunkBytes: 2 });
  assert(done);
  assertEquals(deltas(events), [
    { role: "assistant", content: null },
    { reasoning_content: "ab" },
    { reasoning_content: "c" },
    { content: "de" },
    { content: "fg" },
    {},
  ]);
  assertEquals(events.map(({ choices }) => choices?.[0].finish_reason), [
    null,
    null,
    null,
    null,
    null,
    "stop",
  ]);
  assertEquals(events.filter(({ timings }) => timings !== undefined), [events.at(-1)]);
  assertEquals(events.some(({ usage }) => usage !== undefined), false);
});

Deno.test("include_usage adds a chunk without choices, and the timings move there", async () => {
  const { events } = await streamOf({ content: "a" }, {
    stream_options: { include_usage: true },
    verbose: true,
  });
  const [finish, last] = events.slice(-2);
  assertEquals([finish.timings, finish.choices?.[0].finish_reason], [undefined, "stop"]);
  assertEquals([finish.__verbose?.id_slot, finish.__verbose?.content], [0, ""]);
  assertEquals(last.choices, []);
  assertEquals(last.usage?.completion_tokens, last.timings?.predicted_n);
});

Deno.test("the first delta of a call carries id, name and the brace, later ones only arguments", async () => {
  const { events } = await streamOf({
    content: "now",
    toolCalls: [{ name: "clock", arguments: { a: 1 } }, { name: "clock", arguments: '{ "b":2}' }],
    chunkBytes: 100,
  });
  const calls = deltas(events).flatMap(({ tool_calls }) => (tool_calls ?? []) as Record<string, unknown>[]);
  assertEquals(calls.map(({ id: _id, ...call }) => call), [
    { index: 0, type: "function", function: { name: "clock", arguments: "{" } },
    { index: 0, function: { arguments: '"a": 1}' } },
    { index: 1, type: "function", function: { name: "clock", arguments: "{" } },
    { index: 1, function: { arguments: ' "b":2}' } },
  ]);
  const ids = calls.flatMap(({ id }) => id === undefined ? [] : [id]);
  assertEquals([ids.length, new Set(ids).size], [2, 2]);
  assertEquals(events.at(-1)?.choices?.[0].finish_reason, "tool_calls");
});

Deno.test("max_tokens inside a call ends with length and a partial call; enough of them with the whole", async () => {
  const reply: Reply = { toolCalls: [{ name: "clock", arguments: { path: "abc" } }], chunkBytes: 1 };
  const whole = await streamOf(reply);
  const tokens = whole.events.at(-1)?.timings?.predicted_n ?? 0;
  for (
    const [tokensMax, finish, text] of [[tokens, "tool_calls", '{"path": "abc"}'], [
      47,
      "length",
      '{"pa',
    ]] as const
  ) {
    const { events } = await streamOf(reply, { max_tokens: tokensMax });
    const args = deltas(events).flatMap(({ tool_calls }) =>
      tool_calls as { function: { arguments: string } }[] ?? []
    );
    assertEquals(events.at(-1)?.choices?.[0].finish_reason, finish);
    assertEquals(args.map((call) => call.function.arguments).join(""), text);
    assertEquals(events.at(-1)?.timings?.predicted_n, tokensMax);
  }
});

Deno.test("max_tokens 0 still gives one token", async () => {
  const { events } = await streamOf({ content: "abc" }, { max_tokens: 0 });
  assertEquals(deltas(events).map(({ content }) => content).filter(Boolean), ["a"]);
  assertEquals(events.at(-1)?.choices?.[0].finish_reason, "length");
});

Deno.test("progress events come only when asked for, from what was cached to the whole prompt", async () => {
  const reply: Reply = { content: "a", progress: 3, pings: 2 };
  const asked = await streamOf(reply, { return_progress: true });
  const progress = asked.events.flatMap(({ prompt_progress: each }) => each === undefined ? [] : [each]);
  const { total } = progress[0];
  assertEquals(progress.map(({ processed }) => processed), [0, Math.round(total / 2), total]);
  assertEquals(asked.events.slice(0, 3).map(({ prompt_progress }) => prompt_progress !== undefined), [
    true,
    true,
    true,
  ]);
  const unasked = await streamOf(reply);
  assertEquals(unasked.events.some(({ prompt_progress }) => prompt_progress !== undefined), false);
});

Deno.test("writes may cut characters and events anywhere", async () => {
  const { events, done } = await streamOf({ content: "ä🎈".repeat(20), writeBytes: 3 });
  assert(done);
  assertEquals(deltas(events).map(({ content }) => content ?? "").join(""), "ä🎈".repeat(20));
});

Deno.test("without tools in the request, or with tool_choice none, a call stays plain content", async () => {
  const reply: Reply = { toolCalls: [{ name: "clock", arguments: {} }] };
  const text = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>';
  for (const body of [{ tools: [] }, { tool_choice: "none" }]) {
    const { events } = await streamOf(reply, body);
    assertEquals(deltas(events).map(({ content }) => content ?? "").join(""), text);
    assertEquals(events.at(-1)?.choices?.[0].finish_reason, "stop");
  }
  const parsed = await streamOf(reply, { tool_choice: { type: "function", function: { name: "clock" } } });
  assertEquals(parsed.events.at(-1)?.choices?.[0].finish_reason, "tool_calls");
});

Deno.test("a cut stream breaks off, a clean cut ends without [DONE], and both free the slot", async () => {
  await using stub = await startModelStub();
  stub.setScript(() => ({ content: "abcd", chunkBytes: 1, fault: { kind: "cut", afterChunks: 2 } }));
  await assertRejects(() => askStream(stub, { messages, id_slot: 0 }), TypeError);
  stub.setScript(() => ({
    content: "abcd",
    chunkBytes: 1,
    fault: { kind: "cut", afterChunks: 2, clean: true },
  }));
  const { events, done } = await askStream(stub, { messages, id_slot: 0 });
  assertEquals([deltas(events).at(-1), done], [{ content: "b" }, false]);
  assertEquals(stub.requests.map(({ state, predictedN }) => [state, predictedN]), [["failed", 2], [
    "failed",
    2,
  ]]);
  assertEquals(stub.slots[0].isProcessing, false);
});

Deno.test("an error event ends the stream without [DONE] and clears the slot", async () => {
  await using stub = await startModelStub({
    script: () => ({
      content: "ab",
      chunkBytes: 1,
      fault: { kind: "error-event", message: "no room", afterChunks: 1 },
    }),
  });
  const { events, done } = await askStream(stub, { messages, id_slot: 0 });
  assertEquals(events.at(-1), { error: { code: 500, message: "no room", type: "server_error" } });
  assertEquals([deltas(events).at(-1), done, stub.slots[0].tokens], [{ content: "a" }, false, 0]);
});

Deno.test("a stalled stream says some and then nothing until the client leaves", async () => {
  await using stub = await startModelStub({
    script: () => ({ content: "abc", chunkBytes: 1, fault: { kind: "stall", afterChunks: 1 } }),
  });
  const leaving = new AbortController();
  const response = await post(stub, "/v1/chat/completions", { messages, stream: true }, {
    signal: leaving.signal,
  });
  const reader = new EventReader(response);
  for (let event = 0; event < 2; event++) await reader.next();
  leaving.abort();
  await assertRejects(() => reader.next(), DOMException);
  assertEquals((await stub.waitFor(({ state }) => state === "aborted")).predictedN, 1);
});

Deno.test("a status fault answers in place of the reply and leaves the slot as it was", async () => {
  await using stub = await startModelStub({ script: () => ({ content: "ok" }) });
  await ask(stub, { messages, id_slot: 0 });
  const tokens = stub.slots[0].tokens;
  stub.setScript(() => ({ fault: { kind: "status", status: 500 } }));
  assertEquals((await ask(stub, { messages: [user("other")], id_slot: 0 })).error?.code, 500);
  stub.setScript(() => ({ fault: { kind: "status", status: 502, body: "<html>", headers: { "x-a": "b" } } }));
  const response = await post(stub, "/v1/chat/completions", { messages, id_slot: 0 });
  assertEquals([response.status, await response.text(), response.headers.get("x-a")], [502, "<html>", "b"]);
  assertEquals(stub.slots[0].tokens, tokens);
});

Deno.test("a script that throws is an error 500 that names its reason", async () => {
  await using stub = await startModelStub({ script: () => Promise.reject(new Error("nothing left")) });
  const { status, error } = await ask(stub, { messages });
  assertEquals([status, error?.message], [500, "practice model: nothing left"]);
  assertEquals(stub.requests[0].state, "failed");
});

Deno.test("a server that loads answers 503 until it is ready, with a key 401 without it", async () => {
  await using stub = await startModelStub({ loading: true, apiKey: "k", script: () => ({ content: "ok" }) });
  const status = async (path: string, headers = {}) => {
    const response = await fetch(stub.url + path, { headers });
    await response.body?.cancel();
    return response.status;
  };
  assertEquals([await status("/health"), await status("/props")], [503, 503]);
  stub.finishLoading();
  assertEquals([await status("/health"), await status("/props")], [200, 401]);
  assertEquals(await status("/props", { authorization: "Bearer k" }), 200);
  assertEquals(await status("/nothing", { authorization: "Bearer k" }), 404);
});

Deno.test("/props tells the slots and the context, and that this is the practice model", async () => {
  await using stub = await startModelStub({ totalSlots: 2, nCtx: 1000 });
  const props = await (await fetch(`${stub.url}/props`)).json();
  assertEquals([props.total_slots, props.default_generation_settings.n_ctx], [2, 1000]);
  assertEquals([props.model_alias, typeof props.chat_template], ["practice", "string"]);
  assertEquals(stub.probes.map(({ method, path }) => `${method} ${path}`), ["GET /props"]);
});

Deno.test("closing ends open streams, held requests and those who wait", async () => {
  const stub = await startModelStub({ script: () => ({ content: "a", hold: new Promise(() => {}) }) });
  const open = [
    askStream(stub, { messages, id_slot: 0 }),
    ask(stub, { messages, id_slot: 0 }),
    stub.waitFor(() => false),
  ].map((each) => assertRejects(() => each));
  await stub.waitFor(({ order }) => order === 2);
  await stub.close();
  await Promise.all(open);
  assertEquals(stub.requests.map(({ state }) => state), ["aborted", "aborted"]);
});
