// The practice model's slots: id_slot by modulo, the queue of a busy slot, and what a lost client leaves.

import { assert, assertEquals, assertRejects } from "@std/assert";
import { startModelStub } from "../../../tools/stubs/model.ts";
import { CancelNotices } from "../../../tools/stubs/model_notices.ts";
import { scripted } from "../../../tools/stubs/model_script.ts";
import { ask, askStream, EventReader, post, user } from "./support.ts";

const messages = [user("x")];
const ok = () => ({ content: "ok" });

Deno.test("id_slot is never refused, it is taken modulo the slots", async () => {
  await using stub = await startModelStub({ script: ok });
  const table: [sent: number, slot: number][] = [[0, 0], [1, 1], [2, 2], [3, 0], [5, 2], [-2, 2], [
    99999999999,
    1,
  ]];
  for (const [sent, slot] of table) {
    await ask(stub, { messages, id_slot: sent });
    assertEquals(stub.requests.at(-1)?.slot, slot, `id_slot ${sent}`);
  }
});

Deno.test("id_slot of another type, or -1, lets the server choose: a similar prefix, else the oldest", async () => {
  await using stub = await startModelStub({ script: ok });
  await ask(stub, { messages, id_slot: 1 });
  for (const sent of ["1", null, -1, undefined]) {
    await ask(stub, { messages, id_slot: sent });
    assertEquals(stub.requests.at(-1)?.slot, 1, `similar prefix, id_slot ${sent}`);
  }
  await ask(stub, { messages: [{ role: "system", content: "quite another" }] });
  assertEquals(stub.requests.at(-1)?.slot, 0);
});

Deno.test("a request to a busy slot waits without headers and counts as a collision", async () => {
  const hold = Promise.withResolvers<void>();
  await using stub = await startModelStub({
    script: scripted([{ content: "first", hold: hold.promise }, "second", "third", "elsewhere"]),
  });
  const first = ask(stub, { messages, id_slot: 0 });
  await stub.waitFor(({ order, promptN }) => order === 1 && promptN > 0);
  let headers = 0;
  const queued = [2, 3].map(async (order) => {
    const response = await post(stub, "/v1/chat/completions", { messages, id_slot: 0, stream: true });
    headers++;
    await response.body?.cancel();
    return order;
  });
  await stub.waitFor(({ order }) => order === 3);
  assertEquals(stub.slots.map(({ isProcessing }) => isProcessing), [true, false, false]);
  await ask(stub, { messages, id_slot: 1 });
  assertEquals(headers, 0);
  assertEquals(stub.requests.map(({ state }) => state), ["running", "queued", "queued", "completed"]);
  hold.resolve();
  assertEquals((await first).message.content, "first");
  await Promise.all(queued);
  assertEquals(stub.requests.map(({ collided }) => collided), [false, true, true, false]);
  assertEquals(stub.collisions, 2);
});

Deno.test("a client that reads [DONE] may use its slot at once, a thousand times", async () => {
  await using stub = await startModelStub({ script: ok });
  for (let count = 0; count < 1000; count++) await askStream(stub, { messages, id_slot: 0 });
  assertEquals(stub.collisions, 0);
});

Deno.test("a client that leaves a stream frees its slot, which remembers what was said", async () => {
  await using stub = await startModelStub({
    script: scripted([
      { content: "abcdef", chunkBytes: 1, beforeChunk: (at) => at < 3 ? undefined : never() },
      "next",
    ]),
  });
  const leaving = new AbortController();
  const response = await post(stub, "/v1/chat/completions", { messages, id_slot: 0, stream: true }, {
    signal: leaving.signal,
  });
  const reader = new EventReader(response);
  for (let event = 0; event < 4; event++) await reader.next();
  leaving.abort();
  const aborted = await stub.waitFor(({ state }) => state === "aborted");
  assertEquals([aborted.predictedN, stub.slots[0].isProcessing], [3, false]);
  assertEquals(stub.slots[0].text, aborted.prompt + "ab");
  assertEquals((await ask(stub, { messages, id_slot: 0 })).message.content, "next");
  assertEquals(stub.collisions, 0);
});

Deno.test("a client that leaves in the hold, in silence or in the queue is noticed too", async () => {
  await using stub = await startModelStub({
    script: scripted([{ hold: never() }, { fault: { kind: "silent" } }, "last"]),
  });
  const leave = async (order: number, leaving: AbortController, stream: boolean) => {
    const asked = post(stub, "/v1/chat/completions", { messages, id_slot: 0, stream }, {
      signal: leaving.signal,
    });
    const read = asked.then((response) => response.text());
    await stub.waitFor((request) => request.order === order);
    return async () => {
      leaving.abort();
      await assertRejects(() => read, DOMException);
      return await stub.waitFor((request) => request.order === order && request.state === "aborted");
    };
  };
  const leaveHold = await leave(1, new AbortController(), false);
  const leaveQueue = await leave(2, new AbortController(), true);
  assertEquals((await leaveQueue()).promptN, 0);
  await leaveHold();
  const leaveSilence = await leave(3, new AbortController(), true);
  await leaveSilence();
  assertEquals((await ask(stub, { messages, id_slot: 0 })).message.content, "last");
});

Deno.test("with a slow notice a lost request without a stream keeps its slot for that long", async () => {
  for (const cancelNoticeMs of [60, 0]) {
    await using stub = await startModelStub({ script: () => ({ hold: never() }), cancelNoticeMs });
    const leaving = new AbortController();
    const asked = post(stub, "/v1/chat/completions", { messages, id_slot: 0 }, { signal: leaving.signal });
    await stub.waitFor(({ promptN }) => promptN > 0);
    const leftAtMs = performance.now();
    leaving.abort();
    await assertRejects(() => asked, DOMException);
    const wasProcessing = stub.slots[0].isProcessing;
    await stub.waitFor(({ state }) => state === "aborted");
    const waitedMs = performance.now() - leftAtMs;
    if (cancelNoticeMs === 0) continue;
    assert(wasProcessing);
    assert(waitedMs >= cancelNoticeMs - 2, `freed after ${waitedMs} ms`);
  }
});

Deno.test("every result of the server starts the slow notice again", async () => {
  const notices = new CancelNotices(40);
  const noticed = Promise.withResolvers<void>();
  const armedAtMs = performance.now();
  notices.arm(() => noticed.resolve());
  const later = setTimeout(() => notices.traffic(), 25);
  await noticed.promise;
  clearTimeout(later);
  assert(performance.now() - armedAtMs >= 63);
  const disarm = notices.arm(() => assert(false, "a disarmed notice fired"));
  disarm();
  notices.traffic();
});

Deno.test("GET /slots shows an unused, a busy and a used slot", async () => {
  const hold = Promise.withResolvers<void>();
  await using stub = await startModelStub({
    script: () => ({ content: "ok", hold: hold.promise }),
    nCtx: 4096,
  });
  const slots = async () => await (await fetch(`${stub.url}/slots`)).json();
  const asked = ask(stub, { messages, id_slot: 1 });
  const { promptN } = await stub.waitFor((request) => request.promptN > 0);
  const busy = await slots();
  assertEquals(busy.map(({ is_processing }: { is_processing: boolean }) => is_processing), [
    false,
    true,
    false,
  ]);
  assertEquals([busy[1].n_prompt_tokens, busy[1].n_prompt_tokens_cache, busy[1].n_ctx], [promptN, 0, 4096]);
  assertEquals("n_prompt_tokens" in busy[0], false);
  hold.resolve();
  await asked;
  const idle = await slots();
  assertEquals([idle[1].is_processing, idle[1].n_prompt_tokens], [false, promptN + 2]);
});

function never(): Promise<void> {
  return new Promise(() => {});
}
