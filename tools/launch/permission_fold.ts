// Keeps a long-lived role's permission-audit file small. Deno writes one line for each check for as long as the process lives and holds the
// file open at its own place in it; so when the file has grown, its lines are counted into `<name>.counts.json` beside it and its bytes are
// given back to the disk. Deno goes on at its place, behind a hole that takes no space.
// A check made in the microseconds between the last look and the truncation is lost: its bytes are counted (`lostBytes`), never guessed at.

import { z } from "zod";
import type { Clock } from "../../core/clock.ts";
import { describeError, UsageError } from "../../core/errors.ts";
import { formatVersions, newerFormatFault } from "../../core/format_versions.ts";
import { parseJsonObject } from "../../core/json.ts";
import { PermissionTally } from "./permission_report.ts";

/** What a permission file takes on disk before it is counted and emptied. */
export const permissionFileBytesMax = 8 * 1_048_576;
/** How often it is looked at; what a role writes meanwhile comes on top. */
const permissionLookMs = 60_000;

const rowSchema = z.strictObject({ permission: z.string(), value: z.string(), count: z.int().min(0) });
const countsSchema = z.strictObject({
  v: z.literal(formatVersions.permissionCounts),
  /** Bytes of the file that are counted here; lines that count still begin there. */
  bytes: z.int().min(0),
  lostBytes: z.int().min(0),
  granted: z.array(rowSchema),
  denied: z.array(rowSchema),
});
export type PermissionCounts = z.infer<typeof countsSchema>;

/** Bytes that one look takes in at most; a file that has more is looked at again. */
const blockBytes = 1_048_576;
/** Times that the end of the file is read again before it is emptied. */
const passesMax = 10;

export function countsPath(permissionFile: string): string {
  return permissionFile.replace(/\.jsonl$/, ".counts.json");
}

/** What was counted of a permission file so far; `undefined` where nothing was. Throws UsageError for a newer format. */
export function loadCounts(permissionFile: string): PermissionCounts | undefined {
  const path = countsPath(permissionFile);
  let text: string;
  try {
    text = Deno.readTextFileSync(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
  const value = parseJsonObject(text);
  const newer = newerFormatFault(path, value?.v, formatVersions.permissionCounts);
  if (newer !== undefined) throw new UsageError([newer]);
  const parsed = countsSchema.safeParse(value);
  if (!parsed.success) {
    throw new UsageError([{ file: path, text: "holds no counts of a permission file; remove it" }]);
  }
  return parsed.data;
}

/** Counts and empties the file where it takes more than `bytesMax`. `argv` is its process's. True when it did. */
export function foldPermissionFile(
  path: string,
  argv: readonly string[],
  bytesMax: number = permissionFileBytesMax,
): boolean {
  let file: Deno.FsFile;
  try {
    file = Deno.openSync(path, { read: true });
  } catch (error) {
    // Deno makes it with the first check.
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
  using opened = file;
  const before = loadCounts(path);
  const from = before?.bytes ?? 0;
  if (opened.statSync().size - from <= bytesMax) return false;
  const tally = new PermissionTally(argv);
  if (before !== undefined) tally.addCounts(before);
  const lines = new LineReader(opened, from);
  for (let pass = 1; pass <= passesMax; pass++) {
    for (const line of lines.read()) tally.addLine(line);
    if (lines.end === opened.statSync().size) break;
  }
  // Half a line at the end is on its way: the next look will have it whole.
  if (lines.end !== opened.statSync().size) return false;
  const counts: PermissionCounts = {
    v: formatVersions.permissionCounts,
    bytes: lines.end,
    lostBytes: (before?.lostBytes ?? 0) + lines.lostBytes,
    ...mutable(tally.report()),
  };
  const target = countsPath(path);
  Deno.writeTextFileSync(`${target}.next`, `${JSON.stringify(counts)}\n`, { mode: 0o600 });
  Deno.renameSync(`${target}.next`, target);
  Deno.truncateSync(path, 0);
  return true;
}

/** Looks at the file again and again while its process lives; returns how to stop. What goes wrong is told once: the role goes on. */
export function watchPermissionFile(
  path: string,
  argv: readonly string[],
  { clock, onFailure }: { clock: Clock; onFailure: (text: string) => void },
): () => void {
  let failed = false;
  let cancel = clock.schedule(permissionLookMs, look);
  function look(): void {
    try {
      foldPermissionFile(path, argv);
    } catch (error) {
      if (!failed) onFailure(`${path} grows and cannot be counted: ${describeError(error)}`);
      failed = true;
    }
    cancel = clock.schedule(permissionLookMs, look);
  }
  return () => cancel();
}

/** Whole lines of a file from a byte on. NUL bytes are the hole, and where they reach past it, the place of lines that were lost. */
export class LineReader {
  #file: Deno.FsFile;
  #rest = new Uint8Array(0);
  /** Where the next line begins. */
  end: number;
  lostBytes = 0;

  constructor(file: Deno.FsFile, from: number) {
    this.#file = file;
    this.end = from;
    file.seekSync(from, Deno.SeekMode.Start);
  }

  /** What can be read now, without half a line at the end. */
  *read(): Generator<string> {
    const buffer = new Uint8Array(blockBytes);
    for (;;) {
      const count = this.#file.readSync(buffer);
      if (count === null) return;
      const held = new Uint8Array(this.#rest.length + count);
      held.set(this.#rest);
      held.set(buffer.subarray(0, count), this.#rest.length);
      let begin = 0;
      for (let at = held.indexOf(0x0a); at !== -1; at = held.indexOf(0x0a, begin)) {
        yield this.#line(held.subarray(begin, at + 1));
        begin = at + 1;
      }
      this.#rest = held.slice(begin);
    }
  }

  #line(bytes: Uint8Array): string {
    this.end += bytes.length;
    const first = bytes.findIndex((byte) => byte !== 0);
    this.lostBytes += first;
    return decoder.decode(bytes.subarray(first, bytes.length - 1));
  }
}

const decoder = new TextDecoder();

function mutable(report: ReturnType<PermissionTally["report"]>) {
  return {
    granted: report.granted.map((row) => ({ ...row })),
    denied: report.denied.map((row) => ({ ...row })),
  };
}
