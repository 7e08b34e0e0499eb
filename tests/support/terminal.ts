// A real pseudo-terminal for one program, and what a person would see on it. The terminal is made by `script` of util-linux, which every
// Debian has; its output goes through a small emulator of the few sequences that our programs write, and any other is a fault.

interface Row {
  readonly cells: string[];
  /** Goes on with the row above: the terminal broke the line, not the program. */
  readonly wrapped: boolean;
}

/** What stands on the screen: it wraps, breaks lines anew at a new width, and knows the cursor. Rows that scroll away are kept. */
export class ScreenModel {
  #rows: Row[] = [{ cells: [], wrapped: false }];
  #row = 0;
  #column = 0;
  #columns: number;
  /** Everything that was written, sequences included. */
  raw = "";
  #rest = "";

  constructor(columns: number) {
    this.#columns = columns;
  }

  /** The rows from the first, each without trailing space. */
  get text(): string {
    return this.#rows.map(({ cells }) => Array.from(cells, (cell) => cell ?? " ").join("").trimEnd()).join(
      "\n",
    );
  }

  resize(columns: number): void {
    const rows: Row[] = [];
    let cursor = [0, 0];
    for (let at = 0; at < this.#rows.length;) {
      const cells: string[] = [];
      let cursorAt: number | undefined;
      do {
        if (at === this.#row) cursorAt = cells.length + this.#column;
        cells.push(...Array.from(this.#rows[at].cells, (cell) => cell ?? " "));
        at++;
      } while (this.#rows[at]?.wrapped);
      if (cursorAt !== undefined) cursor = [rows.length + Math.floor(cursorAt / columns), cursorAt % columns];
      for (let from = 0; from === 0 || from < cells.length; from += columns) {
        rows.push({ cells: cells.slice(from, from + columns), wrapped: from > 0 });
      }
    }
    this.#columns = columns;
    this.#rows = rows;
    [this.#row, this.#column] = cursor;
    this.#rows[this.#row] ??= { cells: [], wrapped: true };
  }

  write(text: string): void {
    this.raw += text;
    this.#rest += text;
    while (this.#rest !== "") {
      const taken = this.#take(this.#rest);
      if (taken === 0) return;
      this.#rest = this.#rest.slice(taken);
    }
  }

  /** How many characters were understood; 0 for a sequence that is not whole yet. */
  #take(text: string): number {
    // deno-lint-ignore no-control-regex -- escape sequences are what this reads
    const sequence = /^\x1b\[(\??)([0-9;]*)([A-Za-z~])/.exec(text);
    if (sequence !== null) {
      this.#obey(sequence[1] + sequence[3], sequence[2]);
      return sequence[0].length;
    }
    // deno-lint-ignore no-control-regex
    if (/^\x1b(\[[?0-9;]*)?$/.test(text)) return 0;
    const character = String.fromCodePoint(text.codePointAt(0) ?? 0);
    if (character === "\r") this.#column = 0;
    else if (character === "\n") this.#down();
    else if (character < " " || character === "\x7f") {
      throw new Error(
        `the program wrote U+${character.charCodeAt(0).toString(16)} before ${
          JSON.stringify(text.slice(0, 40))
        }`,
      );
    } else this.#put(character);
    return character.length;
  }

  #obey(name: string, parameters: string): void {
    const amount = Math.max(1, Number(parameters.split(";")[0] || 1));
    if (name === "A") this.#row = Math.max(0, this.#row - amount);
    else if (name === "B") { for (let at = 0; at < amount; at++) this.#down(); }
    else if (name === "C") this.#column = Math.min(this.#columns - 1, this.#column + amount);
    else if (name === "D") this.#column = Math.max(0, this.#column - amount);
    else if (name === "G") this.#column = amount - 1;
    else if (name === "J" && (parameters === "" || parameters === "0")) {
      const { cells } = this.#rows[this.#row];
      cells.length = Math.min(cells.length, this.#column);
      this.#rows.length = this.#row + 1;
    } else if (!["m", "?h", "?l"].includes(name)) {
      throw new Error(`the program wrote the sequence ESC [ ${parameters} ${name}`);
    }
  }

  #down(wrapped = false): void {
    this.#row++;
    this.#rows[this.#row] ??= { cells: [], wrapped };
  }

  #put(character: string): void {
    const wide = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uff00-\uff60]|\p{Extended_Pictographic}/u.test(
      character,
    );
    if (this.#column + (wide ? 2 : 1) > this.#columns) {
      this.#column = 0;
      this.#down(true);
    }
    const { cells } = this.#rows[this.#row];
    cells[this.#column++] = character;
    if (wide) cells[this.#column++] = "";
  }
}

export interface TerminalOptions {
  /** After the name of the Deno binary. */
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly columns: number;
  readonly rows: number;
}

/** A wait for output that has come to nothing by then is a failure with the screen in its message. */
const outputMsMax = 90_000;

export class TestTerminal implements AsyncDisposable {
  readonly screen: ScreenModel;
  readonly #child: Deno.ChildProcess;
  readonly #writer: WritableStreamDefaultWriter<Uint8Array>;
  readonly #reading: Promise<void>;
  #device = "";
  #wake = Promise.withResolvers<void>();
  #ended = false;
  /** Where the next wait begins to look. */
  #seen = 0;

  private constructor(options: TerminalOptions) {
    this.screen = new ScreenModel(options.columns);
    const words = [Deno.execPath(), ...options.args].map(quoted).join(" ");
    this.#child = new Deno.Command("script", {
      args: [
        "--quiet",
        "--return",
        "--command",
        `stty cols ${options.columns} rows ${options.rows}; tty; ${words}; code=$?; stty -a; exit $code`,
        "/dev/null",
      ],
      clearEnv: true,
      env: { PATH: Deno.env.get("PATH") ?? "", SHELL: "/bin/sh", ...options.env },
      stdin: "piped",
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    this.#writer = this.#child.stdin.getWriter();
    this.#reading = this.#read();
  }

  static async start(options: TerminalOptions): Promise<TestTerminal> {
    const terminal = new TestTerminal(options);
    const { screen } = terminal;
    await terminal.#until("the terminal's name", () => /(\/dev\/pts\/\d+)\r?\n/.test(screen.raw));
    terminal.#device = /(\/dev\/pts\/\d+)/.exec(screen.raw)?.[1] ?? "";
    return terminal;
  }

  /** Types this; `\r` is Enter. */
  async type(text: string): Promise<void> {
    await this.#writer.write(new TextEncoder().encode(text));
  }

  async paste(text: string): Promise<void> {
    await this.type(`\x1b[200~${text}\x1b[201~`);
  }

  /** Waits until the program wrote this, after what the last such wait found. */
  async wrote(text: string): Promise<void> {
    const find = () => this.screen.raw.indexOf(text, this.#seen);
    await this.#until(JSON.stringify(text), () => find() !== -1);
    this.#seen = find() + text.length;
  }

  /** Waits until the screen holds for this. */
  async shows(what: string | RegExp): Promise<void> {
    await this.#until(String(what), () => {
      const { text } = this.screen;
      return typeof what === "string" ? text.includes(what) : what.test(text);
    });
  }

  /** Sets the size as dragging a window's edge does: the program is told by a signal. */
  async resize(columns: number, rows: number): Promise<void> {
    const { success } = await new Deno.Command("stty", {
      args: ["-F", this.#device, "cols", `${columns}`, "rows", `${rows}`],
    }).output();
    if (!success) throw new Error(`stty could not set the size of ${this.#device}`);
    this.screen.resize(columns);
  }

  /** The exit code, after the end. */
  async ended(): Promise<number> {
    const { code } = await this.#child.status;
    await this.#reading;
    return code;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // The terminal hangs up, and who runs on it ends.
    if (!this.#ended) this.#child.kill("SIGTERM");
    await this.#child.status;
    await this.#reading;
    await this.#writer.close().catch(() => {});
  }

  async #read(): Promise<void> {
    for await (const text of this.#child.stdout.pipeThrough(new TextDecoderStream())) {
      this.screen.write(text);
      this.#wake.resolve();
    }
    this.#ended = true;
    this.#wake.resolve();
  }

  async #until(what: string, holds: () => boolean): Promise<void> {
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      this.#wake.resolve();
    }, outputMsMax);
    try {
      while (!holds()) {
        if (late || this.#ended) {
          throw new Error(
            `${
              late ? "waited in vain for" : "the program ended before"
            } ${what}; the screen:\n${this.screen.text}`,
          );
        }
        await this.#wake.promise;
        this.#wake = Promise.withResolvers();
      }
    } finally {
      clearTimeout(timer);
    }
  }
}

function quoted(word: string): string {
  return `'${word.replaceAll("'", `'\\''`)}'`;
}
