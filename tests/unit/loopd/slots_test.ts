// SlotGate: who is served next, what ends a wait and what does not, and that nothing is sent to a slot which may still be at work.

import { assert, assertEquals, assertRejects } from "@std/assert";
import fc from "fast-check";
import { parseSessionId } from "../../../core/ids.ts";
import { slotQueueMax } from "../../../core/limits.ts";
import {
  type Lease,
  priorities,
  type Priority,
  SlotGate,
  SlotQueueFull,
  SlotSilent,
} from "../../../loopd/slots/gate.ts";
import { fakeClock } from "../../support/fake_clock.ts";

const livenessMs = 1_000;
const slot = 2;

function newGate(drained: (slot: number, signal: AbortSignal) => Promise<void> = () => Promise.resolve()) {
  const clock = fakeClock();
  const gate = new SlotGate({
    clock,
    livenessMs,
    drained: (which, _after, signal) => drained(which, signal),
  });
  const acquire = (
    name: string,
    priority: Priority = "cron",
    signal = new AbortController().signal,
    on = slot,
  ) => gate.acquire(on, { session: parseSessionId(name), priority, signal });
  return { clock, gate, acquire };
}

/** Releases whoever holds the slot until everyone had it; returns who had it in which order. */
async function serveAll(
  holder: Lease,
  waiting: readonly { name: string; lease: Promise<Lease> }[],
): Promise<string[]> {
  const order: string[] = [];
  const leases: Lease[] = [];
  for (const { name, lease } of waiting) lease.then((granted) => (order.push(name), leases.push(granted)));
  holder.release("settled");
  for (let served = 1; served <= waiting.length; served++) {
    await Promise.race(waiting.filter(({ name }) => !order.includes(name)).map(({ lease }) => lease));
    assertEquals(leases.length, served, "one at a time");
    leases[served - 1].release("settled");
  }
  return order;
}

Deno.test("S10 with all seven ranks waiting the slot goes to them in the order of rank, whichever came first", async () => {
  assertEquals(priorities, [
    "live",
    "compaction",
    "held-subagent",
    "cron",
    "heartbeat",
    "orphan-subagent",
    "tool-summary",
  ]);
  for (
    const arrival of [
      priorities,
      priorities.toReversed(),
      [3, 6, 0, 5, 1, 4, 2].map((at) => priorities[at]),
    ]
  ) {
    const { gate, acquire } = newGate();
    const holder = await acquire("chat-holder");
    const waiting = arrival.map((priority) => ({
      name: priority,
      lease: acquire(`chat-${priority}`, priority),
    }));
    assertEquals(gate.view()[0].queue.map(({ priority }) => priority), [...priorities]);
    assertEquals(await serveAll(holder, waiting), [...priorities]);
  }
});

Deno.test("S10 equals are served in the order in which they came, between better and worse ranks too", async () => {
  const { acquire } = newGate();
  const holder = await acquire("chat-holder");
  const arrival: [string, Priority][] = [
    ["cron-1", "cron"],
    ["child-1", "held-subagent"],
    ["pulse", "heartbeat"],
    ["cron-2", "cron"],
    ["child-2", "held-subagent"],
    ["cron-3", "cron"],
  ];
  const waiting = arrival.map(([name, priority]) => ({ name, lease: acquire(name, priority) }));
  assertEquals(await serveAll(holder, waiting), [
    "child-1",
    "child-2",
    "cron-1",
    "cron-2",
    "cron-3",
    "pulse",
  ]);
});

Deno.test("S10 whatever comes in whatever order, the queue is sorted by rank and then by arrival", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.constantFrom(...priorities), { maxLength: 30 }), async (arrival) => {
      const { gate, acquire } = newGate();
      await acquire("chat-holder");
      const ranked = arrival.map((priority, at) => ({ priority, session: `chat-${at}`, at }));
      const waits = ranked.map(({ session, priority }) => acquire(session, priority).catch(() => {}));
      const rank = (priority: Priority) => priorities.indexOf(priority);
      const expected = ranked.toSorted((a, b) => rank(a.priority) - rank(b.priority) || a.at - b.at);
      assertEquals(
        gate.view()[0].queue.map(({ session }) => String(session)),
        expected.map(({ session }) => session),
      );
      await gate.close();
      await Promise.all(waits);
    }),
    { numRuns: 50 },
  );
});

Deno.test("S10 a better rank does not take the slot from its holder", async () => {
  const { gate, acquire } = newGate();
  const holder = await acquire("heartbeat", "heartbeat");
  const better = acquire("chat-a", "compaction");
  assertEquals(gate.view()[0], {
    slot,
    state: "busy",
    holder: parseSessionId("heartbeat"),
    queue: [{ session: parseSessionId("chat-a"), priority: "compaction", waitedMs: 0 }],
  });
  holder.release("settled");
  (await better).release("settled");
  assertEquals(gate.view()[0].state, "idle");
});

Deno.test("B4 slots do not wait for one another", async () => {
  const { gate, acquire } = newGate();
  const never = new AbortController().signal;
  const leases = await Promise.all([
    acquire("chat-a", "live", never, 0),
    acquire("sub-chat-a-1", "held-subagent"),
  ]);
  assertEquals(leases.map((lease) => lease.slot), [0, slot]);
  assertEquals(gate.view().map(({ slot, state }) => [slot, state]), [[0, "busy"], [slot, "busy"]]);
});

Deno.test("B4 a lease is given up once: a second release of it does not free the next holder's slot", async () => {
  const { gate, acquire } = newGate();
  const first = await acquire("chat-a");
  const second = acquire("chat-b");
  const third = acquire("chat-c");
  first.release("settled");
  await second;
  first.release("settled");
  first.release("abandoned");
  assertEquals(gate.view()[0].holder, parseSessionId("chat-b"));
  (await second).release("settled");
  assertEquals((await third).slot, slot);
});

Deno.test("F8 a waiter whose signal aborts leaves the queue at once with the signal's reason, and the others keep their places", async () => {
  const { clock, gate, acquire } = newGate();
  const holder = await acquire("chat-holder");
  const abort = new AbortController();
  const leaving = acquire("chat-b", "cron", abort.signal);
  const waiting = [{ name: "a", lease: acquire("chat-a") }, { name: "c", lease: acquire("chat-c") }];
  const reason = new Error("cancelled by the owner");
  abort.abort(reason);
  assertEquals(await leaving.catch((error) => error), reason);
  assertEquals(gate.view()[0].queue.map(({ session }) => String(session)), ["chat-a", "chat-c"]);
  assertEquals(await serveAll(holder, waiting), ["a", "c"]);
  assertEquals(clock.pending, 0, "no watch is left behind");
});

Deno.test("F8 a request whose signal has aborted already never enters the queue", async () => {
  const { gate, acquire } = newGate();
  const reason = new Error("cancelled by the owner");
  assertEquals(await acquire("chat-a", "cron", AbortSignal.abort(reason)).catch((error) => error), reason);
  const lease = await acquire("chat-b");
  assertEquals(gate.view()[0].queue, []);
  lease.release("settled");
});

Deno.test("S11 F18 a wait behind a silent holder ends at the liveness bound, and not a millisecond before", async () => {
  const { clock, gate, acquire } = newGate();
  await acquire("chat-holder");
  const waiting = acquire("chat-a");
  let ended = false;
  waiting.catch(() => ended = true);
  await clock.advance(livenessMs - 1);
  assert(!ended);
  await clock.advance(1);
  const error = await assertRejects(() => waiting, SlotSilent, `slot ${slot} (busy)`);
  assert(error.message.includes(`${livenessMs} ms`), error.message);
  assertEquals(gate.view()[0].queue, []);
  assertEquals(gate.view()[0].state, "busy", "the holder keeps its slot: its own watch is not the gate's");
});

Deno.test("S11 F17 a holder that shows life is waited for without any deadline", async () => {
  const { clock, acquire } = newGate();
  const holder = await acquire("chat-holder");
  const waiting = acquire("chat-a");
  for (let step = 0; step < 600; step++) {
    await clock.advance(livenessMs - 1);
    holder.touch();
  }
  holder.release("settled");
  const lease = await waiting;
  assertEquals(lease.queuedMs, 600 * (livenessMs - 1));
  lease.release("settled");
  assertEquals(clock.pending, 0);
});

Deno.test("S11 silence counts from the last sign of life, not from when the waiter came", async () => {
  const { clock, acquire } = newGate();
  const holder = await acquire("chat-holder");
  await clock.advance(900);
  const waiting = acquire("chat-a");
  let ended = false;
  waiting.catch(() => ended = true);
  await clock.advance(300);
  holder.touch();
  await clock.advance(livenessMs - 1);
  assert(!ended);
  await clock.advance(1);
  await assertRejects(() => waiting, SlotSilent);
});

Deno.test("S11 a new waiter is not blamed for silence before it came", async () => {
  const { clock, acquire } = newGate();
  const holder = await acquire("chat-holder");
  await clock.advance(10 * livenessMs);
  const waiting = acquire("chat-a");
  await clock.advance(livenessMs - 1);
  holder.release("settled");
  (await waiting).release("settled");
});

Deno.test("S11 a new holder begins with a sign of life", async () => {
  const { clock, acquire } = newGate();
  const first = await acquire("chat-first");
  const second = acquire("chat-second");
  const third = acquire("chat-third");
  await clock.advance(livenessMs - 1);
  first.release("settled");
  const lease = await second;
  await clock.advance(livenessMs - 1);
  lease.release("settled");
  (await third).release("settled");
});

Deno.test("S11 a touch of a lease that was given up is no life of the next holder", async () => {
  const { clock, acquire } = newGate();
  const first = await acquire("chat-first");
  const second = acquire("chat-second");
  first.release("settled");
  await second;
  const third = acquire("chat-third");
  await clock.advance(livenessMs - 1);
  first.touch();
  await clock.advance(1);
  await assertRejects(() => third, SlotSilent);
});

Deno.test("B4 the queue takes as many as its bound, and refuses one more by name", async () => {
  const { gate, acquire } = newGate();
  await acquire("chat-holder");
  const waits = Array.from({ length: slotQueueMax }, (_, at) => acquire(`chat-${at}`).catch(() => {}));
  await assertRejects(
    () => acquire("chat-over"),
    SlotQueueFull,
    `${slotQueueMax} requests wait for slot ${slot}`,
  );
  assertEquals(gate.view()[0].queue.length, slotQueueMax);
  await gate.close();
  await Promise.all(waits);
});

Deno.test("F8 an abandoned slot is draining and given to nobody until it is shown idle, then to the best of those who wait", async () => {
  const idle = Promise.withResolvers<void>();
  const drained: number[] = [];
  const { gate, acquire } = newGate((which) => (drained.push(which), idle.promise));
  const holder = await acquire("chat-holder");
  const pulse = acquire("heartbeat", "heartbeat");
  holder.release("abandoned");
  const child = acquire("sub-chat-a-1", "held-subagent");
  assertEquals(gate.view()[0].state, "draining");
  assertEquals(gate.view()[0].holder, undefined);
  assertEquals(gate.view()[0].queue.length, 2);
  assertEquals(drained, [slot]);
  idle.resolve();
  const lease = await child;
  assertEquals(gate.view()[0].queue.map(({ priority }) => priority), ["heartbeat"]);
  lease.release("settled");
  (await pulse).release("settled");
});

Deno.test("F18 a slot that never drains ends the wait at the liveness bound and says that it drains", async () => {
  const idle = Promise.withResolvers<void>();
  const { clock, gate, acquire } = newGate(() => idle.promise);
  (await acquire("chat-holder")).release("abandoned");
  const waiting = acquire("chat-a");
  waiting.catch(() => {});
  await clock.advance(livenessMs);
  await assertRejects(() => waiting, SlotSilent, "(draining)");
  idle.resolve();
  await clock.advance(0);
  assertEquals(gate.view()[0].state, "idle");
});

Deno.test("F8 a slot found busy at start is drained before its first request", async () => {
  const idle = Promise.withResolvers<void>();
  const { gate, acquire } = newGate(() => idle.promise);
  gate.drain(slot);
  const first = acquire("chat-a");
  assertEquals(gate.view()[0].state, "draining");
  idle.resolve();
  (await first).release("settled");
  assertEquals(gate.view()[0].state, "idle");
});

Deno.test("a closing gate refuses all who wait, stops the drain, and leaves no timer", async () => {
  const { clock, gate, acquire } = newGate((_, signal) =>
    new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason), { once: true }))
  );
  (await acquire("chat-holder")).release("abandoned");
  const waits = ["chat-a", "chat-b"].map((name) => acquire(name));
  const ends = Promise.allSettled(waits);
  await gate.close();
  assertEquals((await ends).map(({ status }) => status), ["rejected", "rejected"]);
  assertEquals(clock.pending, 0);
});
