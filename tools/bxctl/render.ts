// How anything is shown to a person. What a model, a peer or a file wrote is made safe for a terminal here and nowhere else: no
// escape sequence, no text that hides or reorders other text. What is shown is never parsed back.

/** A line of a transcript or a record, in UTF-16 code units; a body to be approved is never cut. */
export const shownLineCharactersMax = 2_000;

// Controls (C0 but tab and newline, DEL, C1), what reorders or hides text (bidi marks, zero-width and invisible characters, line and
// paragraph separators, tag characters), and halves of surrogate pairs. Joiners stay: emoji and many scripts need them.
export const unsafeCharacters =
  // deno-lint-ignore no-control-regex -- these are exactly what must not reach a terminal
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{1bca0}-\u{1bca3}\u{e0000}-\u{e0fff}\p{Cs}]/gu;

/** The text with every unsafe character written out as `⟨U+001B⟩`. Tabs and newlines stay. */
export function visible(text: string): string {
  return text.replace(unsafeCharacters, (character) => `⟨U+${hex(character)}⟩`);
}

/** One line: newlines and tabs written out too, and cut at `charactersMax` with a note of how much is missing. */
export function visibleLine(text: string, charactersMax: number = shownLineCharactersMax): string {
  return visible(cutLine(text, charactersMax)).replaceAll("\n", "⏎").replaceAll("\t", " ");
}

/** Several lines, each safe and none longer than `charactersMax`. */
export function visibleLines(text: string, charactersMax: number = shownLineCharactersMax): string {
  return text.split("\n").map((line) => visible(cutLine(line, charactersMax))).join("\n");
}

/** For text that arrives in pieces: half a character waits for its other half. */
export function visibleStream(): { push(text: string): string; end(): string } {
  let held = "";
  return {
    push(text) {
      const whole = held + text;
      held = /[\ud800-\udbff]$/.exec(whole)?.[0] ?? "";
      return visible(held === "" ? whole : whole.slice(0, -1));
    },
    end: () => visible(held),
  };
}

/** JSON of the same value in printable characters only: what is unsafe on a terminal is escaped, which a JSON reader undoes. */
export function safeJson(value: unknown): string {
  return JSON.stringify(value).replace(
    unsafeCharacters,
    (character) =>
      Array.from({ length: character.length }, (_, index) => `\\u${unitHex(character.charCodeAt(index))}`)
        .join(""),
  );
}

/** Columns as wide as their widest cell, two spaces apart; cells are made safe, and the last one is not padded. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const cells = [head, ...rows].map((row) => row.map((cell) => visibleLine(cell)));
  const widths = head.map((_, column) => Math.max(...cells.map((row) => width(row[column] ?? ""))));
  return cells.map((row) =>
    row.map((cell, column) =>
      column === row.length - 1 ? cell : cell + " ".repeat(widths[column] - width(cell))
    ).join("  ").trimEnd()
  ).join("\n");
}

export type Style = "dim" | "bold" | "red" | "green" | "yellow" | "cyan";

const styleCodes: Readonly<Record<Style, string>> = {
  dim: "2",
  bold: "1",
  red: "31",
  green: "32",
  yellow: "33",
  cyan: "36",
};

export type Painter = (style: Style, text: string) => string;

/** Paints where `colour` is on; the text must be safe already. */
export function painter(colour: boolean): Painter {
  return (style, text) => colour ? `\x1b[${styleCodes[style]}m${text}\x1b[0m` : text;
}

/** `1 token`, `2 tokens`. */
export function count(amount: number, noun: string): string {
  return `${amount} ${noun}${amount === 1 ? "" : "s"}`;
}

/** `40 ms`, `2.4 s`, `12 s`, `3 min`. */
export function duration(elapsedMs: number): string {
  if (elapsedMs < 1_000) return `${Math.round(elapsedMs)} ms`;
  if (elapsedMs < 10_000) return `${(elapsedMs / 1000).toFixed(1)} s`;
  return elapsedMs < 120_000 ? `${Math.round(elapsedMs / 1000)} s` : `${Math.round(elapsedMs / 60_000)} min`;
}

function cutLine(line: string, charactersMax: number): string {
  if (line.length <= charactersMax) return line;
  const at = /[\ud800-\udbff]/.test(line[charactersMax - 1]) ? charactersMax - 1 : charactersMax;
  return `${line.slice(0, at)} … +${line.length - at} characters`;
}

function hex(character: string): string {
  return (character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
}

function unitHex(unit: number): string {
  return unit.toString(16).padStart(4, "0");
}

/** Columns on a terminal, where wide characters take two; close enough for tables and for cutting lines. */
export function width(text: string): number {
  let columns = 0;
  for (const character of text) {
    columns += /\p{Mn}|\p{Me}|\u200d/u.test(character) ? 0 : wide.test(character) ? 2 : 1;
  }
  return columns;
}

const wide =
  /[\u1100-\u115f\u2e80-\ua4cf\ua960-\ua97c\uac00-\ud7a3\uf900-\ufaff\ufe10-\ufe19\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{16fe0}-\u{18aff}\u{1b000}-\u{1b2ff}\u{20000}-\u{3fffd}]|\p{Extended_Pictographic}/u;
