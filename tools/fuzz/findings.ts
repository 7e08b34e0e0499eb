// What a fuzz run counts, and what it found: each finding with what brought it about, short enough to read. Decides nothing.

import { Buffer } from "node:buffer";

const findingsMax = 20;
const shownCharactersMax = 300;

export class Findings {
  readonly found: { what: string; how: string }[] = [];
  readonly #counts = new Map<string, number>();

  add(what: string, how: string | Uint8Array): void {
    if (this.found.length >= findingsMax) return;
    const text = typeof how === "string" ? how : Buffer.from(how).toString("latin1");
    this.found.push({ what, how: JSON.stringify(text).slice(0, shownCharactersMax) });
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
}
