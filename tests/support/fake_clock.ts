// A clock that stands still until a test moves it. Callbacks run in the order of their due times, at the time they asked for.

import type { Clock } from "../../core/clock.ts";

export interface FakeClock extends Clock {
  /** Moves time forward, running what falls due, and lets the promises that settle in between run. */
  advance(byMs: number): Promise<void>;
  /** Callbacks that still wait. */
  readonly pending: number;
}

export function fakeClock(startMs: number = Date.UTC(2026, 11, 1, 12, 0, 0)): FakeClock {
  let time = startMs;
  const waiting = new Set<{ due: number; callback: () => void }>();
  return {
    now: () => time,
    monotonic: () => time - startMs,
    get pending() {
      return waiting.size;
    },
    schedule(delayMs, callback) {
      const entry = { due: time + Math.max(0, delayMs), callback };
      waiting.add(entry);
      return () => waiting.delete(entry);
    },
    async advance(byMs) {
      const until = time + byMs;
      await settle();
      for (;;) {
        const next = [...waiting].filter((entry) => entry.due <= until).sort((a, b) => a.due - b.due)[0];
        if (next === undefined) break;
        waiting.delete(next);
        time = next.due;
        next.callback();
        await settle();
      }
      time = until;
      await settle();
    },
  };
}

async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await Promise.resolve();
}
