// One request to the inference server: what counts as life, what ends it and as what, and what of a broken answer is never believed.

import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { type Clock, systemClock } from "../../../core/clock.ts";
import { modelMessageCharactersMax, toolCallsPerMessageMax } from "../../../core/limits.ts";
import { InferenceServer } from "../../../loopd/inference/server.ts";
import { type ModelMessage, requestMessage } from "../../../loopd/inference/model.ts";
import { ModelFailure } from "../../../loopd/inference/model_failure.ts";
import type { FailureReason } from "../../../loopd/session/record.ts";
import { type ModelStubOptions, startModelStub } from "../../../tools/stubs/model.ts";
import type { Reply } from "../../../tools/stubs/model_script.ts";
import { fakeClock } from "../../support/fake_clock.ts";
import { inferenceConfig } from "../../support/loopd_config.ts";

const livenessMs = 120_000;

const clockTool = JSON.stringify([{
  type: "function",
  function: { name: "clock", description: "the time", parameters: { type: "object", properties: {} } },
}]);

/** Asks `url` one thing; `life` is called on every sign of life. */
function ask(
  url: string,
  options: { signal?: AbortSignal; clock?: Clock; life?: () => void } = {},
) {
  const { clock = systemClock, signal = new AbortController().signal, life = () => {} } = options;
  const server = new InferenceServer({ clock, config: inferenceConfig(url), slots: [0, 2] });
  const said: string[] = [];
  const thought: string[] = [];
  const waiting = new Set<() => void>();
  const heard = (texts: string[], text: string) => {
    texts.push(text);
    for (const look of waiting) look();
  };
  const message = requestMessage(server, {
    messagesJson: JSON.stringify({ role: "user", content: "hello" }),
    toolsJson: clockTool,
    slot: 2,
    signal,
    onLife: life,
    onContent: (text) => heard(said, text),
    onThinking: (text) => heard(thought, text),
  }, { clock, livenessMs }).finally(() => server.close());
  message.catch(() => {});
  /** Resolves when so much text has been heard that `enough` says so. */
  const until = (enough: () => boolean) =>
    new Promise<void>((resolve) => {
      const look = () => {
        if (!enough()) return;
        waiting.delete(look);
        resolve();
      };
      waiting.add(look);
      look();
    });
  return { message, said, thought, until };
}

/** Asks a practice model that answers `reply`. */
async function askStub(reply: Reply, options: Omit<ModelStubOptions, "script"> = {}): Promise<ModelMessage> {
  await using stub = await startModelStub({ ...options, script: () => reply });
  return await ask(stub.url).message;
}

/** Asks a server that answers exactly these bytes as its stream. */
async function askRaw(stream: string, init: ResponseInit = {}): Promise<ModelMessage> {
  const server = Deno.serve(
    { hostname: "127.0.0.1", port: 0, onListen: () => {} },
    (request) =>
      new URL(request.url).pathname === "/props"
        ? Response.json({ total_slots: 3 })
        : new Response(stream, { headers: { "content-type": "text/event-stream" }, ...init }),
  );
  try {
    return await ask(`http://127.0.0.1:${server.addr.port}`).message;
  } finally {
    await server.shutdown();
  }
}

async function failure(asking: Promise<unknown>): Promise<ModelFailure> {
  return await assertRejects(() => asking, ModelFailure);
}

const event = (data: unknown) => `data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`;
const delta = (part: Record<string, unknown>) => event({ choices: [{ delta: part, finish_reason: null }] });
const finish = (reason: string) => event({ choices: [{ delta: {}, finish_reason: reason }] });
const done = event("[DONE]");

Deno.test("B3 a message comes whole, with its thinking apart, its counts and its slot", async () => {
  await using stub = await startModelStub({
    script: () => ({ content: "Grüße 😀", thinking: "how to greet", writeBytes: 1 }),
  });
  const { message, said, thought } = ask(stub.url);
  const { content, thinking, calls, timings } = await message;
  assertEquals([content, thinking, calls], ["Grüße 😀", "how to greet", []]);
  assertEquals([said.join(""), thought.join("")], [content, thinking]);
  const [{ cacheN, promptN, predictedN, body }] = stub.requests;
  assertEquals(timings, { cacheN, promptN, predictedN });
  assertEquals(
    [body?.id_slot, body?.stream, body?.cache_prompt, body?.return_progress, body?.max_tokens],
    [2, true, true, true, 8_192],
  );
  assertEquals("temperature" in (body ?? {}), false);
});

Deno.test("B3 F19 a tool call's arguments are joined from the first delta on, and kept as the model wrote them", async () => {
  const raw = '{ "b" : 1.0,"a":[ "é\\u00e9" ] }';
  const { calls, content } = await askStub({
    content: "let me look",
    toolCalls: [{ name: "clock", arguments: raw }, { name: "clock", arguments: {} }],
    chunkBytes: 1,
  });
  assertEquals(content, "let me look");
  assertEquals(calls, [{ name: "clock", arguments: raw }, { name: "clock", arguments: "{}" }]);
});

Deno.test("F17 prompt progress counts as life: 400 s of prefill end well under a liveness of 120 s", async () => {
  const clock = fakeClock();
  const gates = Array.from({ length: 5 }, () => Promise.withResolvers<void>());
  let life = Promise.withResolvers<void>();
  await using stub = await startModelStub({
    script: () => ({
      content: "answer",
      progress: gates.length,
      beforeProgress: (number) => gates[number].promise,
    }),
  });
  const { message } = ask(stub.url, { clock, life: () => life.resolve() });
  await stub.nextRequest();
  for (const gate of gates) {
    await clock.advance(livenessMs - 1);
    gate.resolve();
    await life.promise;
    life = Promise.withResolvers();
  }
  assertEquals((await message).content, "answer");
});

Deno.test("F17 thinking counts as life: minutes of thinking alone end well, and the thought is not the answer", async () => {
  const clock = fakeClock();
  const thinking = "abcdef";
  const gates = Array.from({ length: thinking.length }, () => Promise.withResolvers<void>());
  await using stub = await startModelStub({
    script: () => ({
      content: "answer",
      thinking,
      chunkBytes: 1,
      beforeChunk: (number) => gates[number]?.promise,
    }),
  });
  const { message, thought, until } = ask(stub.url, { clock });
  await stub.nextRequest();
  for (const [at, gate] of gates.entries()) {
    await clock.advance(livenessMs - 1);
    gate.resolve();
    await until(() => thought.length > at);
  }
  const { content, thinking: kept } = await message;
  assertEquals([content, kept], ["answer", thinking]);
});

for (
  const [what, reply, before] of [
    ["accepts and says nothing", { fault: { kind: "silent" } }, 0],
    ["sends a head and then nothing", { fault: { kind: "silent", headers: true } }, 0],
    ["sends half a stream and then nothing", {
      content: "half of it",
      chunkBytes: 1,
      fault: { kind: "stall", afterChunks: 4 },
    }, 4],
  ] as const
) {
  Deno.test(`F18 a server that ${what} is silent at the liveness bound, not before, and its connection is closed`, async () => {
    const clock = fakeClock();
    await using stub = await startModelStub({ script: () => reply });
    const { message, said, until } = ask(stub.url, { clock });
    await stub.nextRequest();
    await until(() => said.length >= before);
    let ended = false;
    message.catch(() => ended = true);
    await clock.advance(livenessMs - 1);
    assert(!ended);
    await clock.advance(1);
    const { reason, detail, settled } = await failure(message);
    assertEquals([reason, settled], ["silent", false]);
    assertStringIncludes(detail, `${livenessMs} ms`);
    await stub.waitFor(({ state }) => state === "aborted");
    assertEquals(clock.pending, 0);
  });
}

Deno.test("F17 comment lines keep a connection open and are no life: only events are", async () => {
  const clock = fakeClock();
  await using stub = await startModelStub({
    script: () => ({ content: "late", pings: 3, progress: 0, hold: new Promise(() => {}) }),
  });
  const { message } = ask(stub.url, { clock });
  await stub.nextRequest();
  await clock.advance(livenessMs);
  assertEquals((await failure(message)).reason, "silent");
});

for (
  const [what, reply] of [
    ["is cut in the middle", {
      content: "half of it",
      chunkBytes: 1,
      fault: { kind: "cut", afterChunks: 4 },
    }],
    ["ends properly but without its end mark", {
      content: "all of it",
      fault: { kind: "cut", afterChunks: 99, clean: true },
    }],
  ] as const
) {
  Deno.test(`F18 a stream that ${what} is a failure, and nothing of it an answer`, async () => {
    const { reason, settled } = await failure(askStub(reply));
    assert(reason === "cut" || reason === "model-error", reason);
    assertEquals(settled, false);
  });
}

Deno.test("F18 an end mark without a finish reason is a cut message", async () => {
  assertEquals((await failure(askRaw(delta({ content: "half" }) + done))).reason, "cut");
  assertEquals((await askRaw(delta({ content: "whole" }) + finish("stop") + done)).content, "whole");
});

Deno.test("F18 S7 an error event in the stream is a failure with the server's words, though text came before it", async () => {
  const { reason, detail } = await failure(
    askStub({ content: "half of it", fault: { kind: "error-event", message: "GPU lost", afterChunks: 1 } }),
  );
  assertEquals(reason, "model-error");
  assertStringIncludes(detail, "GPU lost");
});

Deno.test("F5 a full pool in mid-stream is an overflow", async () => {
  const { reason } = await failure(
    askStub({ content: "half", fault: { kind: "error-event", message: "Context size has been exceeded." } }),
  );
  assertEquals(reason, "overflow");
});

Deno.test("F5 a prompt over the context is an overflow that settles its slot and is not tried again", async () => {
  const { reason, settled, mayRetry } = await failure(askStub({ content: "never" }, { nCtx: 20 }));
  assertEquals([reason, settled, mayRetry], ["overflow", true, false]);
});

for (
  const [status, mayRetry] of [[400, false], [401, false], [404, false], [500, true], [503, true]] as const
) {
  Deno.test(`F5 HTTP ${status} is a model error that ${mayRetry ? "may" : "will not"} go away`, async () => {
    const failed = await failure(askStub({ fault: { kind: "status", status } }));
    assertEquals([failed.reason, failed.settled, failed.mayRetry], ["model-error", true, mayRetry]);
    assertStringIncludes(failed.detail, String(status));
  });
}

Deno.test("a redirect is not followed", async () => {
  const failed = await failure(
    askRaw("", { status: 307, headers: { location: "http://127.0.0.1:9/v1/chat/completions" } }),
  );
  assertEquals(failed.reason, "model-error");
  assertStringIncludes(failed.detail, "307");
});

for (
  const [what, text] of [
    ["no JSON", '{"city": "Ham'],
    ["an array", "[1]"],
    ["a text", '"now"'],
    ["null", "null"],
    ["two objects", "{}{}"],
    ["nesting without end", '{"a":'.repeat(100) + "1" + "}".repeat(100)],
  ] as const
) {
  Deno.test(`F19 a call whose arguments are ${what} is bad-arguments, whole message and all`, async () => {
    const { reason, settled, detail } = await failure(
      askStub({ content: "calling", toolCalls: [{ name: "clock", arguments: text }] }),
    );
    assertEquals([reason, settled], ["bad-arguments", true]);
    assert(!detail.includes("Ham"), "the arguments themselves are not shown");
  });
}

Deno.test("F19 a message that reached its token limit is cut, and its call is never given out, though its arguments parse", async () => {
  const { reason, settled } = await failure(
    askStub({ content: "calling", toolCalls: [{ name: "clock", arguments: "{}" }], finish: "length" }),
  );
  assertEquals([reason, settled], ["cut", true]);
});

Deno.test("F19 an answer that reached its token limit is cut", async () => {
  assertEquals((await failure(askStub({ content: "and so on and", finish: "length" }))).reason, "cut");
});

for (
  const [what, parts] of [
    ["skips an index", [{ index: 1, function: { name: "clock", arguments: "{}" } }]],
    ["has a negative index", [{ index: -1, function: { name: "clock", arguments: "{}" } }]],
    ["has a broken index", [{ index: 0.5, function: { name: "clock", arguments: "{}" } }]],
    ["is no object", ["clock"]],
    [
      "is one more than the bound",
      Array.from(
        { length: toolCallsPerMessageMax + 1 },
        (_, index) => ({ index, function: { name: "clock", arguments: "{}" } }),
      ),
    ],
  ] as const
) {
  Deno.test(`F19 a tool call that ${what} fails the message`, async () => {
    const failed = await failure(askRaw(delta({ tool_calls: parts }) + finish("tool_calls") + done));
    assertEquals(failed.reason, "model-error");
  });
}

Deno.test("F19 as many tool calls as the bound are taken", async () => {
  const parts = Array.from(
    { length: toolCallsPerMessageMax },
    (_, index) => ({ index, function: { name: "clock", arguments: "{}" } }),
  );
  assertEquals(
    (await askRaw(delta({ tool_calls: parts }) + finish("tool_calls") + done)).calls.length,
    toolCallsPerMessageMax,
  );
});

Deno.test("F19 a call without a name fails the message", async () => {
  const parts = [{ index: 0, function: { arguments: "{}" } }];
  assertEquals(
    (await failure(askRaw(delta({ tool_calls: parts }) + finish("tool_calls") + done))).reason,
    "bad-arguments",
  );
});

Deno.test("B3 a message of the bound's length is taken, one character more is refused", async () => {
  const text = (length: number) => {
    const half = "x".repeat(500_000);
    return delta({ content: half }) + delta({ content: "x".repeat(length - half.length) }) + finish("stop") +
      done;
  };
  assertEquals((await askRaw(text(modelMessageCharactersMax))).content.length, modelMessageCharactersMax);
  const { reason, detail } = await failure(askRaw(text(modelMessageCharactersMax + 1)));
  assertEquals(reason, "model-error");
  assertStringIncludes(detail, String(modelMessageCharactersMax));
});

Deno.test("a stream that holds no JSON, or an event without end, is a failure that shows none of it", async () => {
  for (const stream of ["data: <html>secret</html>\n\n" + done, `data: ${"secret".repeat(300_000)}`]) {
    const { reason, detail } = await failure(askRaw(stream));
    assertEquals(reason, "model-error");
    assert(!detail.includes("secret"), detail);
  }
});

Deno.test("counts that a server leaves out or garbles are taken as none, not as numbers", async () => {
  const garbled = event({ choices: [], timings: { cache_n: "7", prompt_n: -1, predicted_n: 1.5 } });
  const { timings } = await askRaw(delta({ content: "x" }) + finish("stop") + garbled + done);
  assertEquals(timings, { cacheN: 0, promptN: 0, predictedN: 0 });
  const none = await askRaw(delta({ content: "x" }) + finish("stop") + done);
  assertEquals(none.timings, { cacheN: 0, promptN: 0, predictedN: 0 });
});

Deno.test("counts of a server without timings are read from its usage", async () => {
  const usage = { prompt_tokens: 100, completion_tokens: 7, prompt_tokens_details: { cached_tokens: 60 } };
  const { timings } = await askRaw(
    delta({ content: "x" }) + finish("stop") + event({ choices: [], usage }) + done,
  );
  assertEquals(timings, { cacheN: 60, promptN: 40, predictedN: 7 });
});

Deno.test("K2 a server that is not there is named with its address and its runbook entry", async () => {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = listener.addr as Deno.NetAddr;
  listener.close();
  const { reason, detail, settled } = await failure(ask(`http://127.0.0.1:${port}`).message);
  assertEquals([reason, settled], ["model-error" satisfies FailureReason, true]);
  assertStringIncludes(detail, `http://127.0.0.1:${port}`);
  assertStringIncludes(detail, "docs/runbook.md#inference-unreachable");
});

Deno.test("F22 K2 a server with too few slots gets no request, whatever it would do with one", async () => {
  await using stub = await startModelStub({
    totalSlots: 2,
    script: () => ({ content: "on the wrong slot" }),
  });
  const { reason, detail } = await failure(ask(stub.url).message);
  assertEquals(reason, "model-error");
  assertStringIncludes(detail, "has 2 slots, and [slots] needs 3");
  assertStringIncludes(detail, "docs/runbook.md#inference-slots");
  assertEquals(stub.requests.length, 0);
});

Deno.test("a server that is still loading is waited for", async () => {
  const clock = fakeClock();
  await using stub = await startModelStub({ loading: true, script: () => ({ content: "here now" }) });
  const { message } = ask(stub.url, { clock });
  await clock.scheduled(500);
  stub.finishLoading();
  await clock.advance(500);
  assertEquals((await message).content, "here now");
});

Deno.test("F18 a server that never ends loading is silent at the liveness bound", async () => {
  const clock = fakeClock();
  await using stub = await startModelStub({ loading: true, script: () => ({ content: "never" }) });
  const { message } = ask(stub.url, { clock });
  await clock.advance(livenessMs);
  assertEquals((await failure(message)).reason, "silent");
  assertEquals(stub.requests.length, 0);
});

Deno.test("F8 a cancelled request ends with its caller's reason, and the server sees the connection close", async () => {
  await using stub = await startModelStub({
    script: () => ({ content: "a long answer", chunkBytes: 1, fault: { kind: "stall", afterChunks: 2 } }),
  });
  const abort = new AbortController();
  const heard = Promise.withResolvers<void>();
  const { message, said } = ask(stub.url, {
    signal: abort.signal,
    life: () => said.length > 0 && heard.resolve(),
  });
  await heard.promise;
  const reason = new Error("cancelled by the owner");
  abort.abort(reason);
  assertEquals(await message.catch((error) => error), reason);
  await stub.waitFor(({ state }) => state === "aborted");
});
