// Time as every part reads it. Tests put a fake in its place (tests/support/fake_clock.ts); nothing else calls Date.now or setTimeout
// to decide anything.

export interface Clock {
  /** Wall clock, milliseconds since the epoch. */
  now(): number;
  /** Monotonic milliseconds, for durations. */
  monotonic(): number;
  /** Runs `callback` once after `delayMs`. Cancel with the returned function; cancelling twice is harmless. */
  schedule(delayMs: number, callback: () => void): () => void;
}

/** setTimeout counts in 32 bits; a longer delay would fire at once. */
const timerDelayMsMax = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  schedule(delayMs, callback) {
    const timer = setTimeout(callback, Math.min(Math.max(0, delayMs), timerDelayMsMax));
    return () => clearTimeout(timer);
  },
};

/** Resolves after `delayMs`, or rejects with the signal's reason. */
export function delay(clock: Clock, delayMs: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const onAbort = () => {
      cancel();
      reject(signal?.reason);
    };
    const cancel = clock.schedule(delayMs, () => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    });
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}

/** `work` did not end in time; its signal was aborted. */
export class DeadlineOver extends Error {
  override readonly name = "DeadlineOver";
}

/** Runs `work` under a signal that aborts with `signal`, or after `deadlineMs` with a DeadlineOver. */
export async function withDeadline<T>(
  clock: Clock,
  deadlineMs: number,
  signal: AbortSignal | undefined,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const deadline = new AbortController();
  const cancel = clock.schedule(
    deadlineMs,
    () => deadline.abort(new DeadlineOver(`no end within ${deadlineMs} ms`)),
  );
  try {
    return await work(signal === undefined ? deadline.signal : AbortSignal.any([signal, deadline.signal]));
  } finally {
    cancel();
  }
}

/** RFC 3339 in UTC with milliseconds, as every record carries it. */
export function timestamp(clock: Clock): string {
  return new Date(clock.now()).toISOString();
}
