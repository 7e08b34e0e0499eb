// The slots of the inference server as this process sees them: one request at a time on each, in the order of rank (B4, S10).
// The server's own queue is never used: a request posted to a busy slot can corrupt the stream that runs there (facts 2.2), and a cancelled
// queued request still runs (facts 2.3). It sends nothing itself; who holds a lease sends.

import type { Clock } from "../../core/clock.ts";
import { assertOurs } from "../../core/errors.ts";
import type { SessionId } from "../../core/ids.ts";
import { slotQueueMax } from "../../core/limits.ts";
import { type KeptPrefix, SlotHistory } from "./history.ts";

/** Rank on a contended slot, best first (S10). `live` stands alone on the main slot. */
export const priorities = [
  "live",
  "compaction",
  "held-subagent",
  "cron",
  "heartbeat",
  "orphan-subagent",
  "tool-summary",
] as const;
export type Priority = typeof priorities[number];

export interface Lease {
  readonly slot: number;
  /** Milliseconds in the queue before the slot was granted. */
  readonly queuedMs: number;
  /** A sign of life from the request that holds the slot. */
  touch(): void;
  /** What the request found of its prefix, for the history. */
  kept(kept: KeptPrefix): void;
  /**
   * Gives the slot up. `settled`: the server finished the request, so the slot is idle. `abandoned`: the request was cancelled or broke off,
   * so the server may still work on it, and nothing is sent there before it shows the slot idle. Once only; later calls do nothing.
   */
  release(how: "settled" | "abandoned"): void;
}

export interface SlotRequest {
  readonly session: SessionId;
  readonly priority: Priority;
  readonly signal: AbortSignal;
}

/** Nothing on the slot gave a sign of life for the liveness timeout while a request waited for it (S11). */
export class SlotSilent extends Error {
  override readonly name = "SlotSilent";
}

export class SlotQueueFull extends Error {
  override readonly name = "SlotQueueFull";
}

interface Waiter extends SlotRequest {
  readonly since: number;
  grant(): void;
  refuse(error: unknown): void;
}

interface Slot {
  state: "idle" | "busy" | "draining";
  holder: SessionId | undefined;
  /** Monotonic time of the last sign of life on the slot. */
  lastLife: number;
  queue: Waiter[];
}

export interface SlotView {
  readonly slot: number;
  readonly state: Slot["state"];
  readonly holder: SessionId | undefined;
  readonly queue: { session: SessionId; priority: Priority; waitedMs: number }[];
}

export interface SlotGateOptions {
  readonly clock: Clock;
  /** Longest silence on a slot that somebody waits for. */
  readonly livenessMs: number;
  /** Resolves when the server shows the slot idle, or gone with the server; rejects only when the signal aborts. */
  readonly drained: (slot: number, after: "start" | "request", signal: AbortSignal) => Promise<void>;
}

export class SlotGate {
  readonly history: SlotHistory;
  #options: SlotGateOptions;
  #slots = new Map<number, Slot>();
  #closed = new AbortController();
  #drains = new Set<Promise<void>>();

  constructor(options: SlotGateOptions) {
    this.#options = options;
    this.history = new SlotHistory(options.clock);
  }

  /** Waits for the slot at the request's rank. Rejects with the signal's reason, SlotSilent or SlotQueueFull. */
  acquire(slotNumber: number, request: SlotRequest): Promise<Lease> {
    const { clock } = this.#options;
    const slot = this.#slot(slotNumber);
    const since = clock.monotonic();
    return new Promise((resolve, reject) => {
      if (request.signal.aborted) return reject(request.signal.reason);
      if (slot.queue.length >= slotQueueMax) {
        return reject(new SlotQueueFull(`${slotQueueMax} requests wait for slot ${slotNumber} already`));
      }
      const leave = () => {
        request.signal.removeEventListener("abort", onAbort);
        stopWatch();
        slot.queue = slot.queue.filter((other) => other !== waiter);
      };
      const waiter: Waiter = {
        ...request,
        since,
        grant: () => {
          leave();
          resolve(this.#lease(slotNumber, slot, { ...request, queuedMs: clock.monotonic() - since }));
        },
        refuse: (error) => {
          leave();
          reject(error);
        },
      };
      const onAbort = () => waiter.refuse(request.signal.reason);
      const stopWatch = this.#watch(slot, slotNumber, waiter);
      request.signal.addEventListener("abort", onAbort, { once: true });
      insertByRank(slot.queue, waiter);
      this.#serve(slot);
    });
  }

  /** Marks a slot that the server may still be busy on, at start; waiters follow when it is idle. */
  drain(slotNumber: number): void {
    const slot = this.#slot(slotNumber);
    assertOurs(
      slot.state === "idle",
      `slot ${slotNumber} is drained only while this process does not use it`,
    );
    this.#startDraining(slotNumber, slot, "start");
  }

  view(): SlotView[] {
    const now = this.#options.clock.monotonic();
    return [...this.#slots].sort(([a], [b]) => a - b).map(([number, slot]) => ({
      slot: number,
      state: slot.state,
      holder: slot.holder,
      queue: slot.queue.map(({ session, priority, since }) => ({ session, priority, waitedMs: now - since })),
    }));
  }

  /** Refuses every waiter and stops watching slots. */
  async close(): Promise<void> {
    this.#closed.abort(new Error("the role is stopping"));
    for (const slot of this.#slots.values()) {
      for (const waiter of [...slot.queue]) waiter.refuse(this.#closed.signal.reason);
    }
    await Promise.all(this.#drains);
  }

  #slot(number: number): Slot {
    let slot = this.#slots.get(number);
    if (slot === undefined) {
      slot = { state: "idle", holder: undefined, lastLife: 0, queue: [] };
      this.#slots.set(number, slot);
    }
    return slot;
  }

  #serve(slot: Slot): void {
    if (slot.state === "idle") slot.queue[0]?.grant();
  }

  #lease(slotNumber: number, slot: Slot, request: SlotRequest & { readonly queuedMs: number }): Lease {
    assertOurs(slot.state === "idle", `slot ${slotNumber} is granted only while idle`);
    const { clock } = this.#options;
    const { session, priority, queuedMs } = request;
    slot.state = "busy";
    slot.holder = session;
    slot.lastLife = clock.monotonic();
    const span = this.history.held(slotNumber, { session, priority, queuedMs });
    let held = true;
    return {
      slot: slotNumber,
      queuedMs,
      touch: () => {
        if (held) slot.lastLife = clock.monotonic();
      },
      kept: (kept) => span.kept(kept),
      release: (how) => {
        if (!held) return;
        held = false;
        span.end(how);
        slot.holder = undefined;
        slot.state = "idle";
        if (how === "abandoned") this.#startDraining(slotNumber, slot, "request");
        else this.#serve(slot);
      },
    };
  }

  #startDraining(slotNumber: number, slot: Slot, after: "start" | "request"): void {
    slot.state = "draining";
    slot.lastLife = this.#options.clock.monotonic();
    const span = this.history.draining(slotNumber);
    const drain = this.#options.drained(slotNumber, after, this.#closed.signal).then(
      () => {
        slot.state = "idle";
        span.end("settled");
        this.#serve(slot);
      },
      () => {}, // only a closing gate ends a drain early, and it has refused the waiters already
    );
    this.#drains.add(drain);
    drain.finally(() => this.#drains.delete(drain));
  }

  // A waiter has no deadline of its own: it ends only when the slot's holder has shown no life for the liveness timeout.
  #watch(slot: Slot, slotNumber: number, waiter: Waiter): () => void {
    const { clock, livenessMs } = this.#options;
    let cancel = () => {};
    const look = () => {
      const silentMs = clock.monotonic() - Math.max(slot.lastLife, waiter.since);
      if (silentMs >= livenessMs) {
        waiter.refuse(
          new SlotSilent(`slot ${slotNumber} (${slot.state}) gave no sign of life for ${livenessMs} ms`),
        );
      } else cancel = clock.schedule(livenessMs - silentMs, look);
    };
    cancel = clock.schedule(livenessMs, look);
    return () => cancel();
  }
}

// Behind all of the same or a better rank: equals are served in the order in which they came.
function insertByRank(queue: Waiter[], waiter: Waiter): void {
  const rank = (of: Waiter) => priorities.indexOf(of.priority);
  const at = queue.findIndex((other) => rank(other) > rank(waiter));
  queue.splice(at === -1 ? queue.length : at, 0, waiter);
}
