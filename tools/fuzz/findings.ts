// What a fuzz run counts, and what it found: each finding with what brought it about, short enough to read. What came late is held against
// our own clock first: while the whole machine stood still, so did whoever was to answer.

import { Buffer } from "node:buffer";

const findingsMax = 20;
const shownCharactersMax = 300;
const tickMs = 250;
/** Our own tick was late by so much: nobody on this machine was served meanwhile. */
const standstillMs = 3_000;

export class Findings {
  readonly found: { what: string; how: string }[] = [];
  readonly #counts = new Map<string, number>();
  #lastTick = performance.now();
  #stoodStillUntil = -Infinity;
  readonly #ticker = setInterval(() => this.#tick(), tickMs);

  #tick(): void {
    const now = performance.now();
    if (now - this.#lastTick > standstillMs) {
      this.#stoodStillUntil = now;
      this.count("standstills of the machine");
    }
    this.#lastTick = now;
  }

  add(what: string, how: string | Uint8Array): void {
    if (this.found.length >= findingsMax) return;
    const text = typeof how === "string" ? how : Buffer.from(how).toString("latin1");
    this.found.push({ what, how: JSON.stringify(text).slice(0, shownCharactersMax) });
  }

  /** For an answer that took too long since `began`. */
  addLate(what: string, how: string | Uint8Array, began: number): void {
    this.#tick();
    if (this.#stoodStillUntil > began) this.count("late while the machine stood still");
    else this.add(what, how);
  }

  count(name: string, by = 1): void {
    this.#counts.set(name, (this.#counts.get(name) ?? 0) + by);
  }

  counted(name: string): number {
    return this.#counts.get(name) ?? 0;
  }

  counts(): Record<string, number> {
    return Object.fromEntries([...this.#counts].sort(([a], [b]) => a < b ? -1 : 1));
  }

  [Symbol.dispose](): void {
    clearInterval(this.#ticker);
  }
}
