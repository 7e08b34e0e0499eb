// Tells the owner, once for each likely cause, that a session's prompt was computed again which should have been found in its slot. It reads
// who held which slot, and decides nothing.

import type { Timings } from "../session/record.ts";
import type { Session } from "../session/session.ts";
import type { SlotHistory } from "./history.ts";

/** Below this share of what should be there, the slot was cleared or taken; above it, the end of the prompt was written otherwise. */
const clearedShareMax = 0.5;

const causes = {
  unified: (slot: number) =>
    `work on another slot seems to have cleared slot ${slot}: the server's cache is unified; start it with -np 3 --cache-ram 0`,
  stranger: (slot: number) =>
    `something else seems to have used slot ${slot}, or the server was started anew; let nothing but Boxmaker use this server's slots`,
  thinking: () => "the model's template seems to leave its thinking out when it goes back",
  template: () =>
    "the model's template writes a message back otherwise than the model wrote it; bx doctor looks at it",
} as const;

export class PrefixWatch {
  readonly #history: SlotHistory;
  readonly #report: (event: Readonly<Record<string, unknown>>) => void;
  readonly #told = new Set<keyof typeof causes>();

  constructor(history: SlotHistory, report: (event: Readonly<Record<string, unknown>>) => void) {
    this.#history = history;
    this.#report = report;
  }

  /** After a request of `session`, which still holds `slot`. `lostN`: tokens of its own prefix that were computed again. */
  look(session: Session, slot: number, { cacheN, lostN }: Pick<Timings, "cacheN"> & { lostN: number }): void {
    // Structured history may have its last message written anew; raw history loses nothing.
    const allowed = session.history === "raw" ? 0 : session.lastPredictedN;
    if (lostN <= allowed) return;
    const spans = this.#history.spans();
    const [previous] = spans.filter((span) => span.slot === slot && span.session !== undefined).slice(-2, -1);
    // Sessions of ours that share a slot push each other out of it, which is what one slot for all of them means.
    if (previous === undefined || previous.session !== session.id) return;
    const since = previous.end ?? "";
    const cause = cacheN > clearedShareMax * session.contextTokens
      ? session.lastThought ? "thinking" : "template"
      : spans.some((span) => span.slot !== slot && (span.end === null || span.end >= since))
      ? "unified"
      : "stranger";
    if (this.#told.has(cause)) return;
    this.#told.add(cause);
    const text = `${lostN} of ${session.contextTokens} tokens were computed again: ${causes[cause](slot)}`;
    this.#report({ event: "prefix-lost", session: session.id, lostN, cause, text });
  }
}
