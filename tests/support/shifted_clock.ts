// A clock whose day is the test's and whose timers are real: for what happens on some date, where nothing has to wait for it.

import { type Clock, systemClock } from "../../core/clock.ts";

export interface ShiftedClock extends Clock {
  /** Sets the wall clock; timers and durations know nothing of it. */
  set(nowMs: number): void;
}

export function shiftedClock(startMs: number = Date.UTC(2026, 11, 1, 12, 0, 0)): ShiftedClock {
  let now = startMs;
  return {
    ...systemClock,
    now: () => now,
    set(nowMs) {
      now = nowMs;
    },
  };
}
