// Where a command writes and reads: standard streams, whether a person sits there, Ctrl-C, and the keys of a terminal that can redraw.
// Commands know no other input or output, so that a test can put its own in place. It renders nothing.

export interface Terminal {
  /** Standard output. */
  write(text: string): void;
  /** Standard error. */
  writeError(text: string): void;
  /** Lines of standard input, without their ends. */
  lines(): AsyncIterable<string>;
  /** Standard output and input are both a terminal. */
  readonly interactive: boolean;
  /** Standard output is a terminal. */
  readonly outputIsTerminal: boolean;
  readonly colour: boolean;
  /** Calls `handler` on every Ctrl-C until the returned function is called; without a handler the process ends. */
  onInterrupt(handler: () => void): () => void;
  /** Where a person sits before a terminal on which the cursor can be moved. */
  readonly screen?: Screen;
}

/** A terminal that can be redrawn, key by key. */
export interface Screen {
  size(): Size;
  /** From now on no key is echoed and each goes to the handlers; until the returned function is called, which leaves all as it was. */
  open(handlers: ScreenHandlers): () => void;
}

export interface Size {
  readonly columns: number;
  readonly rows: number;
}

export interface ScreenHandlers {
  /** What was typed or pasted, as the terminal sends it: Ctrl-C is a character here. */
  onInput(text: string): void;
  onResize(): void;
  /** The terminal went away. */
  onEnd(): void;
}

/** A line of standard input, in UTF-16 code units: longer is refused rather than gathered without end. */
const inputLineCharactersMax = 1_048_576;

/** `plain`: no colour, and nothing is redrawn. */
export function systemTerminal({ plain }: { plain: boolean }): Terminal {
  const outputIsTerminal = Deno.stdout.isTerminal();
  const interactive = outputIsTerminal && Deno.stdin.isTerminal();
  return {
    write: (text) => writeAll(Deno.stdout, text),
    writeError: (text) => writeAll(Deno.stderr, text),
    lines: () => readLines(Deno.stdin.readable),
    interactive,
    outputIsTerminal,
    // NO_COLOR as Deno found it at its start: that needs no grant for the environment.
    colour: outputIsTerminal && !Deno.noColor && !plain,
    onInterrupt(handler) {
      Deno.addSignalListener("SIGINT", handler);
      return () => Deno.removeSignalListener("SIGINT", handler);
    },
    ...(interactive && !plain ? { screen: systemScreen() } : {}),
  };
}

/** What a terminal without a size of its own is taken for. */
const sizeUnknown: Size = { columns: 80, rows: 24 };
/** Pasted text comes between marks, so that a newline in it sends nothing. */
const begin = "\x1b[?2004h";
/** Without the marks, with the cursor, and with lines that break: whatever stood when the end came. */
const end = "\x1b[?2004l\x1b[?7h\x1b[?25h";
const endings = { SIGTERM: 143, SIGHUP: 129 } as const;

function systemScreen(): Screen {
  return {
    size() {
      const { columns, rows } = Deno.consoleSize();
      return columns > 0 && rows > 0 ? { columns, rows } : sizeUnknown;
    },
    open({ onInput, onResize, onEnd }) {
      const restore = () => {
        Deno.stdin.setRaw(false);
        writeAll(Deno.stdout, end);
      };
      // A terminal that echoes nothing is of no use to the shell that comes after.
      const ends = Object.entries(endings).map(([signal, code]) => {
        const exit = () => {
          restore();
          Deno.exit(code);
        };
        Deno.addSignalListener(signal as keyof typeof endings, exit);
        return () => Deno.removeSignalListener(signal as keyof typeof endings, exit);
      });
      Deno.addSignalListener("SIGWINCH", onResize);
      Deno.stdin.setRaw(true);
      writeAll(Deno.stdout, begin);
      const decoder = new TextDecoder();
      const reader = Deno.stdin.readable.getReader();
      let open = true;
      const read = async () => {
        for (let next = await reader.read(); open && !next.done; next = await reader.read()) {
          onInput(decoder.decode(next.value, { stream: true }));
        }
        if (open) onEnd();
      };
      read().catch(() => open ? onEnd() : undefined);
      return () => {
        open = false;
        reader.cancel().catch(() => {});
        Deno.removeSignalListener("SIGWINCH", onResize);
        for (const remove of ends) remove();
        restore();
      };
    },
  };
}

/** Text up to each newline; what follows the last one is a line too. */
export async function* readLines(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of stream) {
    rest += decoder.decode(chunk, { stream: true });
    const lines = rest.split("\n");
    rest = lines.pop() ?? "";
    if (rest.length > inputLineCharactersMax) {
      throw new RangeError(`a line of input is over ${inputLineCharactersMax} characters`);
    }
    for (const line of lines) yield line.endsWith("\r") ? line.slice(0, -1) : line;
  }
  rest += decoder.decode();
  if (rest !== "") yield rest;
}

const encoder = new TextEncoder();

function writeAll(to: { writeSync(bytes: Uint8Array): number }, text: string): void {
  const bytes = encoder.encode(text);
  for (let at = 0; at < bytes.length;) at += to.writeSync(bytes.subarray(at));
}
