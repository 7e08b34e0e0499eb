// Lines of a file from its end, in bounded memory: what a reader of the newest records needs of a log that is never read whole.
// It knows bytes; what a line means is the caller's.

import { Buffer } from "node:buffer";

const readBytes = 1_048_576;

/**
 * The lines of a file from its end to its beginning, each with its newline, newest first, as many at a time as one read brought. A torn end
 * and lines over `lineBytesMax` are passed over.
 */
export async function* readLinesBackwards(path: string, lineBytesMax: number): AsyncGenerator<Buffer[]> {
  using file = await Deno.open(path, { read: true });
  // The end of a line whose beginning is not read yet; undefined while we stand in a line that is passed over.
  let rest: Uint8Array | undefined;
  for (let end = (await file.stat()).size; end > 0;) {
    const from = Math.max(0, end - readBytes);
    let block = Buffer.concat([await readFrom(file, from, end - from), rest ?? new Uint8Array()]);
    if (rest === undefined) block = block.subarray(0, block.lastIndexOf(0x0a) + 1);
    const lines: Buffer[] = [];
    let lineEnd = block.length;
    for (let at = lineEnd - 2; at >= -1 && lineEnd > 0; at = lineEnd - 2) {
      const newline = at < 0 ? -1 : block.lastIndexOf(0x0a, at);
      if (newline === -1 && from > 0) break;
      const line = block.subarray(newline + 1, lineEnd);
      if (line.length <= lineBytesMax) lines.push(line);
      lineEnd = newline + 1;
    }
    if (lines.length > 0) yield lines;
    if (lineEnd > 0) rest = lineEnd > lineBytesMax ? undefined : block.subarray(0, lineEnd);
    end = from;
  }
}

/** `length` bytes from `offset` on, or as many as there are. */
export async function readFrom(file: Deno.FsFile, offset: number, length: number): Promise<Uint8Array> {
  await file.seek(offset, Deno.SeekMode.Start);
  const bytes = new Uint8Array(length);
  let at = 0;
  while (at < length) {
    const count = await file.read(bytes.subarray(at));
    if (count === null) break;
    at += count;
  }
  return bytes.subarray(0, at);
}

const lineStartBytes = 48;
const decoder = new TextDecoder();

/** What a line of a log says its seq is, without parsing it: every line that Boxmaker writes begins with `v` and `seq`. */
export function seqOfLine(line: Uint8Array): number | undefined {
  const match = /^\{"v":\d+,"seq":(\d{1,16}),/.exec(decoder.decode(line.subarray(0, lineStartBytes)));
  return match === null ? undefined : Number(match[1]);
}
