// Where the first HTTP reply in a stream of bytes ends, so that a second one behind it is noticed. The bytes have been through a
// strict parser already: this finds the end of what that parser accepted and judges nothing else.

const lineFeed = 0x0a;

/** Offset just past the reply; `undefined` where it ends with the connection, or is not whole. */
export function replyEnd(bytes: Uint8Array): number | undefined {
  let at = 0;
  for (;;) {
    const head = readHead(bytes, at);
    if (head === undefined) return undefined;
    at = head.end;
    // Informational heads come before the one that counts.
    if (/^HTTP\/1\.[01] 1\d\d\b/i.test(head.lines[0])) continue;
    const header = (name: string) =>
      head.lines.slice(1).find((line) => line.toLowerCase().startsWith(`${name}:`))?.slice(name.length + 1)
        .trim();
    if (/\bchunked\b/i.test(header("transfer-encoding") ?? "")) return chunkedEnd(bytes, at);
    const length = header("content-length");
    if (length !== undefined) return at + Number(length);
    return /^HTTP\/1\.[01] 204\b/i.test(head.lines[0]) ? at : undefined;
  }
}

function readHead(bytes: Uint8Array, from: number): { lines: string[]; end: number } | undefined {
  const lines: string[] = [];
  for (let at = from;;) {
    const end = bytes.indexOf(lineFeed, at);
    if (end === -1) return undefined;
    const line = text(bytes.subarray(at, end));
    at = end + 1;
    if (line === "") return lines.length === 0 ? undefined : { lines, end: at };
    lines.push(line);
  }
}

function chunkedEnd(bytes: Uint8Array, from: number): number | undefined {
  for (let at = from;;) {
    const end = bytes.indexOf(lineFeed, at);
    if (end === -1) return undefined;
    const size = Number.parseInt(text(bytes.subarray(at, end)), 16);
    if (Number.isNaN(size)) return undefined;
    at = end + 1;
    if (size === 0) return trailersEnd(bytes, at);
    at += size + 2;
    if (at > bytes.length) return undefined;
  }
}

function trailersEnd(bytes: Uint8Array, from: number): number | undefined {
  for (let at = from;;) {
    const end = bytes.indexOf(lineFeed, at);
    if (end === -1) return undefined;
    if (text(bytes.subarray(at, end)) === "") return end + 1;
    at = end + 1;
  }
}

function text(line: Uint8Array): string {
  return new TextDecoder("latin1").decode(line).replace(/\r$/, "");
}
