// How one record of a session's log is shown: a head line with time, kind and what matters of it, then its tool calls and texts,
// indented. Keys it does not know are shown as JSON, so that a record of a newer kind is never hidden; --json shows everything.

import { describeLabel, labelSchema } from "../../core/labels.ts";
import { isJsonObject } from "../../core/json.ts";
import { count, duration, type Painter, safeJson, visibleLine, visibleLines } from "./render.ts";

type LogRecord = Readonly<Record<string, unknown>>;

/** Said by the head line already, or of no use to a reader. */
const quietKeys = ["v", "seq", "time", "kind"];
/** Texts, shown as paragraphs in this order. */
const textKeys = ["thinking", "content", "text", "task", "detail"];
/** Long texts that are the same in every session: their length is enough here. */
const lengthKeys = ["system", "tools"];
const detailCharactersMax = 400;

export function recordLines(record: LogRecord, paint: Painter): string[] {
  const shown = new Set(quietKeys);
  const parts: string[] = [paint("dim", word(record.time)), paint("bold", word(record.kind))];
  for (const { keys, show } of summaries) {
    if (keys.some((key) => record[key] === undefined)) continue;
    const text = show(record);
    if (text === undefined) continue;
    if (text !== "") parts.push(text);
    keys.forEach((key) => shown.add(key));
  }
  const paragraphs: string[] = [];
  for (const key of textKeys) {
    const text = record[key];
    if (typeof text !== "string") continue;
    shown.add(key);
    if (text !== "") paragraphs.push(key === "thinking" ? paint("dim", indent(text)) : indent(text));
  }
  if (Array.isArray(record.calls)) {
    shown.add("calls");
    paragraphs.push(...record.calls.map((call) => `    ${paint("cyan", callLine(call))}`));
  }
  const rest = Object.entries(record).filter(([key, value]) => !shown.has(key) && value !== undefined);
  return [
    [...parts, ...rest.map(([key, value]) => `${visibleLine(key, 64)}=${detail(value)}`)].join("  "),
    ...paragraphs,
  ];
}

/** What the head line says of keys that it knows, in this order: `undefined` leaves them to be shown as they are, "" says nothing. */
const summaries: readonly { keys: readonly string[]; show(record: LogRecord): string | undefined }[] = [
  { keys: ["turn"], show: ({ turn }) => `turn ${word(turn)}` },
  { keys: ["call"], show: ({ call }) => `[${word(call)}]` },
  { keys: ["tool"], show: ({ tool }) => word(tool) },
  { keys: ["child"], show: ({ child }) => `→ ${word(child)}` },
  { keys: ["status"], show: ({ status }) => word(status) },
  { keys: ["code"], show: ({ code }) => word(code) },
  { keys: ["reason"], show: ({ reason, status }) => reason === status ? "" : word(reason) },
  { keys: ["label"], show: ({ label }) => describe(label) },
  { keys: ["slot"], show: ({ slot }) => `slot ${word(slot)}` },
  { keys: ["timings"], show: ({ timings }) => describeTimings(timings) },
  // Tokens of the earlier prompt that the server computed again: 0 is how it should be.
  { keys: ["lostN"], show: ({ lostN }) => lostN === 0 ? "" : `lost ${word(lostN)}` },
  timeSpent("queuedMs", (time) => `queued ${time}`),
  timeSpent("firstTokenMs", (time) => `first token ${time}`),
  timeSpent("elapsedMs", (time) => `in all ${time}`),
  ...lengthKeys.map((key) => ({
    keys: [key],
    show: ({ [key]: text }: LogRecord) =>
      typeof text === "string" ? `${key} ${count(text.length, "character")}` : undefined,
  })),
];

function timeSpent(key: string, show: (time: string) => string) {
  return {
    keys: [key],
    show: ({ [key]: elapsedMs }: LogRecord) =>
      typeof elapsedMs === "number" ? elapsedMs < 1 ? "" : show(duration(elapsedMs)) : undefined,
  };
}

function describe(value: unknown): string | undefined {
  const label = labelSchema.safeParse(value);
  return label.success ? `(${describeLabel(label.data)})` : undefined;
}

function describeTimings(value: unknown): string | undefined {
  if (!isJsonObject(value)) return undefined;
  const { cacheN, promptN, predictedN } = value;
  if (typeof cacheN !== "number" || typeof promptN !== "number" || typeof predictedN !== "number") {
    return undefined;
  }
  return `cached ${cacheN} of ${count(cacheN + promptN, "token")}, wrote ${predictedN}`;
}

function callLine(value: unknown): string {
  if (!isJsonObject(value) || typeof value.arguments !== "string") return detail(value);
  return `[${word(value.call)}] ${word(value.name)} ${visibleLine(value.arguments)}`;
}

function word(value: unknown): string {
  return visibleLine(typeof value === "string" ? value : safeJson(value ?? null), 80);
}

function detail(value: unknown): string {
  if (typeof value === "string" && /^[\w.:/-]{1,80}$/.test(value)) return value;
  return visibleLine(safeJson(value ?? null), detailCharactersMax);
}

function indent(text: string): string {
  return visibleLines(text).split("\n").map((line) => `    ${line}`).join("\n");
}
