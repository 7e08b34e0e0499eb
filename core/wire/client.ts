// The calling side of a Unix socket: one HTTP/1.1 request on a connection of its own, written and read by hand. It needs the socket's own
// grant and no made-up host, and costs a third of what node:http does, in time as in code that is loaded (docs/performance.md).
// Replies are bounded and parsed as JSON; what they mean is the caller's to say. Nothing is ever sent twice.

import { parseJson } from "../json.ts";
import { responseBodyBytesMax } from "../limits.ts";
import { eventStreamParser, type ServerSentEvent } from "./event_stream.ts";
import { readReply, type Reply } from "./reply.ts";

export interface SocketRequest {
  readonly method: "GET" | "POST";
  readonly path: string;
  /** Sent as JSON. */
  readonly body?: unknown;
  /** Aborting closes the connection, which the peer notices. */
  readonly signal?: AbortSignal;
  /** Longest silence on the connection; none by default. */
  readonly timeoutMs?: number;
}

/** Nobody serves the socket, or the connection broke before the whole answer was there. */
export class PeerUnreachable extends Error {
  override readonly name = "PeerUnreachable";
  constructor(readonly socketPath: string, detail: string, readonly sent: boolean) {
    super(`no answer on ${socketPath}: ${detail}`);
  }
}

/** One request, one JSON answer. Throws PeerUnreachable, or the signal's reason. */
export async function requestJson(
  socketPath: string,
  request: SocketRequest,
): Promise<{ httpStatus: number; body: unknown }> {
  const exchange = await open(socketPath, request);
  try {
    const { status, body } = await exchange.reply();
    const parsed = parseJson(await bodyText(body));
    if (parsed === undefined) throw new Error("the answer is not JSON");
    return { httpStatus: status, body: parsed.value };
  } catch (error) {
    throw exchange.failure(error);
  } finally {
    exchange.close();
  }
}

/** An answer that is not 200: the peer refused the request before it streamed anything. */
export class PeerRefused extends Error {
  override readonly name = "PeerRefused";
  constructor(readonly httpStatus: number, readonly code: string, text: string) {
    super(text);
  }
}

/** One request, a stream of server-sent events, each with its data parsed. Returning early closes the connection. */
export async function* requestEvents(
  socketPath: string,
  request: SocketRequest,
): AsyncGenerator<{ event: string; data: unknown }> {
  const exchange = await open(socketPath, request);
  try {
    const { status, body } = await exchange.reply();
    if (status !== 200) throw refusal(status, await bodyText(body));
    const parser = eventStreamParser();
    for await (const chunk of body) {
      for (const event of parser.push(chunk)) {
        const data = decode(event);
        if (data !== undefined) yield data;
      }
    }
  } catch (error) {
    throw exchange.failure(error);
  } finally {
    exchange.close();
  }
}

function decode(event: ServerSentEvent): { event: string; data: unknown } | undefined {
  const parsed = parseJson(event.data);
  return parsed === undefined ? undefined : { event: event.event, data: parsed.value };
}

function refusal(status: number, text: string): PeerRefused {
  const body = parseJson(text)?.value as { code?: string; text?: string } | undefined;
  return new PeerRefused(status, body?.code ?? "error", body?.text ?? `HTTP ${status}`);
}

async function bodyText(body: AsyncIterable<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  let length = 0;
  for await (const chunk of body) {
    length += chunk.length;
    if (length > responseBodyBytesMax) throw new Error(`the answer is over ${responseBodyBytesMax} bytes`);
    text += decoder.decode(chunk, { stream: true });
  }
  return text + decoder.decode();
}

/** One connection with its request under way. Whoever opened it closes it. */
interface Exchange {
  reply(): Promise<Reply>;
  /** What an error on it is to the caller. */
  failure(error: unknown): unknown;
  close(): void;
}

async function open(socketPath: string, request: SocketRequest): Promise<Exchange> {
  const { signal, timeoutMs } = request;
  signal?.throwIfAborted();
  const bytes = requestBytes(request);
  const connection = await Deno.connect({ transport: "unix", path: socketPath }).catch((error) => {
    throw new PeerUnreachable(socketPath, describe(error), false);
  });
  let closed = false;
  let silent = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const close = () => {
    if (closed) return;
    closed = true;
    clearTimeout(timer);
    signal?.removeEventListener("abort", close);
    connection.close();
  };
  const onSilence = () => {
    silent = true;
    close();
  };
  const listen = () => {
    clearTimeout(timer);
    if (timeoutMs !== undefined && !closed) timer = setTimeout(onSilence, timeoutMs);
  };
  signal?.addEventListener("abort", close, { once: true });
  if (signal?.aborted) close();
  listen();
  // A peer may answer before it has read everything; what it does not read any more is nobody's loss, and its answer says why.
  writeAll(connection, bytes).catch(() => {});
  const read = async (buffer: Uint8Array) => {
    const count = await connection.read(buffer);
    listen();
    return count;
  };
  return {
    reply: () => readReply(read),
    failure(error) {
      if (signal?.aborted) return signal.reason;
      if (error instanceof PeerRefused) return error;
      return new PeerUnreachable(socketPath, silent ? `silent for ${timeoutMs} ms` : describe(error), true);
    },
    close,
  };
}

const encoder = new TextEncoder();

function requestBytes({ method, path, body }: SocketRequest): Uint8Array {
  // One line is one request: a space or a line's end in it would be another.
  if (!/^[\x21-\x7e]+$/.test(path)) {
    throw new TypeError("a request's path holds a character that must be escaped");
  }
  // A Host header is owed by HTTP/1.1; this one names nothing that could be resolved.
  const head = `${method} ${path} HTTP/1.1\r\nhost: boxmaker\r\nconnection: close\r\n`;
  if (body === undefined) return encoder.encode(`${head}\r\n`);
  const text = JSON.stringify(body);
  const length = encoder.encode(text).length;
  return encoder.encode(`${head}content-type: application/json\r\ncontent-length: ${length}\r\n\r\n${text}`);
}

async function writeAll(connection: Deno.Conn, bytes: Uint8Array): Promise<void> {
  for (let at = 0; at < bytes.length;) at += await connection.write(bytes.subarray(at));
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
