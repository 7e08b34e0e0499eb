// The audit log as people and programs read it: forwards as a stream, or the newest page of what they ask for.
// Reads in bounded memory, changes nothing, and judges nothing: a line it cannot read is passed on as such (verify.ts names faults).

import { type Envelope, readEnvelope } from "./line.ts";
import { listSegments, readLines } from "./segments.ts";

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
  /** Only records before this seq. */
  readonly before?: number;
  readonly recordsMax: number;
  /** Of the lines as they stand in the log; one record is always given. */
  readonly bytesMax: number;
}

export interface AuditPage {
  /** Newest last. */
  readonly records: Envelope[];
  /** `before` for the next page back; absent where the log begins. */
  readonly before?: number;
}

/** The newest records that match. Segments are walked from the newest back, until the page is full. */
export async function readAuditPage(dir: string, options: AuditPageOptions): Promise<AuditPage> {
  const { matches, before = Infinity, recordsMax, bytesMax } = options;
  let page: Held[] = [];
  let full = false;
  for (const segment of (await listSegments(dir)).reverse()) {
    const found: Held[] = [];
    let room = { records: recordsMax - page.length, bytes: bytesMax - bytesOf(page) };
    for await (const lines of readLines(segment.path)) {
      for (const line of lines) {
        const record = line.tooLong || line.torn ? undefined : readEnvelope(line.bytes);
        if (record === undefined || record.seq >= before || !matches(record)) continue;
        found.push({ record, bytes: line.bytes.length });
        room = { records: room.records - 1, bytes: room.bytes - line.bytes.length };
        // The oldest make room for the newest, so that no more than a page is ever held.
        while ((room.records < 0 || room.bytes < 0) && page.length + found.length > 1) {
          full = true;
          const dropped = found.shift();
          if (dropped === undefined) break;
          room = { records: room.records + 1, bytes: room.bytes + dropped.bytes };
        }
      }
    }
    page = [...found, ...page];
    if (full || page.length >= recordsMax) break;
  }
  const first = page.at(0)?.record.seq;
  return {
    records: page.map(({ record }) => record),
    ...(first !== undefined && first > 1 ? { before: first } : {}),
  };
}

interface Held {
  readonly record: Envelope;
  readonly bytes: number;
}

function bytesOf(page: readonly Held[]): number {
  return page.reduce((sum, { bytes }) => sum + bytes, 0);
}
