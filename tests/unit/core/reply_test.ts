// One HTTP/1.1 reply read from bytes, whole or cut anywhere, well formed or not.

import { assertEquals, assertRejects } from "@std/assert";
import { requestJson } from "../../../core/wire/client.ts";
import { readReply } from "../../../core/wire/reply.ts";

/** Hands out the bytes in pieces of a size, then the end. */
function pieces(bytes: Uint8Array, size: number) {
  let at = 0;
  return (buffer: Uint8Array): Promise<number | null> => {
    if (at >= bytes.length) return Promise.resolve(null);
    const part = bytes.subarray(at, at + Math.min(size, buffer.length));
    buffer.set(part);
    at += part.length;
    return Promise.resolve(part.length);
  };
}

async function read(text: string, size: number): Promise<{ status: number; body: string }> {
  const { status, body } = await readReply(pieces(new TextEncoder().encode(text), size));
  const decoder = new TextDecoder();
  let whole = "";
  for await (const part of body) whole += decoder.decode(part, { stream: true });
  return { status, body: whole };
}

const good = [
  ["a length", "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\né\r\nab", "é\r\nab"],
  ["a length of nothing", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ""],
  ["more than its length", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nabcd", "ab"],
  ["the connection's end", "HTTP/1.1 200\r\n\r\nto the end", "to the end"],
  [
    "chunks",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\né\n\r\nA;x=1\r\n0123456789\r\n0\r\n\r\n",
    "é\n0123456789",
  ],
  ["no chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\nx-trailer: 1\r\n\r\n", ""],
] as const;

for (const [by, text, body] of good) {
  Deno.test(`a reply that ends by ${by} is read, wherever the bytes are cut`, async () => {
    for (const size of [1, 2, 7, 10_000]) {
      assertEquals(await read(text, size), { status: 200, body }, `${size} at a time`);
    }
  });
}

const bad = [
  ["nothing at all", "", "ended before"],
  ["half a head", "HTTP/1.1 200 OK\r\ncontent-le", "ended before"],
  ["no HTTP", "SSH-2.0-OpenSSH_9.2\r\n\r\n", "no HTTP reply"],
  ["a status that is none", "HTTP/1.1 2000 OK\r\n\r\n", "no HTTP reply"],
  ["only a promise of a reply", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "no HTTP reply"],
  ["a length that is no number", "HTTP/1.1 200 OK\r\ncontent-length: 0x10\r\n\r\n", "no number"],
  [
    "two lengths",
    "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\nabc",
    "two lengths",
  ],
  ["another encoding", "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n", "of its own"],
  ["less than its length", "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc", "ended before"],
  ["a chunk without a size", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-3\r\nabc\r\n", "no size"],
  [
    "a chunk over its size",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
    "longer than",
  ],
  ["no last chunk", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n", "ended before"],
  ["a head without an end", `HTTP/1.1 200 OK\r\n${"x-long: y\r\n".repeat(2_000)}`, "head is over"],
  [
    "a chunk's size without an end",
    `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n${"0".repeat(1_000)}`,
    "no end",
  ],
] as const;

for (const [what, text, says] of bad) {
  Deno.test(`a reply with ${what} is an error that says so, wherever the bytes are cut`, async () => {
    for (const size of text.length > 1_000 ? [500, 100_000] : [1, 7, 100_000]) {
      await assertRejects(() => read(text, size), Error, says);
    }
  });
}

Deno.test("a request whose path holds a space or a line's end is never sent", async () => {
  for (const path of ["/v1/a b", "/v1/a\r\nx: y", "/v1/é"]) {
    await assertRejects(() => requestJson("/nowhere.sock", { method: "GET", path }), TypeError, "escaped");
  }
});
