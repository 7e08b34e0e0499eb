// Lines of a child's output, one after another, for whoever waits for the next.

const lineCharactersMax = 65_536;

/** The lines of a stream as they end; what is longer than a line may be is cut. */
export async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  let pending = "";
  for await (const text of stream.pipeThrough(new TextDecoderStream())) {
    const lines = (pending + text).split("\n");
    pending = lines.pop()!.slice(0, lineCharactersMax);
    yield* lines;
  }
}
