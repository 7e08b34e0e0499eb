// The audit log as people and programs read it: forwards as a stream, or the newest page of what they ask for.
// Reads in bounded memory, changes nothing, and judges nothing: a line it cannot read is passed on as such (verify.ts names faults).

import { Buffer } from "node:buffer";
import { auditLineBytesMax } from "../limits.ts";
import { holdsAll, readLinesBackwards, seqOfLine } from "../read_lines.ts";
import { type Envelope, readEnvelope } from "./line.ts";
import { listSegments, readAt, readLines, type Segment } from "./segments.ts";

export interface AuditFilter {
  readonly session?: string;
  readonly tool?: string;
  /** Earliest time, RFC 3339 in UTC as records carry it, or the beginning of one such as `2026-12-01`. */
  readonly since?: string;
}

export type ShownLine =
  | { readonly record: Envelope }
  | { readonly unreadable: { readonly segment: string; readonly offset: number } };

/** Every record that matches, oldest first. */
export async function* readAudit(dir: string, filter: AuditFilter = {}): AsyncGenerator<ShownLine> {
  for (const segment of await listSegments(dir)) {
    for await (const lines of readLines(segment.path)) {
      for (const line of lines) {
        const record = line.tooLong ? undefined : readEnvelope(line.bytes);
        if (record === undefined) yield { unreadable: { segment: segment.name, offset: line.offset } };
        else if (matchesFilter(record, filter)) yield { record };
      }
    }
  }
}

export function matchesFilter(record: Envelope, { session, tool, since }: AuditFilter): boolean {
  return (session === undefined || record.session === session) &&
    (tool === undefined || record.tool === tool) &&
    (since === undefined || record.time >= since);
}

export interface AuditPageOptions {
  readonly matches: (record: Envelope) => boolean;
  /** Texts that the line of every record that matches holds: a line without them is passed over without being parsed. */
  readonly holding?: readonly string[];
  /** Only records before this seq. */
  readonly before?: number;
  readonly recordsMax: number;
  /** Of the lines as they stand in the log; one record is always given. */
  readonly bytesMax: number;
  /** Of the log walked: past it the page ends, full or not, and `before` says where to go on. */
  readonly scanBytesMax?: number;
}

export interface AuditPage {
  /** Newest last. */
  readonly records: Envelope[];
  /** `before` for the next page back; absent where the log begins. */
  readonly before?: number;
}

/** The newest records that match. The log is walked from its end, and no further than the page needs. */
export async function readAuditPage(dir: string, options: AuditPageOptions): Promise<AuditPage> {
  const { matches, holding = [], before = Infinity, recordsMax, bytesMax, scanBytesMax = Infinity } = options;
  const needles = holding.map((text) => Buffer.from(text).toString("latin1"));
  /** Newest first. */
  const records: Envelope[] = [];
  let bytes = 0;
  let scannedBytes = 0;
  for (const segment of (await segmentsBefore(dir, before)).reverse()) {
    const batches = readLinesBackwards(segment.path, auditLineBytesMax, holding);
    for await (const { lines, bytes: scanned } of batches) {
      const oldest = seqOfLine(lines[lines.length - 1]);
      if (oldest !== undefined && oldest >= before) continue;
      for (const line of lines) {
        const seq = seqOfLine(line);
        if (seq === undefined || seq >= before) continue;
        if (!holdsAll(line, needles)) continue;
        const record = readEnvelope(line);
        if (record === undefined || !matches(record)) continue;
        bytes += line.length;
        if (bytes > bytesMax && records.length > 0) return pageOf(records, records[records.length - 1].seq);
        records.push(record);
        if (records.length === recordsMax) return pageOf(records, seq);
      }
      scannedBytes += scanned;
      if (scannedBytes >= scanBytesMax && oldest !== undefined) return pageOf(records, oldest);
    }
  }
  return pageOf(records, undefined);
}

function pageOf(newestFirst: Envelope[], before: number | undefined): AuditPage {
  return { records: newestFirst.reverse(), ...(before === undefined || before <= 1 ? {} : { before }) };
}

/** The segments that begin before the seq, oldest first; found by halving, since a long log has many. */
async function segmentsBefore(dir: string, before: number): Promise<Segment[]> {
  const segments = await listSegments(dir);
  if (before === Infinity) return segments;
  let low = 0;
  let high = segments.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (await firstSeqOf(segments[middle]) < before) low = middle + 1;
    else high = middle;
  }
  return segments.slice(0, low);
}

/** Infinity for a segment that holds no line of ours, as a new one may. */
async function firstSeqOf({ path }: Segment): Promise<number> {
  return seqOfLine(await readAt(path, 0, lineStartBytes)) ?? Infinity;
}

/** More than what stands before the seq and the seq itself take. */
const lineStartBytes = 48;
