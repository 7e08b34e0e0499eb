// The one writer of the audit log: numbers, links and writes records, shares each fsync among all who wait for it, begins new segments,
// and repairs a torn end at start. After any failed write or fsync, and for a log that does not verify, it never writes again: its
// `failure` says why, and its callers deny everything until brokerd is started anew.
// It knows lines and files. What a record means to labels and calls is the fold's.

import { join } from "node:path";
import { encodeRecord, firstPrev, sha256 } from "../core/audit/chain.ts";
import { checkLine } from "../core/audit/line.ts";
import { type AuditHead, auditRecordSchema, type NewAuditRecord } from "../core/audit/record.ts";
import {
  listSegments,
  readHeadFile,
  readLastLine,
  readLines,
  type Segment,
  segmentAt,
} from "../core/audit/segments.ts";
import { type Clock, timestamp } from "../core/clock.ts";
import { describeError, UsageError } from "../core/errors.ts";
import { auditSegmentBytesMax } from "../core/limits.ts";
import type { Fold } from "./fold.ts";

/** Thrown by `append` and `commit`. The call it hits is denied `AuditUnavailable`. */
export class AuditUnavailable extends Error {
  override readonly name = "AuditUnavailable";
}

/** What the log needs of an open file; `Deno.FsFile` has it. */
export interface SegmentFile {
  writeSync(bytes: Uint8Array): number;
  syncData(): Promise<void>;
  close(): void;
}

export interface AuditLogOptions {
  /** The audit folder; made if it is not there. */
  readonly dir: string;
  readonly clock: Clock;
  /** Empty; holds what the log says once it is open, and follows each append. */
  readonly fold: Fold;
  readonly segmentBytesMax?: number;
  /** Tests put a file that fails in its place. */
  readonly openFile?: (path: string, options: Deno.OpenOptions) => SegmentFile;
}

/** `head.json` is never further behind than this many records, nor, while time passes, than this long. */
const headLagRecordsMax = 256;
const headLagMs = 250;

export class AuditLog {
  readonly #dir: string;
  readonly #clock: Clock;
  readonly #fold: Fold;
  readonly #segmentBytesMax: number;
  readonly #openFile: (path: string, options: Deno.OpenOptions) => SegmentFile;
  readonly #lock: Deno.FsFile;

  #failure: string | undefined;
  #file: SegmentFile | undefined;
  /** Of the segment that the next record goes to, appended but unwritten ones counted. */
  #segment = 0;
  #segmentBytes = 0;
  /** Last record appended, durable or not. */
  #tip: AuditHead | undefined;

  #queue: QueuedWrite[] = [];
  #waiting: Waiter[] = [];
  #writing: Promise<void> | undefined;

  #durable: AuditHead | undefined;
  #writtenHead: AuditHead | undefined;
  #writingHead: Promise<void> | undefined;
  #cancelHeadTimer: (() => void) | undefined;

  /**
   * Verifies and folds the last segment, cuts a torn end, and is ready to append; or is open with a `failure`. Throws UsageError where
   * the folder cannot be held: another process writes it, or it cannot be written at all.
   */
  static async open(options: AuditLogOptions): Promise<AuditLog> {
    const log = new AuditLog(options, await holdFolder(options.dir));
    try {
      await log.#start();
    } catch (error) {
      log.#failure ??= `the audit log in ${options.dir} cannot be opened: ${describeError(error)}`;
    }
    return log;
  }

  private constructor({ dir, clock, fold, segmentBytesMax, openFile }: AuditLogOptions, lock: Deno.FsFile) {
    this.#dir = dir;
    this.#clock = clock;
    this.#fold = fold;
    this.#segmentBytesMax = segmentBytesMax ?? auditSegmentBytesMax;
    this.#openFile = openFile ?? ((path, options) => Deno.openSync(path, options));
    this.#lock = lock;
  }

  /** Why nothing can be recorded, or `undefined` while all is well. Once set it stays. */
  get failure(): string | undefined {
    return this.#failure;
  }

  get dir(): string {
    return this.#dir;
  }

  /** The last durable record. */
  get head(): AuditHead | undefined {
    return this.#durable;
  }

  /**
   * Takes the record into the log's order and into the fold, at once and without waiting: what was read from the fold and what is
   * appended on the strength of it cannot be parted by another caller. It is durable when a `commit` called afterwards resolves.
   */
  append(fields: NewAuditRecord): number {
    this.#throwIfFailed();
    const line = encodeRecord(fields, { head: this.#tip, time: timestamp(this.#clock) });
    if (this.#segmentBytes > 0 && this.#segmentBytes + line.bytes.length > this.#segmentBytesMax) {
      this.#beginSegment(this.#segment + 1);
      return this.#take(encodeRecord(fields, { head: this.#tip, time: line.record.time }));
    }
    return this.#take(line);
  }

  /** Resolves when every record appended so far is on the disk; rejects with AuditUnavailable when it cannot be. */
  commit(): Promise<void> {
    if (this.#failure !== undefined) return Promise.reject(new AuditUnavailable(this.#failure));
    if (this.#queue.length === 0 && this.#writing === undefined) return Promise.resolve();
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
      // The first of a group opens the door; who comes while it writes goes with the next write.
      this.#writing ??= Promise.resolve().then(() => this.#write());
    });
  }

  /** Drops whole segments whose last record is older than `before` (RFC 3339), recorded first. The current one always stays. */
  async prune(before: string): Promise<{ segment: string; seq: number; hash: string }[]> {
    this.#throwIfFailed();
    const dropped: { segment: string; seq: number; hash: string }[] = [];
    const old: Segment[] = [];
    for (const segment of await listSegments(this.#dir)) {
      if (segment.number >= this.#segment) break;
      const line = await readLastLine(segment.path);
      const record = line && auditRecordSchema.safeParse(JSON.parse(new TextDecoder().decode(line)));
      if (line === undefined || !record?.success || record.data.time >= before) break;
      old.push(segment);
      dropped.push({ segment: segment.name, seq: record.data.seq, hash: sha256(line) });
    }
    if (dropped.length === 0) return dropped;
    this.append({ kind: "prune", before, segments: dropped });
    await this.commit();
    // The head must not be left naming a record that is dropped.
    await this.#writingHead;
    await this.#writeHead();
    for (const segment of old) await Deno.remove(segment.path);
    await syncDirectory(this.#dir);
    return dropped;
  }

  /** Writes what was appended, and the head. The log may not be used afterwards. */
  async close(): Promise<void> {
    await this.commit().catch(() => {});
    this.#cancelHeadTimer?.();
    await this.#writingHead;
    if (this.#failure === undefined && this.#durable !== this.#writtenHead) {
      await this.#writeHead().catch(() => {});
    }
    this.#failure ??= "the audit log is closed";
    this.#file?.close();
    this.#lock.close();
  }

  #throwIfFailed(): void {
    if (this.#failure !== undefined) throw new AuditUnavailable(this.#failure);
  }

  #take({ record, bytes, hash }: ReturnType<typeof encodeRecord>): number {
    this.#queue.push({ bytes, head: { seq: record.seq, hash } });
    this.#fold.apply(record, {
      segment: this.#segment,
      offset: this.#segmentBytes,
      length: bytes.length,
    });
    this.#segmentBytes += bytes.length;
    this.#tip = { seq: record.seq, hash };
    return record.seq;
  }

  // The ledger records are written with the file's birth (see `#createSegment`), so no segment is ever seen without them.
  #beginSegment(number: number): void {
    const opening: Uint8Array[] = [];
    for (const part of this.#fold.snapshot()) {
      const { record, bytes, hash } = encodeRecord(part, { head: this.#tip, time: timestamp(this.#clock) });
      opening.push(bytes);
      this.#tip = { seq: record.seq, hash };
    }
    this.#segment = number;
    this.#segmentBytes = opening.reduce((sum, bytes) => sum + bytes.length, 0);
    this.#fold.forgetPlaces();
    this.#queue.push({ bytes: concat(opening), head: this.#tip!, newSegment: segmentAt(this.#dir, number) });
  }

  // Group commit: one write and one fsync for all that is queued, again as long as something is.
  async #write(): Promise<void> {
    while (this.#queue.length > 0 && this.#failure === undefined) {
      const queue = this.#queue;
      const waiting = this.#waiting;
      this.#queue = [];
      this.#waiting = [];
      try {
        await this.#writeAll(queue);
      } catch (error) {
        this.#fail(`the audit log cannot be written: ${describeError(error)}`);
        for (const { reject } of waiting) reject(new AuditUnavailable(this.#failure));
        break;
      }
      this.#durable = queue[queue.length - 1].head;
      for (const { resolve } of waiting) resolve();
      this.#followWithHead();
    }
    this.#writing = undefined;
    const late = this.#waiting;
    this.#waiting = [];
    for (const { resolve, reject } of late) {
      if (this.#failure === undefined) resolve();
      else reject(new AuditUnavailable(this.#failure));
    }
  }

  async #writeAll(queue: readonly QueuedWrite[]): Promise<void> {
    let at = 0;
    while (at < queue.length) {
      const { newSegment, bytes } = queue[at];
      if (newSegment !== undefined) {
        await this.#createSegment(newSegment, bytes);
        at++;
        continue;
      }
      let end = at + 1;
      while (end < queue.length && queue[end].newSegment === undefined) end++;
      writeWhole(this.#file!, concat(queue.slice(at, end).map((write) => write.bytes)));
      await this.#file!.syncData();
      at = end;
    }
  }

  // Born by rename, so that a crash leaves the whole opening or none of it.
  async #createSegment(segment: Segment, opening: Uint8Array): Promise<void> {
    this.#file?.close();
    this.#file = undefined;
    const draft = `${segment.path}.tmp`;
    const file = this.#openFile(draft, { write: true, create: true, truncate: true, mode: 0o600 });
    this.#file = file;
    writeWhole(file, opening);
    await file.syncData();
    await Deno.rename(draft, segment.path);
    await syncDirectory(this.#dir);
  }

  #fail(reason: string): void {
    this.#failure ??= reason;
    this.#cancelHeadTimer?.();
  }

  #followWithHead(): void {
    const lag = (this.#durable?.seq ?? 0) - (this.#writtenHead?.seq ?? 0);
    if (lag >= headLagRecordsMax) this.#writeHeadSoon();
    else {
      this.#cancelHeadTimer ??= this.#clock.schedule(headLagMs, () => {
        this.#cancelHeadTimer = undefined;
        this.#writeHeadSoon();
      });
    }
  }

  #writeHeadSoon(): void {
    if (this.#writingHead !== undefined || this.#failure !== undefined) return;
    this.#writingHead = this.#writeHead()
      .catch((error) => this.#fail(`head.json cannot be written: ${describeError(error)}`))
      .finally(() => this.#writingHead = undefined);
  }

  // After the log, never before: the head names only what is durable.
  async #writeHead(): Promise<void> {
    const head = this.#durable;
    if (head === undefined) return;
    const path = join(this.#dir, "head.json");
    const draft = `${path}.tmp`;
    const file = this.#openFile(draft, { write: true, create: true, truncate: true, mode: 0o600 });
    try {
      writeWhole(file, new TextEncoder().encode(`${JSON.stringify({ seq: head.seq, hash: head.hash })}\n`));
      await file.syncData();
    } finally {
      file.close();
    }
    await Deno.rename(draft, path);
    this.#writtenHead = head;
  }

  async #start(): Promise<void> {
    for await (const entry of Deno.readDir(this.#dir)) {
      if (entry.isFile && /^(audit-\d+\.jsonl|head\.json)\.tmp$/.test(entry.name)) {
        await Deno.remove(join(this.#dir, entry.name));
      }
    }
    const head = await readHeadFile(this.#dir);
    if (head === "unreadable") return this.#fail("head.json is there and names no head");
    const segments = await listSegments(this.#dir);
    const torn: TornEnd[] = [];
    let last = segments.at(-1);
    while (last !== undefined) {
      const found = await this.#foldSegment(last, segments.at(-2), head);
      if (this.#failure !== undefined) return;
      if (found !== undefined) torn.push(found);
      if (this.#tip !== undefined || segments.length < 2) break;
      // Not one whole line: the segment was cut to nothing, and the one before it is the last.
      segments.pop();
      last = segments.at(-1);
    }
    this.#checkHead(head, torn.length > 0);
    if (this.#failure !== undefined) return;
    for (const { segment, offset } of torn) await this.#cut(segment, offset, last);
    if (last === undefined || this.#tip === undefined) {
      this.#beginSegment(last?.number ?? 1);
    } else {
      this.#file = this.#openFile(last.path, { append: true });
      await Deno.chmod(last.path, 0o600);
      this.#durable = this.#tip;
    }
    for (const { segment, bytes } of torn) {
      this.append({
        kind: "recovery",
        segment: segment.name,
        cutBytes: bytes.length,
        cutSha256: sha256(bytes),
        ...(head !== undefined && head.seq > (this.#durable?.seq ?? 0) ? { headNamedIt: true } : {}),
      });
    }
    await this.commit();
    // At once: until it is there, a log cut to nothing could not be told from a new one.
    await this.#writeHead();
  }

  // Every line against its place, every record into the fold; a torn end is given back.
  async #foldSegment(
    segment: Segment,
    before: Segment | undefined,
    head: AuditHead | undefined,
  ): Promise<TornEnd | undefined> {
    const lastLine = before === undefined ? undefined : await readLastLine(before.path);
    let prev = lastLine === undefined ? undefined : sha256(lastLine);
    let seq: number | undefined;
    let end = 0;
    for await (const lines of readLines(segment.path)) {
      for (const line of lines) {
        if (line.torn) return { segment, offset: line.offset, bytes: line.bytes.slice() };
        const parsed = seq === undefined ? openingPlace(line.bytes, prev) : { seq, prev };
        const checked = checkLine(line, parsed);
        const record = checked.ok ? auditRecordSchema.safeParse(checked.envelope) : undefined;
        if (!checked.ok || !record?.success) {
          const reason = checked.ok ? "the record does not have the form of its kind" : checked.reason;
          this.#fail(
            `the audit log does not verify: ${segment.name}, seq ${parsed.seq}: ${reason}; see \`bx audit verify\``,
          );
          return undefined;
        }
        if (seq === undefined && record.data.kind !== "ledger" && parsed.seq !== 1) {
          this.#fail(`the audit log does not verify: ${segment.name} does not open with its ledger`);
          return undefined;
        }
        const { length } = line.bytes;
        this.#fold.apply(record.data, { segment: segment.number, offset: line.offset, length });
        seq = parsed.seq + 1;
        prev = checked.hash;
        if (head?.seq === parsed.seq && head.hash !== checked.hash) {
          this.#fail(`the audit log was rolled back: seq ${head.seq} is not the record that head.json names`);
          return undefined;
        }
        this.#tip = { seq: parsed.seq, hash: checked.hash };
        end = line.offset + length;
        this.#segment = segment.number;
        this.#segmentBytes = end;
      }
    }
    return end === 0 ? { segment, offset: 0, bytes: new Uint8Array() } : undefined;
  }

  #checkHead(head: AuditHead | undefined, isTorn: boolean): void {
    if (head === undefined) return;
    const seq = this.#tip?.seq ?? 0;
    // The very line that is torn now may be the head's: a disk that lost what it had acknowledged. It is cut and recorded as such.
    const reach = isTorn ? seq + 1 : seq;
    if (head.seq > reach) {
      this.#fail(
        `the audit log was cut short: it ends at seq ${seq}, and head.json names seq ${head.seq}; see \`bx audit verify\``,
      );
    }
  }

  async #cut(segment: Segment, offset: number, last: Segment | undefined): Promise<void> {
    if (segment !== last) await Deno.remove(segment.path);
    else {
      using file = await Deno.open(segment.path, { write: true });
      await file.truncate(offset);
      await file.sync();
    }
    await syncDirectory(this.#dir);
  }
}

interface QueuedWrite {
  readonly bytes: Uint8Array;
  /** The last record in it. */
  readonly head: AuditHead;
  /** These bytes open this new segment. */
  readonly newSegment?: Segment;
}

interface Waiter {
  resolve(): void;
  reject(error: AuditUnavailable): void;
}

interface TornEnd {
  readonly segment: Segment;
  readonly offset: number;
  readonly bytes: Uint8Array;
}

// Without the segment before it (pruned), a segment's first line is believed about its own place.
function openingPlace(
  line: Uint8Array,
  prev: string | undefined,
): { seq: number; prev: string | undefined } {
  const match = /^\{"v":\d+,"seq":(\d{1,15}),/.exec(new TextDecoder().decode(line.subarray(0, 64)));
  const seq = match === null ? 1 : Number(match[1]);
  return { seq, prev: prev ?? (seq === 1 ? firstPrev : undefined) };
}

// The lock is the kernel's and goes with the process, however that ends.
async function holdFolder(dir: string): Promise<Deno.FsFile> {
  const fault = (text: string) => new UsageError([{ file: dir, text, runbook: "audit-unavailable" }]);
  let file: Deno.FsFile;
  try {
    await Deno.mkdir(dir, { recursive: true, mode: 0o700 });
    await Deno.chmod(dir, 0o700);
    file = await Deno.open(join(dir, "lock"), { write: true, create: true, mode: 0o600 });
  } catch (error) {
    throw fault(`the audit log cannot be kept here (${describeError(error)}); wanted a folder that is yours`);
  }
  if (await file.tryLock(true)) return file;
  file.close();
  throw fault("another brokerd holds the audit log; stop it first");
}

async function syncDirectory(dir: string): Promise<void> {
  using directory = await Deno.open(dir, { read: true });
  await directory.sync();
}

function writeWhole(file: SegmentFile, bytes: Uint8Array): void {
  let at = 0;
  while (at < bytes.length) at += file.writeSync(bytes.subarray(at));
}

function concat(parts: readonly Uint8Array[]): Uint8Array {
  if (parts.length === 1) return parts[0];
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
