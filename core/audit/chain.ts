// The hash chain: how a record becomes a line, and how a line names the one before it.
// A line is encoded once; those bytes are hashed, written and later verified. Nothing re-serialises a record.

import { createHash } from "node:crypto";
import { type AuditHead, type AuditRecord, auditVersion, type NewAuditRecord } from "./record.ts";

/** `prev` of the first record. */
export const firstPrev = "0".repeat(64);

export interface EncodedRecord {
  readonly record: AuditRecord;
  /** The line with its newline. */
  readonly bytes: Uint8Array;
  /** Of those bytes; the next record's `prev`. */
  readonly hash: string;
}

const encoder = new TextEncoder();

/** The record that follows `head` (undefined: the first), as a line. */
export function encodeRecord(
  fields: NewAuditRecord,
  { head, time }: { head: AuditHead | undefined; time: string },
): EncodedRecord {
  const record = {
    v: auditVersion,
    seq: (head?.seq ?? 0) + 1,
    prev: head?.hash ?? firstPrev,
    time,
    ...fields,
  } as AuditRecord;
  const bytes = encoder.encode(`${JSON.stringify(record)}\n`);
  return { record, bytes, hash: sha256(bytes) };
}

/** Lower-case hex. A text is hashed as its UTF-8. */
export function sha256(data: Uint8Array | string): string {
  return createHash("sha256").update(data).digest("hex");
}
