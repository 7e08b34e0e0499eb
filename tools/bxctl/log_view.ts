// How one record of a session's log is shown: a head line with time and kind, then its texts, indented. Keys it does not know are
// shown as JSON, so that a record of a newer kind is never hidden.

import { type Painter, safeJson, visibleLine, visibleLines } from "./render.ts";

/** Texts of a record, shown as paragraphs in this order. */
const textKeys = ["thinking", "content", "text", "task", "result", "answer", "summary"];
/** Shown on the head line, or said by it already. */
const headKeys = ["time", "kind", "v", "seq"];

export function recordLines(record: Readonly<Record<string, unknown>>, paint: Painter): string[] {
  const kind = typeof record.kind === "string" ? visibleLine(record.kind, 64) : "record";
  const time = typeof record.time === "string" ? visibleLine(record.time, 40) : "-";
  const details = Object.entries(record)
    .filter(([key, value]) => !headKeys.includes(key) && value !== undefined && !isParagraph(key, value))
    .map(([key, value]) => `${visibleLine(key, 64)}=${detail(value)}`);
  const head = [paint("dim", time), paint("bold", kind), ...details].join(" ");
  const paragraphs = textKeys.filter((key) => isParagraph(key, record[key])).map((key) => {
    const text = indent(visibleLines(String(record[key])));
    return key === "thinking" ? paint("dim", text) : text;
  });
  return [head, ...paragraphs];
}

function isParagraph(key: string, value: unknown): boolean {
  return textKeys.includes(key) && typeof value === "string" && value !== "";
}

function detail(value: unknown): string {
  if (typeof value === "string" && /^[\w.:/-]{1,80}$/.test(value)) return value;
  return visibleLine(safeJson(value), 400);
}

function indent(text: string): string {
  return text.split("\n").map((line) => `    ${line}`).join("\n");
}
