// One line of a memory file, both ways. An entry that an agent wrote carries the label of its session in front of its text; any other line
// is the owner's own hand: private and trusted. The text comes last and on one line, so it can neither forge nor hide a label.

import { isSessionId, type SessionId } from "../../core/ids.ts";
import { type Label, type SensitivityClass } from "../../core/labels.ts";
import { capText, neutralise } from "../../core/text.ts";

export interface MemoryEntry {
  readonly text: string;
  readonly label: Label;
  /** Who wrote it; `undefined` for the owner. */
  readonly session: SessionId | undefined;
}

export const entryCharactersMax = 2_000;

// Bullets, indents, line ends and a byte order mark are what editors change when the owner saves the file: an entry must not lose its label,
// and so become the owner's own, to that.
const entryPattern =
  /^\s*(?:[-*+]\s*)?\[(public|private|secret)(, untrusted)?, ([a-z0-9-]+), \d{4}-\d\d-\d\d\] (.+)$/;
const ownersLabel: Label = { class: "private", untrusted: false };

/** The entry's line without its newline. */
export function encodeEntry(text: string, label: Label, session: SessionId, date: Date): string {
  const mark = `${label.class}${label.untrusted ? ", untrusted" : ""}, ${session}, ${
    date.toISOString().slice(0, 10)
  }`;
  return `- [${mark}] ${entryText(text)}`;
}

/** The text as an entry can hold it: one line, neutralised, capped. Empty when nothing readable is left. */
export function entryText(text: string): string {
  // Line and paragraph separators of every kind count as line ends somewhere; an entry has none.
  // deno-lint-ignore no-control-regex
  const oneLine = text.replace(/[\s\u0000-\u001f\u007f-\u009f\u2028\u2029]+/g, " ").trim();
  return capText(neutralise(oneLine), entryCharactersMax).replaceAll("\n", " ");
}

/** Blank lines and Markdown headings hold no entry. */
export function decodeEntry(line: string): MemoryEntry | undefined {
  const match = entryPattern.exec(line.trimEnd());
  if (match !== null && isSessionId(match[3])) {
    const label = { class: match[1] as SensitivityClass, untrusted: match[2] !== undefined };
    return { text: match[4], label, session: match[3] };
  }
  const text = line.replace(/^\s*[-*] /, "").trim();
  return text === "" || text.startsWith("#") ? undefined : { text, label: ownersLabel, session: undefined };
}

export function decodeEntries(file: string): MemoryEntry[] {
  return file.split("\n").map(decodeEntry).filter((entry) => entry !== undefined);
}
