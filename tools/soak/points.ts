// Where the kills of a soak fall: drawn from a seed and from what an undisturbed run was seen to do, so that the same seed draws the same
// points. Draws; starts and kills nothing.

import { z } from "zod";
import { type RoleName, roleNames } from "../../core/protocol/common.ts";
import { holdSchema } from "./gate.ts";

/** Who is killed: loopd, brokerd, or both at one moment. */
export const modes = ["L", "B", "LB"] as const;
export type Mode = typeof modes[number];

const countSchema = z.int().min(1);
const msSchema = z.number().min(0);
const answersSchema = z.enum(["at once", "afterwards"]);

const triggerSchema = z.discriminatedUnion("kind", [
  /** At one change to the disk, held still there. */
  z.strictObject({ kind: z.literal("write"), role: z.enum(roleNames), hold: holdSchema }),
  /** So long after the owner's message was sent. */
  z.strictObject({ kind: z.literal("time"), afterMs: msSchema }),
  /** When the model server has read its n-th request, or after some deltas of its reply; the rest comes at once, or once loopd is back. */
  z.strictObject({
    kind: z.literal("model"),
    request: countSchema,
    deltas: z.int().min(0),
    answers: answersSchema,
  }),
  /** When the n-th question has arrived; its answer goes out at once, or only once what was killed is back. */
  z.strictObject({
    kind: z.literal("consult"),
    request: countSchema,
    answers: answersSchema,
  }),
]);
export type Trigger = z.infer<typeof triggerSchema>;

export const pointSchema = z.strictObject({
  run: countSchema,
  mode: z.enum(modes),
  trigger: triggerSchema,
  /** A second kill of the same roles, so long after the first of them has been started again. */
  againMs: msSchema.optional(),
  /**
   * While loopd is down, the last line of the session log that it wrote last is cut to this share, as a disk does that lost what it had
   * acknowledged: what rested on that line may have been done.
   */
  tear: z.number().min(0).max(1).optional(),
  history: z.enum(["auto", "structured"]),
});
export type Point = z.infer<typeof pointSchema>;

/** What an undisturbed run does. */
export interface Measure {
  /** Changes to the disk that each role makes until the first turn has ended. */
  readonly steps: Readonly<Record<RoleName, number>>;
  readonly modelRequests: number;
  readonly consults: number;
  readonly turnMs: number;
}

/** Of a hundred points; what is left falls at questions. */
const shares = { write: 60, time: 22, model: 9 };
/** Of the kills of loopd that fall at no write; a write is torn by the gate. */
const tornShare = 0.4;
/** Deltas of a reply after which it may be cut. */
const deltasMax = 4;

/** The points one after another. A role's changes are dealt like cards, so that all are met before one is met twice. */
export function* drawPoints(
  { seed, measure, modes, twice }: {
    seed: number;
    measure: Measure;
    modes: readonly Mode[];
    /** Every point with a second kill. */
    twice: boolean;
  },
): Generator<Point, never> {
  const random = randomNumbers(seed);
  const below = (end: number) => Math.floor(random() * end);
  const decks = new Map<string, number[]>();
  const deal = (mode: Mode, role: RoleName) => {
    const key = `${mode} ${role}`;
    const deck = decks.get(key) ?? [];
    if (deck.length === 0) {
      for (let step = 1; step <= measure.steps[role]; step++) deck.splice(below(deck.length + 1), 0, step);
    }
    decks.set(key, deck);
    return deck.pop()!;
  };
  const draw = (mode: Mode): Trigger => {
    const kind = below(100);
    if (kind < shares.write) {
      const role = mode === "L" ? "loopd" : mode === "B" ? "brokerd" : random() < 0.6 ? "loopd" : "brokerd";
      const phase = (["before", "torn", "after"] as const)[below(3)];
      return { kind: "write", role, hold: { step: deal(mode, role), phase, share: random() } };
    }
    if (kind < shares.write + shares.time) {
      return { kind: "time", afterMs: Math.round(random() * measure.turnMs * 10) / 10 };
    }
    const answers = random() < 0.5 ? "at once" : "afterwards";
    if (kind < shares.write + shares.time + shares.model) {
      return {
        kind: "model",
        request: 1 + below(measure.modelRequests),
        deltas: below(deltasMax + 1),
        answers,
      };
    }
    return { kind: "consult", request: 1 + below(measure.consults), answers };
  };
  for (let run = 1;; run++) {
    const mode = modes[(run - 1) % modes.length];
    const trigger = draw(mode);
    const againMs = twice ? Math.round(random() * (measure.turnMs + 400)) : undefined;
    const tears = mode !== "B" && trigger.kind !== "write" && random() < tornShare;
    const tear = tears ? random() : undefined;
    yield { run, mode, trigger, againMs, tear, history: random() < 0.5 ? "auto" : "structured" };
  }
}

export function describePoint({ run, mode, trigger, againMs, tear, history }: Point): string {
  const again = againMs === undefined ? "" : `, and again ${againMs} ms after the restart`;
  const torn = tear === undefined ? "" : `, its last line cut to ${tear.toFixed(2)} of it`;
  return `run ${run}, mode ${mode}, ${describeTrigger(trigger)}${torn}${again}, history ${history}`;
}

function describeTrigger(trigger: Trigger): string {
  switch (trigger.kind) {
    case "write": {
      const { step, phase, share } = trigger.hold;
      return `${phase} change ${step} of ${trigger.role}${
        phase === "torn" ? ` at ${share.toFixed(2)} of it` : ""
      }`;
    }
    case "time":
      return `${trigger.afterMs} ms after the message`;
    case "model":
      return `${trigger.deltas} deltas into model request ${trigger.request}, answered ${trigger.answers}`;
    case "consult":
      return `when question ${trigger.request} had arrived, answered ${trigger.answers}`;
  }
}

/** Numbers from 0 to below 1, the same for the same seed (mulberry32). */
export function randomNumbers(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 0x1_0000_0000;
  };
}
