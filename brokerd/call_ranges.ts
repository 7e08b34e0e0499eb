// The decided call ids of one session, as sorted closed ranges: exact whatever order they come in, and small because ids mostly rise by one.
// It holds numbers and nothing of what was decided.

import type { CallId } from "../core/ids.ts";

export class CallRanges {
  /** Sorted, apart by at least one. */
  readonly #ranges: [CallId, CallId][] = [];

  has(call: CallId): boolean {
    const range = this.#ranges[this.#firstEndingAt(call)];
    return range !== undefined && range[0] <= call;
  }

  add(call: CallId): void {
    this.addRange(call, call);
  }

  /** `from` at most `to`. */
  addRange(from: CallId, to: CallId): void {
    // All ranges that touch or meet [from - 1, to + 1] become one with it.
    const at = this.#firstEndingAt(from - 1);
    let end = at;
    while (end < this.#ranges.length && this.#ranges[end][0] <= to + 1) end++;
    const merged: [CallId, CallId] = at === end
      ? [from, to]
      : [Math.min(from, this.#ranges[at][0]), Math.max(to, this.#ranges[end - 1][1])];
    this.#ranges.splice(at, end - at, merged);
  }

  ranges(): [CallId, CallId][] {
    return this.#ranges.map(([from, to]) => [from, to]);
  }

  // Index of the first range whose end is at least `value`; the length where none is.
  #firstEndingAt(value: number): number {
    let low = 0;
    let high = this.#ranges.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#ranges[middle][1] < value) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
