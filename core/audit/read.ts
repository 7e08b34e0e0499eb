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
  let page: { record: Envelope; bytes: number }[] = [];
  for (const segment of (await listSegments(dir)).reverse()) {
    const found: { record: Envelope; bytes: number }[] = [];
    const room = recordsMax - page.length;
    for await (const lines of readLines(segment.path)) {
      for (const line of lines) {
        const record = line.tooLong || line.torn ? undefined : readEnvelope(line.bytes);
        if (record === undefined || record.seq >= before || !matches(record)) continue;
        found.push({ record, bytes: line.bytes.length });
        // Cut now and then, so that a whole segment of matches is never held.
        if (found.length >= 2 * room) found.splice(0, found.length - room);
        trim(found, bytesMax);
      }
    }
    page = [...found.slice(-room), ...page];
    if (trim(page, bytesMax) || page.length >= recordsMax) break;
  }
  const first = page.at(0)?.record.seq;
  return {
    records: page.map(({ record }) => record),
    ...(first !== undefined && first > 1 ? { before: first } : {}),
  };
}

// Drops the oldest until the rest fits; whether it dropped any.
function trim(page: { bytes: number }[], bytesMax: number): boolean {
  let total = 0;
  for (let at = page.length - 1; at >= 0; at--) {
    total += page[at].bytes;
    if (total > bytesMax && at < page.length - 1) {
      page.splice(0, at + 1);
      return true;
    }
  }
  return false;
}
