// The format version of every kind of file that outlives a process, in one place: what a backup names, and what a reader refuses when it
// is newer. head.json has none (its two keys are pinned), the owner's TOML files have none (an unknown key is refused), and memory files
// are the owner's own text.

import type { Fault } from "./errors.ts";

export const formatVersions = {
  /** `sessions/<id>/log.jsonl`, key `v` of each record. */
  session: 1,
  /** `audit/audit-NNNNNN.jsonl`, key `v` of each record. */
  audit: 1,
  /** `audit/launches.jsonl`, key `v` of each line; a line without it is of version 1. */
  launches: 1,
  /** `permissions/*.counts.json`. */
  permissionCounts: 1,
  /** `manifest.json` of a backup. */
  backup: 1,
  /** `trace/trace-NNNNNN.jsonl`, the version of the instrumentation scope in each line. */
  trace: 1,
  /** `trace/exported.json`. */
  traceExport: 1,
} as const;

/** What is said of a file that a later Boxmaker wrote; `undefined` where this one can read it. */
export function newerFormatFault(file: string, found: unknown, read: number): Fault | undefined {
  if (typeof found !== "number" || found <= read) return undefined;
  return {
    file,
    text: `format version ${found} is newer than this Boxmaker reads (${read}); use the newer one`,
  };
}
