// Where a command writes and reads: standard streams, whether a person sits there, Ctrl-C. Commands know no other input or output, so
// that a test can put its own in place. It renders nothing.

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
}

/** A line of standard input, in UTF-16 code units: longer is refused rather than gathered without end. */
const inputLineCharactersMax = 1_048_576;

/** `kind`: $TERM, where it may be read. */
export function systemTerminal(kind: string | undefined): Terminal {
  const outputIsTerminal = Deno.stdout.isTerminal();
  return {
    write: (text) => writeAll(Deno.stdout, text),
    writeError: (text) => writeAll(Deno.stderr, text),
    lines: () => readLines(Deno.stdin.readable),
    interactive: outputIsTerminal && Deno.stdin.isTerminal(),
    outputIsTerminal,
    // NO_COLOR as Deno found it at its start: that needs no grant for the environment.
    colour: outputIsTerminal && !Deno.noColor && kind !== "dumb",
    onInterrupt(handler) {
      Deno.addSignalListener("SIGINT", handler);
      return () => Deno.removeSignalListener("SIGINT", handler);
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
