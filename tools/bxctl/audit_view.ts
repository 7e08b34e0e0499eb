// How one audit record is shown to the owner: a head line that says what was decided about what, then the texts it holds. Keys it
// does not know are shown as JSON, so that nothing recorded is hidden.

import { describeLabel, labelSchema } from "../../core/labels.ts";
import { type Painter, safeJson, type Style, visibleLine, visibleLines } from "./render.ts";

/** On the head line, in this order. */
const headKeys = ["session", "tool", "verdict", "state", "code", "cause", "outcome", "status"];
/** Below it, whole lines each. */
const textKeys = ["question", "body", "answer", "reason"];
/** Said by the head line, or of use to verification only. */
const quietKeys = ["v", "seq", "prev", "time", "kind", "label", "call"];
const detailCharactersMax = 400;

export function auditLines(record: Readonly<Record<string, unknown>>, paint: Painter): string[] {
  const head = [
    paint("dim", `${word(record.seq)} ${word(record.time)}`),
    paint("bold", word(record.kind)),
    ...headKeys.filter((key) => record[key] !== undefined).map((key) =>
      paintVerdict(word(record[key]), paint)
    ),
    ...(record.call === undefined ? [] : [`call ${word(record.call)}`]),
    ...labelOf(record.label),
  ].join("  ");
  const shown = [...quietKeys, ...headKeys, ...textKeys];
  const details = Object.entries(record).filter(([key]) => !shown.includes(key))
    .map(([key, value]) => `${visibleLine(key, 64)}=${visibleLine(plain(value), detailCharactersMax)}`);
  const texts = textKeys.filter((key) => record[key] !== undefined).map((key) =>
    `    ${key.padEnd(8)}  ${visibleLines(plain(record[key])).replaceAll("\n", `\n${" ".repeat(14)}`)}`
  );
  return [head, ...(details.length === 0 ? [] : [`    ${paint("dim", details.join(" "))}`]), ...texts];
}

const verdictStyles: Readonly<Record<string, Style>> = {
  allow: "green",
  approved: "green",
  answered: "green",
  deny: "red",
  denied: "red",
};

function paintVerdict(text: string, paint: Painter): string {
  const style = verdictStyles[text];
  return style === undefined ? text : paint(style, text);
}

function labelOf(value: unknown): string[] {
  const label = labelSchema.safeParse(value);
  return label.success ? [`[${describeLabel(label.data)}]`] : [];
}

function word(value: unknown): string {
  return visibleLine(plain(value), 80);
}

function plain(value: unknown): string {
  return typeof value === "string" ? value : safeJson(value ?? null);
}
