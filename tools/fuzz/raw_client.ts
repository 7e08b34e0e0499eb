// One exchange over a Unix socket, byte for byte: what is sent is what was given, well formed or not. It judges nothing.

import { Buffer } from "node:buffer";

export interface Exchange {
  /** All that came back, one character a byte. */
  readonly text: string;
  /** The peer had not ended the connection when our patience ended. */
  readonly late: boolean;
}

const answerBytesMax = 64 * 1_048_576;

/** Sends and reads to the end of the connection. `halfClose`: nothing more will come from here. */
export async function exchange(
  path: string,
  bytes: Uint8Array,
  options: { timeoutMs: number; halfClose: boolean; until?: (text: string) => boolean },
): Promise<Exchange> {
  using connection = await Deno.connect({ transport: "unix", path });
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    connection.close();
  }, options.timeoutMs);
  let text = "";
  const sending = (async () => {
    for (let at = 0; at < bytes.length;) at += await connection.write(bytes.subarray(at));
    if (options.halfClose) await connection.closeWrite();
  })().catch(() => {});
  const buffer = new Uint8Array(65_536);
  try {
    while (text.length < answerBytesMax && !(options.until?.(text) ?? false)) {
      const count = await connection.read(buffer);
      if (count === null) break;
      text += Buffer.from(buffer.subarray(0, count)).toString("latin1");
    }
  } catch {
    // Reset by the peer, or closed by our timer: what came is what there is.
  }
  clearTimeout(timer);
  try {
    // Ends a write that the peer does not take any more.
    if (!late) connection.closeWrite().catch(() => {});
  } catch {
    // It is closed already.
  }
  if (!late && !options.halfClose) connection.close();
  await sending;
  return { text, late };
}

/** Status and body of the first answer in `text`; `undefined` where it is no HTTP answer. */
export function firstAnswer(text: string): { status: number; headers: string; body: string } | undefined {
  const end = text.indexOf("\r\n\r\n");
  const status = /^HTTP\/1\.[01] (\d{3}) /.exec(text)?.[1];
  if (end === -1 || status === undefined) return undefined;
  const headers = text.slice(0, end).toLowerCase();
  const length = /\r\ncontent-length: (\d+)/.exec(headers)?.[1];
  const rest = text.slice(end + 4);
  const body = length !== undefined
    ? rest.slice(0, Number(length))
    : headers.includes("\r\ntransfer-encoding: chunked")
    ? unchunked(rest)
    : rest;
  return { status: Number(status), headers, body: utf8(body) };
}

function unchunked(text: string): string {
  let content = "";
  for (let at = 0;;) {
    const end = text.indexOf("\r\n", at);
    const length = end === -1 ? 0 : Number.parseInt(text.slice(at, end), 16);
    if (!(length > 0)) return content;
    content += text.slice(end + 2, end + 2 + length);
    at = end + 2 + length + 2;
  }
}

function utf8(bytes: string): string {
  return Buffer.from(bytes, "latin1").toString("utf-8");
}
