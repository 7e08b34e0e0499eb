// One HTTP/1.1 reply as bytes become it: the status, and the body by its length, in chunks, or to the connection's end. Heads and chunk lines
// are bounded; anything that is no such reply, or ends inside one, is an error. It opens and closes nothing.

export interface Reply {
  readonly status: number;
  /** To be walked once. Throws where the connection ends before the body does. */
  readonly body: AsyncIterable<Uint8Array>;
}

/** Fills the buffer as far as bytes are there; `null` at the end of the connection. */
export type Read = (buffer: Uint8Array) => Promise<number | null>;

const headBytesMax = 16_384;
const chunkLineBytesMax = 256;
const readBytes = 16_384;

const decoder = new TextDecoder();

export async function readReply(read: Read): Promise<Reply> {
  const source = new Source(read);
  const [statusLine, ...headerLines] = (await source.head()).split("\r\n");
  const status = Number(/^HTTP\/1\.[01] (\d{3})(?: |$)/.exec(statusLine)?.[1]);
  if (!(status >= 200)) throw new Error("the answer is no HTTP reply");
  let length: number | undefined;
  let chunked = false;
  for (const line of headerLines) {
    const [, name, value] = /^([^:]+):\s*(.*?)\s*$/.exec(line) ?? [];
    switch (name?.toLowerCase()) {
      case "content-length":
        if (!/^\d{1,15}$/.test(value)) throw new Error("the answer's content-length is no number");
        length = Number(value);
        break;
      case "transfer-encoding":
        if (value.toLowerCase() !== "chunked") {
          throw new Error("the answer has a transfer encoding of its own");
        }
        chunked = true;
        break;
    }
  }
  if (chunked && length !== undefined) throw new Error("the answer has two lengths");
  const body = chunked ? source.chunks() : length === undefined ? source.rest() : source.exactly(length);
  return { status, body };
}

class Source {
  #read: Read;
  #buffer = new Uint8Array(readBytes);
  #pending = new Uint8Array();

  constructor(read: Read) {
    this.#read = read;
  }

  /** Up to the empty line, without it. */
  async head(): Promise<string> {
    for (;;) {
      const end = endOfHead(this.#pending);
      if (end !== -1) return decoder.decode(this.#take(end + 4)).slice(0, -4);
      if (this.#pending.length > headBytesMax) {
        throw new Error(`the answer's head is over ${headBytesMax} bytes`);
      }
      await this.#more();
    }
  }

  async *exactly(length: number): AsyncGenerator<Uint8Array> {
    for (let left = length; left > 0;) {
      if (this.#pending.length === 0) await this.#more();
      const part = this.#take(Math.min(left, this.#pending.length));
      left -= part.length;
      yield part;
    }
  }

  async *rest(): AsyncGenerator<Uint8Array> {
    for (;;) {
      if (this.#pending.length > 0) yield this.#take(this.#pending.length);
      if (!await this.#fill()) return;
    }
  }

  async *chunks(): AsyncGenerator<Uint8Array> {
    for (;;) {
      const size = /^([0-9a-f]{1,8})\s*(?:;|$)/i.exec(await this.#line())?.[1];
      if (size === undefined) throw new Error("the answer's chunks have no size");
      if (Number.parseInt(size, 16) === 0) break;
      yield* this.exactly(Number.parseInt(size, 16));
      if (await this.#line() !== "") throw new Error("a chunk of the answer is longer than it says");
    }
    // Trailers say nothing that is listened to, and end with the connection.
  }

  async #line(): Promise<string> {
    for (;;) {
      const end = this.#pending.indexOf(0x0a);
      if (end !== -1) return decoder.decode(this.#take(end + 1)).trimEnd();
      if (this.#pending.length > chunkLineBytesMax) {
        throw new Error("a chunk of the answer has no end to its size");
      }
      await this.#more();
    }
  }

  #take(length: number): Uint8Array {
    const taken = this.#pending.subarray(0, length);
    this.#pending = this.#pending.subarray(length);
    return taken;
  }

  async #more(): Promise<void> {
    if (!await this.#fill()) throw new Error("the connection ended before the answer did");
  }

  // Copied out of the buffer that is read into: what was handed out stays as it is.
  async #fill(): Promise<boolean> {
    const count = await this.#read(this.#buffer);
    if (count === null) return false;
    const got = this.#buffer.slice(0, count);
    if (this.#pending.length === 0) this.#pending = got;
    else {
      const whole = new Uint8Array(this.#pending.length + got.length);
      whole.set(this.#pending);
      whole.set(got, this.#pending.length);
      this.#pending = whole;
    }
    return true;
  }
}

function endOfHead(bytes: Uint8Array): number {
  for (let at = bytes.indexOf(0x0d); at !== -1; at = bytes.indexOf(0x0d, at + 1)) {
    if (bytes[at + 1] === 0x0a && bytes[at + 2] === 0x0d && bytes[at + 3] === 0x0a) return at;
  }
  return -1;
}
