// One session's log file: `sessions/<id>/log.jsonl`, append-only, each append on disk before it resolves (B1).
// It knows lines and bytes; what a record means is session.ts's business. A torn or damaged end is cut off, kept beside, and said so.

import { join } from "node:path";
import { type Clock, timestamp } from "../../core/clock.ts";
import type { SessionId } from "../../core/ids.ts";
import { parseJson } from "../../core/json.ts";
import { sessionLineBytesMax } from "../../core/limits.ts";
import { StorageError, UsageError } from "../../core/errors.ts";
import { type NewRecord, sessionLogVersion, type SessionRecord, sessionRecordSchema } from "./record.ts";

const encoder = new TextEncoder();
const decoder = new TextDecoder();

export interface SessionLog {
  readonly path: string;
  /** A write failed: only reading the file again tells what it holds. */
  readonly broken: boolean;
  /** Throws StorageError. Numbers, dates and writes the records in one write and one fsync, in call order. */
  append(records: readonly NewRecord[]): Promise<SessionRecord[]>;
  close(): Promise<void>;
}

export function sessionLogPath(sessionsDirectory: string, id: SessionId): string {
  return join(sessionsDirectory, id, "log.jsonl");
}

/** A new session's log. Throws AlreadyExists where the session is there already. */
export async function createSessionLog(
  sessionsDirectory: string,
  id: SessionId,
  clock: Clock,
): Promise<SessionLog> {
  const directory = join(sessionsDirectory, id);
  await Deno.mkdir(directory, { mode: 0o700 }).catch((error) => {
    // A crash between mkdir and the first record leaves an empty directory: that session never began.
    if (!(error instanceof Deno.errors.AlreadyExists)) throw error;
  });
  const path = sessionLogPath(sessionsDirectory, id);
  const file = await Deno.open(path, { append: true, createNew: true, mode: 0o600 });
  await syncDirectory(directory);
  await syncDirectory(sessionsDirectory);
  return appender(path, file, clock, 0);
}

/** An existing log: its records, and the log ready to go on. Repairs its end on disk first. */
export async function openSessionLog(
  sessionsDirectory: string,
  id: SessionId,
  clock: Clock,
): Promise<{ log: SessionLog; records: SessionRecord[] }> {
  const path = sessionLogPath(sessionsDirectory, id);
  const bytes = await Deno.readFile(path);
  const { records, goodBytes, damage } = decodeLines(bytes, path);
  const file = await Deno.open(path, { append: true, mode: 0o600 });
  const log = appender(path, file, clock, records.at(-1)?.seq ?? 0);
  if (damage !== undefined) {
    await Deno.writeFile(`${path}.damaged-${clock.now()}`, bytes.subarray(goodBytes), { mode: 0o600 });
    await file.truncate(goodBytes);
    records.push(...await log.append([{ kind: "repair", text: damage }]));
  }
  return { log, records };
}

/** The records of a log without opening it for writing; a torn end is passed over. */
export async function readSessionLog(path: string): Promise<SessionRecord[]> {
  return decodeLines(await Deno.readFile(path), path).records;
}

function appender(path: string, file: Deno.FsFile, clock: Clock, lastSeq: number): SessionLog {
  let seq = lastSeq;
  let tail: Promise<unknown> = Promise.resolve();
  let broken = false;
  return {
    path,
    get broken() {
      return broken;
    },
    append(records) {
      const written = tail.then(async () => {
        if (broken) throw new StorageError(path, { cause: new Error("an earlier write to it failed") });
        const dated = records.map((record): SessionRecord => ({
          v: sessionLogVersion,
          seq: ++seq,
          time: timestamp(clock),
          ...record,
        }));
        try {
          // Written at once: the kernel takes a line in microseconds, a trip through the thread pool costs ten times that. The wait is the fsync.
          writeWhole(file, encoder.encode(dated.map((record) => JSON.stringify(record) + "\n").join("")));
          await file.syncData();
        } catch (error) {
          // What reached the disk is unknown now: the next open reads what is there.
          broken = true;
          throw new StorageError(path, { cause: error });
        }
        return dated;
      });
      tail = written.catch(() => {});
      return written;
    },
    async close() {
      await tail;
      file.close();
    },
  };
}

function writeWhole(file: Deno.FsFile, bytes: Uint8Array): void {
  for (let at = 0; at < bytes.length;) at += file.writeSync(bytes.subarray(at));
}

async function syncDirectory(path: string): Promise<void> {
  const directory = await Deno.open(path, { read: true });
  try {
    await directory.sync();
  } finally {
    directory.close();
  }
}

// Reads to the first line that is no record of this format in sequence; what follows it cannot be trusted to follow from it.
function decodeLines(
  bytes: Uint8Array,
  path: string,
): { records: SessionRecord[]; goodBytes: number; damage?: string } {
  const records: SessionRecord[] = [];
  let goodBytes = 0;
  while (goodBytes < bytes.length) {
    const end = bytes.indexOf(0x0a, goodBytes);
    if (end === -1) {
      return {
        records,
        goodBytes,
        damage: `the last line was torn (${bytes.length - goodBytes} bytes); cut off`,
      };
    }
    const record = end - goodBytes > sessionLineBytesMax
      ? undefined
      : decodeLine(bytes.subarray(goodBytes, end), path);
    if (record === undefined || record.seq !== records.length + 1) {
      return {
        records,
        goodBytes,
        damage: `line ${records.length + 1} is damaged; it and what follows (${
          bytes.length - goodBytes
        } bytes) were cut off`,
      };
    }
    records.push(record);
    goodBytes = end + 1;
  }
  return { records, goodBytes };
}

/** Undefined for a line that is no record; throws UsageError for one of a newer format. */
export function decodeLine(line: Uint8Array, path: string): SessionRecord | undefined {
  const value = parseJson(decoder.decode(line))?.value as { v?: unknown } | undefined;
  if (typeof value?.v === "number" && value.v > sessionLogVersion) {
    throw new UsageError([{
      file: path,
      text:
        `format version ${value.v} is newer than this Boxmaker reads (${sessionLogVersion}); use the newer one`,
    }]);
  }
  const parsed = sessionRecordSchema.safeParse(value);
  return parsed.success ? parsed.data : undefined;
}
