// Who held which slot in the last hour: a bounded list in memory, written by the gate alone and lost with the process. For the owner to
// look at; nothing decides by it.

import { type Clock, timestamp } from "../../core/clock.ts";
import type { SessionId } from "../../core/ids.ts";
import { slotHistoryMs, slotSpansMax } from "../../core/limits.ts";
import type { SlotSpan } from "../../core/protocol/loop.ts";

/** What one request found of its session's prefix on the slot, in tokens. */
export interface KeptPrefix {
  readonly cacheN: number;
  readonly promptN: number;
  /** Of the session's own prefix, computed again. */
  readonly lostN: number;
}

type Span = { -readonly [Key in keyof SlotSpan]: SlotSpan[Key] };

/** A span that is still going on. */
export interface OpenSpan {
  kept(kept: KeptPrefix): void;
  end(how: "settled" | "abandoned"): void;
}

export class SlotHistory {
  readonly since: string;
  readonly #clock: Clock;
  /** Oldest first. */
  #spans: Span[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
    this.since = timestamp(clock);
  }

  held(slot: number, of: { session: SessionId; priority: string; queuedMs: number }): OpenSpan {
    return this.#open({ slot, state: "busy", ...of, queuedMs: Math.round(of.queuedMs) });
  }

  draining(slot: number): OpenSpan {
    return this.#open({ slot, state: "draining" });
  }

  spans(): readonly SlotSpan[] {
    this.#trim();
    return this.#spans;
  }

  #open(fields: Omit<SlotSpan, "start" | "end">): OpenSpan {
    const span: Span = { ...fields, start: timestamp(this.#clock), end: null };
    this.#spans.push(span);
    this.#trim();
    return {
      kept: (kept) => {
        span.kept = kept;
      },
      end: (how) => {
        span.end = timestamp(this.#clock);
        span.how = how;
      },
    };
  }

  #trim(): void {
    const from = new Date(this.#clock.now() - slotHistoryMs).toISOString();
    const first = this.#spans.findIndex(({ end }) => end === null || end >= from);
    const over = this.#spans.length - slotSpansMax;
    const drop = Math.max(first === -1 ? this.#spans.length : first, over);
    if (drop > 0) this.#spans = this.#spans.slice(drop);
  }
}
