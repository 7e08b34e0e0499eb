// What stands on a terminal during a turn: text that stays and scrolls away, and below it a few live lines that are drawn again as they
// change. A live line is cut at the terminal's width, so that its place is known; what stays wraps as it likes.

import type { Painter, Style } from "./render.ts";
import { width } from "./render.ts";
import type { Screen } from "./terminal.ts";

/** Part of a line, safe for a terminal already. */
export type Piece = string | readonly [Style, string];
export type Line = readonly Piece[];

const spinnerFrames = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
const spinnerMs = 120;
/** No more often than this because of what arrives; the spinner's clock brings the rest. */
const redrawMsMin = 40;
/** While live lines stand: no cursor, and a line that the terminal counts wider than we do is cut by it, never broken. */
const begin = "\x1b[?25l\x1b[?7l";
const end = "\x1b[?7h\x1b[?25h";

export interface ScreenOptions {
  readonly screen: Screen;
  readonly write: (text: string) => void;
  readonly paint: Painter;
}

export class LiveScreen {
  readonly #options: ScreenOptions;
  #lines: (() => Line[]) | undefined;
  /** What is drawn now, without colours, for knowing where the cursor is. */
  #drawn: string[] = [];
  #drawnText = "";
  #atLineStart = true;
  #drawnAtMs = -Infinity;
  #timer: ReturnType<typeof setInterval> | undefined;
  #frame = 0;

  constructor(options: ScreenOptions) {
    this.#options = options;
  }

  /** A mark for what still goes on, another one a few times a second. */
  get spinner(): string {
    return spinnerFrames[this.#frame];
  }

  /** Text that stays, above the live lines. It may end in the middle of a line while nothing is live. */
  write(text: string): void {
    if (text === "") return;
    const erased = this.#erase();
    this.#atLineStart = text.endsWith("\n");
    this.#options.write(erased + text);
    this.#draw();
  }

  /** One line that stays. */
  print(text: string): void {
    this.freshLine();
    this.write(`${text}\n`);
  }

  freshLine(): void {
    if (!this.#atLineStart) this.write("\n");
  }

  /** Draws these lines, and again whenever time passes, until `settle`. */
  live(lines: () => Line[]): void {
    this.freshLine();
    this.#lines = lines;
    this.#timer ??= setInterval(() => {
      this.#frame = (this.#frame + 1) % spinnerFrames.length;
      this.#redraw();
    }, spinnerMs);
    this.#redraw();
  }

  /** The lines changed. */
  refresh(): void {
    if (performance.now() - this.#drawnAtMs >= redrawMsMin) this.#redraw();
  }

  /** Takes the live lines away; these take their place and stay. */
  settle(lines: readonly Line[] = []): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#lines = undefined;
    const erased = this.#erase();
    const text = lines.map((line) => `${this.#paint(line)}\n`).join("");
    if (erased + text !== "") this.#options.write(erased + text);
  }

  /** The terminal broke the drawn lines anew, at its new width. */
  resize(): void {
    if (this.#drawn.length > 0) this.#options.write(this.#erase());
    this.#draw();
  }

  #redraw(): void {
    if (this.#lines === undefined) return;
    const { text, drawn } = this.#fit(this.#lines());
    if (text === this.#drawnText) return;
    this.#options.write(this.#erase() + this.#show(text, drawn));
  }

  #draw(): void {
    if (this.#lines === undefined) return;
    const { text, drawn } = this.#fit(this.#lines());
    this.#options.write(this.#show(text, drawn));
  }

  #show(text: string, drawn: string[]): string {
    this.#drawn = drawn;
    this.#drawnText = text;
    this.#drawnAtMs = performance.now();
    return drawn.length === 0 ? "" : begin + text;
  }

  // The cursor stands at the end of the last drawn line.
  #erase(): string {
    if (this.#drawn.length === 0) return "";
    const { columns } = this.#options.screen.size();
    const rows = this.#drawn.reduce((sum, line) => sum + Math.max(1, Math.ceil(width(line) / columns)), 0);
    this.#drawn = [];
    this.#drawnText = "";
    return `\r${rows > 1 ? `\x1b[${rows - 1}A` : ""}\x1b[0J${end}`;
  }

  /** No more lines than there are rows, and none wider than the terminal. */
  #fit(lines: readonly Line[]): { text: string; drawn: string[] } {
    const { columns, rows } = this.#options.screen.size();
    const linesMax = Math.max(1, rows - 1);
    const shown = lines.length <= linesMax
      ? lines
      : [lines[0], ...lines.slice(lines.length - linesMax + 1)].slice(0, linesMax);
    const cut = shown.map((line) => cutLine(line, columns - 1));
    return {
      text: cut.map((line) => this.#paint(line)).join("\n"),
      drawn: cut.map((line) => line.map(textOf).join("")),
    };
  }

  #paint(line: Line): string {
    return line.map((piece) => typeof piece === "string" ? piece : this.#options.paint(piece[0], piece[1]))
      .join("");
  }
}

function textOf(piece: Piece): string {
  return typeof piece === "string" ? piece : piece[1];
}

/** The line, ended with `…` where it takes more columns. */
export function cutLine(line: Line, columnsMax: number): Line {
  if (width(line.map(textOf).join("")) <= columnsMax) return line;
  const kept: Piece[] = [];
  let left = columnsMax - 1;
  for (const piece of line) {
    let text = "";
    for (const character of textOf(piece)) {
      const columns = width(character);
      if (columns > left) {
        kept.push(typeof piece === "string" ? `${text}…` : [piece[0], `${text}…`]);
        return kept;
      }
      left -= columns;
      text += character;
    }
    kept.push(piece);
  }
  return kept;
}

/** The last `linesMax` lines of a text, broken at `columns`. */
export function lastLines(text: string, columns: number, linesMax: number): string[] {
  const lines: string[] = [];
  for (const paragraph of text.replaceAll("\t", "    ").split("\n").slice(-linesMax)) {
    let line = "";
    let taken = 0;
    // Whole lines that can never be among the last: dropping others would shift what is shown as the text grows.
    const dropped = Math.max(0, Math.floor(paragraph.length / columns) - 2 * linesMax) * columns;
    for (const character of paragraph.slice(dropped)) {
      const own = width(character);
      if (taken + own > columns) {
        lines.push(line);
        [line, taken] = ["", 0];
      }
      line += character;
      taken += own;
    }
    lines.push(line);
  }
  return lines.slice(-linesMax);
}
