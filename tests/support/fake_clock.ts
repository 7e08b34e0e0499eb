// A clock that stands still until a test moves it. Callbacks run in the order of their due times, at the time they asked for.

import type { Clock } from "../../core/clock.ts";

export interface FakeClock extends Clock {
  /** Moves time forward, running what falls due, and lets the promises that settle in between run. */
  advance(byMs: number): Promise<void>;
  /** Callbacks that still wait. */
  readonly pending: number;
  /** Resolves when somebody next asks to be called after exactly `delayMs`, or at once where somebody waits so now. */
  scheduled(delayMs: number): Promise<void>;
}

export function fakeClock(startMs: number = Date.UTC(2026, 11, 1, 12, 0, 0)): FakeClock {
  let time = startMs;
  const waiting = new Set<{ due: number; delayMs: number; callback: () => void }>();
  const lookouts = new Set<{ delayMs: number; resolve: () => void }>();
  return {
    now: () => time,
    monotonic: () => time - startMs,
    get pending() {
      return waiting.size;
    },
    schedule(delayMs, callback) {
      const entry = { due: time + Math.max(0, delayMs), delayMs, callback };
      waiting.add(entry);
      for (const lookout of lookouts) {
        if (lookout.delayMs !== delayMs) continue;
        lookouts.delete(lookout);
        lookout.resolve();
      }
      return () => waiting.delete(entry);
    },
    scheduled: (delayMs) =>
      new Promise((resolve) => {
        if ([...waiting].some((entry) => entry.delayMs === delayMs)) resolve();
        else lookouts.add({ delayMs, resolve });
      }),
    async advance(byMs) {
      const until = time + byMs;
      await settle();
      for (;;) {
        const next = [...waiting].filter((entry) => entry.due <= until).sort((a, b) => a.due - b.due)[0];
        if (next === undefined) break;
        waiting.delete(next);
        time = Math.max(time, next.due);
        next.callback();
        await settle();
      }
      // Another advance may have gone further meanwhile: time never goes back.
      time = Math.max(time, until);
      await settle();
    },
  };
}

async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await Promise.resolve();
}
