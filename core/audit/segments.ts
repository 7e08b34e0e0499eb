// The files of the audit log: which segments a folder holds, in what order, and their lines, read in bounded memory.
// It reads bytes and numbers files; what a line means is the caller's.

import { join } from "node:path";
import { auditLineBytesMax } from "../limits.ts";
import { type AuditHead, auditHeadFileSchema } from "./record.ts";
import { parseJson } from "../json.ts";
import { readFrom } from "../read_lines.ts";

export interface Segment {
  readonly name: string;
  readonly number: number;
  readonly path: string;
}

const segmentName = /^audit-(\d{6,})\.jsonl$/;
const headFileBytesMax = 4_096;
const readBytes = 1_048_576;

export function segmentAt(dir: string, number: number): Segment {
  const name = `audit-${String(number).padStart(6, "0")}.jsonl`;
  return { name, number, path: join(dir, name) };
}

/** Oldest first. */
export async function listSegments(dir: string): Promise<Segment[]> {
  const segments: Segment[] = [];
  for await (const entry of Deno.readDir(dir)) {
    const match = segmentName.exec(entry.name);
    if (match !== null && !entry.isDirectory) {
      segments.push({ name: entry.name, number: Number(match[1]), path: join(dir, entry.name) });
    }
  }
  return segments.sort((a, b) => a.number - b.number);
}

/** The head that `head.json` names; `"unreadable"` where the file is there and names none. */
export async function readHeadFile(dir: string): Promise<AuditHead | undefined | "unreadable"> {
  let file: Deno.FsFile;
  try {
    file = await Deno.open(join(dir, "head.json"), { read: true });
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
  using opened = file;
  const buffer = new Uint8Array(headFileBytesMax);
  const length = (await opened.read(buffer)) ?? 0;
  const parsed = parseJson(new TextDecoder().decode(buffer.subarray(0, length)));
  const head = auditHeadFileSchema.safeParse(parsed?.value);
  return head.success ? head.data : "unreadable";
}

export interface Line {
  /** Where it begins in its file. */
  readonly offset: number;
  /** With its newline, unless it is torn. Valid until the next batch is asked for. */
  readonly bytes: Uint8Array;
  /** The file ends inside it. */
  readonly torn: boolean;
  /** It is over `auditLineBytesMax`; `bytes` holds its beginning. */
  readonly tooLong: boolean;
}

/** The lines of one segment from byte `from` on, as many at a time as one read brought. A line too long ends the walk. */
export async function* readLines(path: string, from = 0): AsyncGenerator<Line[]> {
  using file = await Deno.open(path, { read: true });
  if (from > 0) await file.seek(from, Deno.SeekMode.Start);
  let buffer = new Uint8Array(readBytes);
  let held = 0;
  let offset = from;
  for (;;) {
    if (held === buffer.length) {
      const larger = new Uint8Array(buffer.length * 2);
      larger.set(buffer);
      buffer = larger;
    }
    const count = await file.read(buffer.subarray(held));
    if (count === null) break;
    const end = held + count;
    const filled = buffer.subarray(0, end);
    const lines: Line[] = [];
    let start = 0;
    for (let at = filled.indexOf(0x0a, held); at !== -1; at = filled.indexOf(0x0a, at + 1)) {
      const bytes = filled.subarray(start, at + 1);
      lines.push({ offset: offset + start, bytes, torn: false, tooLong: bytes.length > auditLineBytesMax });
      start = at + 1;
    }
    if (lines.length > 0) yield lines;
    if (lines.some((line) => line.tooLong)) return;
    buffer.copyWithin(0, start, end);
    held = end - start;
    offset += start;
    if (held > auditLineBytesMax) {
      yield [{ offset, bytes: buffer.subarray(0, held), torn: false, tooLong: true }];
      return;
    }
  }
  if (held > 0) yield [{ offset, bytes: buffer.subarray(0, held), torn: true, tooLong: false }];
}

/** The last whole line of a segment with its newline, or `undefined` where it holds none. */
export async function readLastLine(path: string): Promise<Uint8Array | undefined> {
  using file = await Deno.open(path, { read: true });
  const { size } = await file.stat();
  const from = Math.max(0, size - auditLineBytesMax - 1);
  const tail = await readFrom(file, from, size - from);
  const end = tail.lastIndexOf(0x0a);
  if (end === -1) return undefined;
  return tail.slice(tail.subarray(0, end).lastIndexOf(0x0a) + 1, end + 1);
}

/** The bytes of one line whose place is known. */
export async function readAt(path: string, offset: number, length: number): Promise<Uint8Array> {
  using file = await Deno.open(path, { read: true });
  return await readFrom(file, offset, length);
}
