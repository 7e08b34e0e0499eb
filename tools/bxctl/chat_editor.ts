// The line that a person writes at the prompt: node:readline edits it and keeps the history, and this adds what it has not: several
// lines in one message, pastes, and text that is always safe to show. History lives as long as the chat: bx may write no file.

import { createInterface, type Interface, type Key } from "node:readline";
import { Readable, Writable } from "node:stream";
import { count, visible } from "./render.ts";

export interface EditorOptions {
  write(text: string): void;
  columns(): number;
  /** Newest first. */
  history: readonly string[];
  /** What Tab completes, when it begins the line. */
  words: readonly string[];
}

export const historyEntriesMax = 200;
/** A paste beyond either is shown as its size: a line taller than the screen cannot be redrawn. */
const pasteLinesShownMax = 8;
const pasteCharactersShownMax = 1_000;
/** Pastes whose text is remembered for the history. */
const pastesMax = 100;

/** Reads one message after the other; keys count only while one is read. */
export class LineEditor {
  readonly #readline: Interface;
  readonly #output: Writable;
  #reading: PromiseWithResolvers<string | undefined> | undefined;
  readonly #pastes = new Map<string, string>();
  #pasteNumber = 0;
  #closed = false;

  constructor({ write, columns, history, words }: EditorOptions) {
    this.#output = new Writable({
      decodeStrings: false,
      write(text, _encoding, done) {
        write(String(text));
        done();
      },
    });
    Object.defineProperty(this.#output, "columns", { get: columns });
    this.#readline = createInterface({
      // Keys are told with write(); nothing is ever read from here.
      input: new Readable({ read() {} }),
      output: this.#output,
      terminal: true,
      history: [...history],
      historySize: historyEntriesMax,
      removeHistoryDuplicates: true,
      completer: (line: string) => [
        line.startsWith("/") ? words.filter((word) => word.startsWith(line)) : [],
        line,
      ],
    });
    this.#readline.on("line", (line) => this.#settle(this.#whole(line)));
  }

  get reading(): boolean {
    return this.#reading !== undefined;
  }

  /** The next message; `undefined` when the person leaves with Ctrl-D, or left. */
  read(prompt: string): Promise<string | undefined> {
    if (this.#closed) return Promise.resolve(undefined);
    this.#reading = Promise.withResolvers();
    this.#readline.setPrompt(prompt);
    this.#readline.prompt();
    return this.#reading.promise;
  }

  key(text: string | undefined, key: Key): void {
    if (this.#reading === undefined) return;
    const { line, cursor } = this.#readline;
    const isEnter = key.name === "return" || key.name === "enter";
    if (isEnter && key.meta) return this.#insert("\n");
    if (isEnter && cursor === line.length && line.endsWith("\\")) {
      return this.#replace(line.slice(0, -1), "\n");
    }
    // Suspending this process alone would leave its launcher, and so the shell, waiting.
    if (key.ctrl && key.name === "z") return;
    if (key.ctrl && key.name === "d" && line === "") return this.#settle(undefined);
    if (text !== undefined && visible(text) !== text && key.name === undefined) {
      return this.#insert(visible(text));
    }
    this.#readline.write(text ?? null, key);
  }

  /** Shown as it is sent: what a terminal would obey or hide is written out. */
  paste(text: string): void {
    if (this.#reading === undefined) return;
    const safe = visible(text.replaceAll(/\r\n?/g, "\n")).replace(/\n$/, "");
    const lines = safe.split("\n").length;
    if (lines <= pasteLinesShownMax && safe.length <= pasteCharactersShownMax) return this.#insert(safe);
    const name = `[paste ${++this.#pasteNumber}: ${count(lines, "line")}, ${
      count(safe.length, "character")
    }]`;
    this.#pastes.set(name, safe);
    const oldest = this.#pastes.keys().next().value;
    if (this.#pastes.size > pastesMax && oldest !== undefined) this.#pastes.delete(oldest);
    this.#insert(name);
  }

  /** Empties the line; false where it was empty. */
  clear(): boolean {
    if (this.#readline.line === "") return false;
    this.#output.write("\n");
    this.#replace("", "");
    return true;
  }

  /** The prompt and the line again, below what was written meanwhile. */
  redraw(): void {
    if (this.#reading !== undefined) this.#readline.prompt(true);
  }

  resize(): void {
    if (this.#reading !== undefined) this.#output.emit("resize");
  }

  close(): void {
    this.#closed = true;
    this.#settle(undefined);
    this.#readline.close();
  }

  #settle(message: string | undefined): void {
    const reading = this.#reading;
    this.#reading = undefined;
    reading?.resolve(message);
  }

  #whole(line: string): string {
    let whole = line;
    for (const [name, text] of this.#pastes) whole = whole.replaceAll(name, () => text);
    return whole;
  }

  #insert(text: string): void {
    const { line, cursor } = this.#readline;
    this.#replace(line.slice(0, cursor), text, line.slice(cursor));
  }

  // readline's own way to insert would end the message at a newline.
  #replace(before: string, text: string, after = ""): void {
    Object.assign(this.#readline, { line: before + text + after, cursor: before.length + text.length });
    this.#readline.prompt(true);
  }
}
