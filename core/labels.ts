// Labels: how sensitive a text is and whether someone other than the owner may have written it.
// A label only rises. Nothing here can lower one, and no caller may build a lower one by hand.

import { z } from "zod";

export const sensitivityClasses = ["public", "private", "secret"] as const;
/** Sensitivity, lowest first. */
export type SensitivityClass = typeof sensitivityClasses[number];

export interface Label {
  readonly class: SensitivityClass;
  /** Text under this label may have been written by someone who is not the owner. */
  readonly untrusted: boolean;
}

export const classSchema = z.enum(sensitivityClasses);
export const labelSchema: z.ZodType<Label> = z.strictObject({ class: classSchema, untrusted: z.boolean() });

/** The bottom: what a fixed text of Boxmaker's own carries. */
export const publicTrusted: Label = Object.freeze({ class: "public", untrusted: false });

export function classAtMost(a: SensitivityClass, b: SensitivityClass): boolean {
  return sensitivityClasses.indexOf(a) <= sensitivityClasses.indexOf(b);
}

/** The least label that covers both: the higher class, untrusted if either is. */
export function joinLabels(a: Label, b: Label): Label {
  return { class: classAtMost(a.class, b.class) ? b.class : a.class, untrusted: a.untrusted || b.untrusted };
}

/** Whether `a` may stand where `b` is allowed: class not above, and untrusted only where `b` is. */
export function labelAtMost(a: Label, b: Label): boolean {
  return classAtMost(a.class, b.class) && (!a.untrusted || b.untrusted);
}

export function labelsEqual(a: Label, b: Label): boolean {
  return a.class === b.class && a.untrusted === b.untrusted;
}

/** For people: `private` or `private, untrusted`. */
export function describeLabel(label: Label): string {
  return label.untrusted ? `${label.class}, untrusted` : label.class;
}
