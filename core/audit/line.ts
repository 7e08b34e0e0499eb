// One line of the audit log against the place it stands in: readable, in sequence, linked to the line before, its body unchanged.
// Used by whoever walks a log: verification, brokerd's start, the readers. It decides nothing about the log as a whole.

import { sha256 } from "./chain.ts";
import { type AuditKind, auditKinds, auditVersion } from "./record.ts";
import type { Line } from "./segments.ts";

/** Where a line stands: the seq it must have and the hash it must name. `prev` is unknown at the beginning of a pruned log. */
export interface Place {
  readonly seq: number;
  readonly prev: string | undefined;
}

/** What every line carries; the kind's own keys stay unread here. */
export interface Envelope {
  readonly seq: number;
  readonly prev: string;
  readonly time: string;
  readonly kind: AuditKind;
  readonly [key: string]: unknown;
}

export type CheckedLine =
  | { readonly ok: true; readonly envelope: Envelope; readonly hash: string }
  | {
    readonly ok: false;
    readonly reason: string;
    /** It stands in its place, but in a format that only a later Boxmaker reads; `hash` links the next line. */
    readonly newer?: { readonly version: number; readonly hash: string };
  };

/** Hashes stored bytes; never re-serialises. */
export function checkLine(line: Line, place: Place): CheckedLine {
  const bad = (reason: string): CheckedLine => ({ ok: false, reason });
  if (line.tooLong) return bad("the line is longer than any record");
  const envelope = readEnvelope(line.bytes);
  if (envelope === undefined) return newerLine(line, place) ?? bad("the line is not a readable record");
  if (envelope.seq !== place.seq) return bad(`the line has seq ${envelope.seq}`);
  if (place.prev !== undefined && envelope.prev !== place.prev) {
    return bad("its prev is not the hash of the line before");
  }
  const { body, bodySha256 } = envelope;
  if (body !== undefined && (typeof body !== "string" || sha256(body) !== bodySha256)) {
    return bad("its bodySha256 is not the hash of its body");
  }
  return { ok: true, envelope, hash: sha256(line.bytes) };
}

// What every format has: version, place and link. More is not asked of a line that this version does not know.
function newerLine({ bytes }: Line, place: Place): CheckedLine | undefined {
  const value = parsed(bytes);
  if (value === undefined || typeof value.v !== "number" || value.v <= auditVersion) return undefined;
  if (value.seq !== place.seq || (place.prev !== undefined && value.prev !== place.prev)) return undefined;
  return {
    ok: false,
    reason:
      `format version ${value.v} is newer than this Boxmaker reads (${auditVersion}); use the newer one`,
    newer: { version: value.v, hash: sha256(bytes) },
  };
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const kinds: ReadonlySet<unknown> = new Set(auditKinds);
const hashForm = /^[0-9a-f]{64}$/;

export function readEnvelope(bytes: Uint8Array): Envelope | undefined {
  const value = parsed(bytes);
  if (value === undefined) return undefined;
  const { v, seq, prev, time, kind } = value as Partial<Envelope>;
  const fits = v === auditVersion && Number.isSafeInteger(seq) && typeof prev === "string" &&
    hashForm.test(prev) && typeof time === "string" && kinds.has(kind);
  return fits ? value as unknown as Envelope : undefined;
}

function parsed(bytes: Uint8Array): { readonly [key: string]: unknown } | undefined {
  try {
    const value = JSON.parse(decoder.decode(bytes));
    return typeof value === "object" && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}
