// Lines of a file from its end, in bounded memory: what a reader of the newest records needs of a log that is never read whole.
// It knows bytes; what a line means is the caller's.

import { Buffer } from "node:buffer";

/** The newest lines are asked for most, and a few of them mostly: reads begin small and double. */
const readBytesFirst = 65_536;
const readBytesMax = 1_048_576;

export interface LineBatch {
  /** Each with its newline, newest first; never empty. Of a stretch that holds none of what is looked for, its oldest alone. */
  readonly lines: readonly Buffer[];
  /** What was read for it. */
  readonly bytes: number;
}

/**
 * The lines of a file from its end to its beginning, as many at a time as one read brought; a batch is valid until the next is asked for. A torn
 * end and lines over `lineBytesMax` are passed over, and so are stretches in which one of `holding` does not occur: looking for bytes costs a
 * hundredth of looking at lines.
 */
export async function* readLinesBackwards(
  path: string,
  lineBytesMax: number,
  holding: readonly string[] = [],
): AsyncGenerator<LineBatch> {
  using file = await Deno.open(path, { read: true });
  // Searched as single bytes, which is many times faster than Buffer's own search.
  const needles = holding.map((text) => Buffer.from(text).toString("latin1"));
  let buffer = Buffer.allocUnsafe(readBytesFirst);
  // At the buffer's beginning: the end of a line that begins further back. Undefined while we stand in a line that is passed over.
  let restBytes: number | undefined;
  let readBytes = readBytesFirst;
  for (let end = (await file.stat()).size; end > 0; readBytes = Math.min(readBytes * 2, readBytesMax)) {
    const from = Math.max(0, end - readBytes);
    const size = end - from;
    const rest = restBytes ?? 0;
    if (size + rest > buffer.length) {
      buffer = Buffer.concat([buffer], Math.max(size + rest, buffer.length * 2));
    }
    buffer.copyWithin(size, 0, rest);
    // Fewer bytes than the file had: it was cut meanwhile.
    if (await readInto(file, from, buffer.subarray(0, size)) < size) return;
    let block = buffer.subarray(0, size + rest);
    if (restBytes === undefined) block = block.subarray(0, block.lastIndexOf(0x0a) + 1);
    // What stands before the first newline belongs to a line that begins further back, unless this is the beginning.
    const first = from === 0 ? 0 : block.indexOf(0x0a) + 1;
    const whole = block.subarray(first);
    const lines = holdsAll(whole, needles) ? linesOf(whole) : [oldestOf(whole)];
    const fitting = lines.filter(({ length }) => length > 0 && length <= lineBytesMax);
    if (fitting.length > 0) yield { lines: fitting, bytes: size };
    if (first > 0) restBytes = first > lineBytesMax ? undefined : first;
    end = from;
  }
}

/** `needles` as latin1 of their UTF-8. */
export function holdsAll(stretch: Buffer, needles: readonly string[]): boolean {
  if (needles.length === 0) return true;
  const text = stretch.toString("latin1");
  return needles.every((needle) => text.includes(needle));
}

/** Newest first, of a stretch that begins with a line and ends with a newline. */
function linesOf(stretch: Buffer): Buffer[] {
  const lines: Buffer[] = [];
  for (let end = stretch.length; end > 0;) {
    const from = end === 1 ? 0 : stretch.lastIndexOf(0x0a, end - 2) + 1;
    lines.push(stretch.subarray(from, end));
    end = from;
  }
  return lines;
}

function oldestOf(stretch: Buffer): Buffer {
  return stretch.subarray(0, stretch.indexOf(0x0a) + 1);
}

/** `length` bytes from `offset` on, or as many as there are. */
export async function readFrom(file: Deno.FsFile, offset: number, length: number): Promise<Uint8Array> {
  const bytes = new Uint8Array(length);
  return bytes.subarray(0, await readInto(file, offset, bytes));
}

async function readInto(file: Deno.FsFile, offset: number, bytes: Uint8Array): Promise<number> {
  await file.seek(offset, Deno.SeekMode.Start);
  let at = 0;
  while (at < bytes.length) {
    const count = await file.read(bytes.subarray(at));
    if (count === null) break;
    at += count;
  }
  return at;
}

const lineStartBytes = 48;
const decoder = new TextDecoder();

/** What a line of a log says its seq is, without parsing it: every line that Boxmaker writes begins with `v` and `seq`. */
export function seqOfLine(line: Uint8Array): number | undefined {
  const match = /^\{"v":\d+,"seq":(\d{1,16}),/.exec(decoder.decode(line.subarray(0, lineStartBytes)));
  return match === null ? undefined : Number(match[1]);
}
