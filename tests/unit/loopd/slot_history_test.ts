// The last hour of the slots, as the owner sees it: who held which, how long they waited, what of their prefix was kept; bounded in time
// and number.

import { assertEquals } from "@std/assert";
import { parseSessionId } from "../../../core/ids.ts";
import { type SlotHistoryAnswer, slotHistoryAnswerSchema } from "../../../core/protocol/loop.ts";
import { slotHistoryMs, slotSpansMax } from "../../../core/limits.ts";
import { requestJson } from "../../../core/wire/client.ts";
import { SlotHistory } from "../../../loopd/slots/history.ts";
import { SlotGate } from "../../../loopd/slots/gate.ts";
import { fakeClock } from "../../support/fake_clock.ts";
import { callsTool, type LoopdRig, says, startLoopdRig } from "../../support/loopd_rig.ts";

const session = parseSessionId("chat-a");

async function history(rig: LoopdRig): Promise<SlotHistoryAnswer> {
  const { body } = await requestJson(rig.paths.loopSocket, { method: "GET", path: "/v1/slots/history" });
  const { status: _, ...answer } = body as Record<string, unknown>;
  return slotHistoryAnswerSchema.parse(answer);
}

Deno.test("S3 B4 the history says who held which slot, at which rank, and what was kept of the prefix", async () => {
  await using rig = await startLoopdRig({
    script: ({ slot, messages }) => {
      if (slot === 2) return says("counted");
      return messages.at(-1)?.role === "tool" ? says("done") : callsTool("subagent", { task: "count" });
    },
  });
  const chat = await rig.newSession();
  await rig.send(chat, "have it counted");
  const { spans, held, since, time } = await history(rig);
  const busy = spans.filter(({ state }) => state === "busy");
  assertEquals(busy.map(({ session, slot, priority, how }) => ({ session, slot, priority, how })), [
    { session: chat, slot: 0, priority: "live", how: "settled" },
    { session: parseSessionId(`sub-${chat}-1`), slot: 2, priority: "held-subagent", how: "settled" },
    { session: chat, slot: 0, priority: "live", how: "settled" },
  ]);
  assertEquals(
    busy.map(({ kept }) => kept),
    rig.model.requests.map(({ cacheN, promptN }) => ({ cacheN, promptN, lostN: 0 })),
  );
  for (const { start, end } of busy) {
    assertEquals([since <= start, start <= (end ?? ""), (end ?? "") <= time], [true, true, true]);
  }
  assertEquals(held, []);
});

Deno.test("B4 a span tells its wait, is open while the slot is held, and a drain follows one that was abandoned", async () => {
  const clock = fakeClock();
  const gate = new SlotGate({ clock, livenessMs: 60_000, drained: () => Promise.resolve() });
  const request = { session, priority: "cron", signal: new AbortController().signal } as const;
  const first = await gate.acquire(2, request);
  const waiting = gate.acquire(2, { ...request, priority: "live" });
  await clock.advance(1_500);
  assertEquals(gate.history.spans().map(({ end }) => end), [null]);
  first.release("abandoned");
  const second = await waiting;
  await clock.advance(500);
  second.kept({ cacheN: 90, promptN: 10, lostN: 0 });
  second.release("settled");
  assertEquals(
    gate.history.spans().map(({ state, queuedMs, how, kept, start, end }) => ({
      state,
      queuedMs,
      how,
      kept,
      lastedMs: Date.parse(end ?? "") - Date.parse(start),
    })),
    [
      { state: "busy", queuedMs: 0, how: "abandoned", kept: undefined, lastedMs: 1_500 },
      { state: "draining", queuedMs: undefined, how: "settled", kept: undefined, lastedMs: 0 },
      {
        state: "busy",
        queuedMs: 1_500,
        how: "settled",
        kept: { cacheN: 90, promptN: 10, lostN: 0 },
        lastedMs: 500,
      },
    ],
  );
  await gate.close();
});

Deno.test("the history forgets what ended over an hour ago, and keeps no more spans than its bound", async () => {
  const clock = fakeClock();
  const kept = new SlotHistory(clock);
  const hold = () => kept.held(0, { session, priority: "live", queuedMs: 0 });
  hold().end("settled");
  await clock.advance(slotHistoryMs);
  assertEquals(kept.spans().length, 1);
  await clock.advance(1);
  assertEquals(kept.spans().length, 0);
  const open = hold();
  await clock.advance(2 * slotHistoryMs);
  assertEquals(kept.spans().length, 1);
  open.end("settled");
  for (let more = 1; more < slotSpansMax; more++) hold().end("settled");
  assertEquals(kept.spans().length, slotSpansMax);
  hold().end("settled");
  assertEquals(kept.spans().length, slotSpansMax);
});
