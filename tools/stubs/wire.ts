// Raw HTTP/1.1 on loopback TCP, for stubs that must see exact bytes and the very moment a peer leaves.
// Owns: the listener, one `Connection` per peer with its unread bytes, the parsing of heads and body framing.
// Never re-serialises what arrived: a head and a body are kept as the bytes they were. Never decides what to
// answer. It stands on node:net because only there a server can send a true TCP reset.

import net from "node:net";

export const headBytesMax = 64 * 1024;
export const bodyBytesMax = 64 * 1024 * 1024;
const unreadBytesMax = 4 * 1024 * 1024;
const connectionsMax = 256;

/** A request head as it arrived. `text` maps each byte to the character of the same number. */
export interface RawHead {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly text: string;
  readonly method: string;
  readonly target: string;
  readonly headers: [name: string, value: string][];
}

/** A request body: `wire` is what followed the head, `content` the same without chunk framing. */
export interface RawBody {
  readonly wire: Uint8Array<ArrayBuffer>;
  readonly content: Uint8Array<ArrayBuffer>;
  readonly complete: boolean;
}

/** The peer sent something that is no HTTP/1.1 request within the bounds above. */
export class WireError extends Error {
  override name = "WireError";
  constructor(message: string, readonly bytes: Uint8Array<ArrayBuffer> = new Uint8Array()) {
    super(message);
  }
}

export interface Listener {
  readonly port: number;
  /** Connections accepted so far, those that sent nothing included. */
  readonly accepted: number;
  /** Destroys every connection, waits for its handler, and gives the port back. */
  close(): Promise<void>;
}

/** Listens; `serve` owns a connection until it returns, then the connection is ended. */
export async function listen(
  address: { hostname: string; port: number },
  serve: (connection: Connection) => Promise<void>,
): Promise<Listener> {
  const open = new Map<Connection, Promise<void>>();
  let accepted = 0;
  const server = net.createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    accepted++;
    const connection = new Connection(socket);
    if (open.size >= connectionsMax) return connection.destroy();
    const served = serve(connection).catch((fault) => {
      // A peer that breaks the protocol ends its own connection; anything else is a fault of the stub itself.
      if (!(fault instanceof WireError)) console.error("stub connection failed:", fault);
      connection.destroy();
    }).then(() => connection.end()).finally(() => open.delete(connection));
    open.set(connection, served);
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(address.port, address.hostname, () => resolve());
  });
  const { port } = server.address() as net.AddressInfo;
  return {
    port,
    get accepted() {
      return accepted;
    },
    async close() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      for (const connection of open.keys()) connection.destroy();
      await Promise.all(open.values());
      await closed;
    },
  };
}

/** One TCP peer. `gone` fires when the peer closes, half-closes or resets, or when we destroy the socket. */
export class Connection {
  #unread: Uint8Array<ArrayBuffer>[] = [];
  #unreadBytes = 0;
  #peerDone = false;
  #wake: () => void = () => {};
  readonly #socket: net.Socket;
  readonly #gone = new AbortController();
  readonly #closed = Promise.withResolvers<void>();

  constructor(socket: net.Socket) {
    this.#socket = socket;
    socket.on("data", (data: Uint8Array) => {
      this.#unread.push(new Uint8Array(data));
      this.#unreadBytes += data.byteLength;
      if (this.#unreadBytes > unreadBytesMax) socket.pause();
      this.#wake();
    });
    const leave = () => {
      this.#peerDone = true;
      this.#gone.abort();
      this.#wake();
    };
    socket.on("end", leave);
    socket.on("error", leave);
    socket.on("close", () => {
      leave();
      this.#closed.resolve();
    });
  }

  get gone(): AbortSignal {
    return this.#gone.signal;
  }

  /** The bytes that arrived and that nobody has read. */
  takeUnread(): Uint8Array<ArrayBuffer> {
    return this.#take(this.#unreadBytes);
  }

  /** The next request head, or undefined when the peer leaves (or `idleMs` passes) before its first byte. */
  async readHead(options: { idleMs?: number } = {}): Promise<RawHead | undefined> {
    if (this.#unreadBytes === 0 && !await this.#arrives(options.idleMs)) return undefined;
    for (;;) {
      const seen = concat(this.#unread);
      const end = indexOfHeadEnd(seen);
      if (end > 0) return parseHead(this.#take(end));
      if (seen.byteLength > headBytesMax) throw new WireError(`head over ${headBytesMax} bytes`, seen);
      if (!await this.#arrives()) throw new WireError("the peer left inside a head", this.takeUnread());
    }
  }

  /** The body that `head` announces; incomplete when the peer leaves inside it. */
  async readBody(head: RawHead): Promise<RawBody> {
    if (headerOf(head, "expect")?.toLowerCase() === "100-continue") {
      await this.write("HTTP/1.1 100 Continue\r\n\r\n");
    }
    if (headerOf(head, "transfer-encoding")?.toLowerCase() === "chunked") return await this.#readChunked();
    const length = contentLength(head);
    const wire = await this.readUpTo(length);
    return { wire, content: wire, complete: wire.byteLength === length };
  }

  /** Exactly `count` bytes, or fewer when the peer leaves first. */
  async readUpTo(count: number): Promise<Uint8Array<ArrayBuffer>> {
    const parts: Uint8Array<ArrayBuffer>[] = [];
    let missing = count;
    while (missing > 0) {
      if (this.#unreadBytes === 0 && !await this.#arrives()) break;
      const part = this.#take(Math.min(missing, this.#unreadBytes));
      missing -= part.byteLength;
      parts.push(part);
    }
    return concat(parts);
  }

  /** Writes and waits until the system took the bytes. Says false when the socket is no longer there. */
  write(data: string | Uint8Array): Promise<boolean> {
    if (this.#socket.destroyed || !this.#socket.writable) return Promise.resolve(false);
    return new Promise((resolve) => {
      this.#socket.once("close", gone);
      function gone() {
        resolve(false);
      }
      this.#socket.write(data, (fault) => {
        this.#socket.off("close", gone);
        resolve(!fault);
      });
    });
  }

  /** An orderly end: what was written is delivered first. Resolves when the peer has ended too. */
  async end(): Promise<void> {
    if (this.#peerDone) return this.destroy();
    this.#socket.end();
    this.#socket.resume();
    await this.#closed.promise;
  }

  /** Closes at once, without what HTTP would still owe. */
  destroy(): void {
    this.#socket.destroy();
  }

  /** Sends a TCP reset. */
  reset(): void {
    this.#socket.resetAndDestroy();
  }

  async #readChunked(): Promise<RawBody> {
    const wire: Uint8Array<ArrayBuffer>[] = [];
    const content: Uint8Array<ArrayBuffer>[] = [];
    let contentBytes = 0;
    let complete = false;
    while (!complete) {
      const line = await this.#readLine();
      wire.push(line);
      const size = parseInt(latin1(line), 16);
      if (!latin1(line).endsWith("\r\n")) break;
      if (!Number.isSafeInteger(size) || size < 0) throw new WireError("a chunk size is no number", line);
      contentBytes += size;
      if (contentBytes > bodyBytesMax) throw new WireError(`body over ${bodyBytesMax} bytes`);
      const data = await this.readUpTo(size + 2);
      wire.push(data);
      content.push(data.slice(0, size));
      if (data.byteLength < size + 2) break;
      complete = size === 0;
    }
    return { wire: concat(wire), content: concat(content), complete };
  }

  async #readLine(): Promise<Uint8Array<ArrayBuffer>> {
    for (;;) {
      const seen = concat(this.#unread);
      const end = seen.indexOf(10);
      if (end >= 0) return this.#take(end + 1);
      if (seen.byteLength > headBytesMax) throw new WireError(`line over ${headBytesMax} bytes`);
      if (!await this.#arrives()) return this.takeUnread();
    }
  }

  /** Waits for more bytes than there are now; false when the peer is done or `idleMs` has passed. */
  async #arrives(idleMs?: number): Promise<boolean> {
    const before = this.#unreadBytes;
    let idle = false;
    const timer = idleMs === undefined ? undefined : setTimeout(() => {
      idle = true;
      this.#wake();
    }, idleMs);
    while (this.#unreadBytes === before && !this.#peerDone && !idle) {
      await new Promise<void>((resolve) => this.#wake = resolve);
    }
    clearTimeout(timer);
    return this.#unreadBytes > before;
  }

  #take(count: number): Uint8Array<ArrayBuffer> {
    const parts: Uint8Array<ArrayBuffer>[] = [];
    let missing = count;
    while (missing > 0) {
      const first = this.#unread[0];
      if (first.byteLength <= missing) {
        parts.push(first);
        this.#unread.shift();
      } else {
        parts.push(first.slice(0, missing));
        this.#unread[0] = first.subarray(missing);
      }
      missing -= parts[parts.length - 1].byteLength;
    }
    this.#unreadBytes -= count;
    if (this.#socket.isPaused() && this.#unreadBytes <= unreadBytesMax) this.#socket.resume();
    return concat(parts);
  }
}

export function headerOf(head: RawHead, name: string): string | undefined {
  return head.headers.find(([each]) => each.toLowerCase() === name)?.[1];
}

export function utf8(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(text);
}

export function concat(parts: Uint8Array<ArrayBuffer>[]): Uint8Array<ArrayBuffer> {
  if (parts.length === 1) return parts[0];
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.byteLength, 0));
  let offset = 0;
  for (const part of parts) {
    whole.set(part, offset);
    offset += part.byteLength;
  }
  return whole;
}

/** Each byte as the character of the same number: unlike a text decoder, this loses nothing. */
export function latin1(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return text;
}

function indexOfHeadEnd(bytes: Uint8Array): number {
  for (let at = 3; at < bytes.byteLength; at++) {
    if (bytes[at] === 10 && bytes[at - 1] === 13 && bytes[at - 2] === 10 && bytes[at - 3] === 13) {
      return at + 1;
    }
  }
  return -1;
}

function parseHead(bytes: Uint8Array<ArrayBuffer>): RawHead {
  const text = latin1(bytes);
  const [requestLine, ...lines] = text.slice(0, -4).split("\r\n");
  const match = /^([!-~]+) ([!-~]+) HTTP\/1\.[01]$/.exec(requestLine);
  if (match === null) throw new WireError("the request line is not HTTP/1.1", bytes);
  const headers = lines.map((line): [string, string] => {
    const colon = line.indexOf(":");
    if (colon < 1) throw new WireError("a header line has no name", bytes);
    return [line.slice(0, colon), line.slice(colon + 1).trim()];
  });
  return { bytes, text, method: match[1], target: match[2], headers };
}

function contentLength(head: RawHead): number {
  const value = headerOf(head, "content-length") ?? "0";
  const length = /^\d{1,12}$/.test(value) ? Number(value) : NaN;
  if (!(length <= bodyBytesMax)) {
    throw new WireError(`content-length must be a number up to ${bodyBytesMax}`, head.bytes);
  }
  return length;
}
