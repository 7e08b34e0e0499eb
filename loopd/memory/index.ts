// The full-text index behind `recall`: session logs and memory files in one SQLite FTS5 table (B6). It is derived: missing, behind or
// damaged, it is rebuilt from the files, and no turn waits for it except the one that asks it something.

import { DatabaseSync } from "node:sqlite";
import { isSessionId, type SessionId } from "../../core/ids.ts";
import { sessionLineBytesMax } from "../../core/limits.ts";
import { joinLabels, type Label, publicTrusted, sensitivityClasses } from "../../core/labels.ts";
import type { SessionRecord } from "../session/record.ts";
import { sessionRecordSchema } from "../session/record.ts";
import { sessionLogPath } from "../session/log.ts";
import { decodeEntry } from "./entries.ts";
import type { MemoryFiles } from "./memory_files.ts";
import { memoryTargets } from "./memory_files.ts";

export interface RecallHit {
  /** `notes`, `identity` or the session whose log holds it. */
  readonly source: string;
  readonly label: Label;
  /** The neighbourhood of the match. */
  readonly snippet: string;
}

export interface RecallAnswer {
  readonly hits: RecallHit[];
  /** True when more matched than were ranked: the newest `rankedMatchesMax` were. */
  readonly partial: boolean;
}

/** Ranking costs per match (facts/deno.md), so only the newest matches are ranked. */
export const rankedMatchesMax = 1_000;
export const recallHitsMax = 8;
const queryTermsMax = 16;
const snippetTokens = 40;
/** Bytes of a source read at once while catching up. */
const readBytes = 1_048_576;
const schemaVersion = 1;

interface SourceRow {
  bytes: number;
  class: number;
  untrusted: number;
  tail: string;
}

export class MemoryIndex {
  #database: DatabaseSync;
  #path: string;
  #sessionsDirectory: string;
  #memory: MemoryFiles;
  /** Sessions whose log grew since they were last read; every session at start. */
  #behind = new Set<SessionId>();
  #scanned = false;
  /** Size and time of the memory files when they were last read. */
  #seen = new Map<string, string>();
  #tail: Promise<unknown> = Promise.resolve();

  constructor(path: string, sessionsDirectory: string, memory: MemoryFiles) {
    this.#path = path;
    this.#database = openDatabase(path);
    this.#sessionsDirectory = sessionsDirectory;
    this.#memory = memory;
  }

  /** The session's log grew. Costs nothing now; the next search reads what is new. */
  note(session: SessionId): void {
    this.#behind.add(session);
  }

  /** Items whose class is at most `label`'s, untrusted ones included, best first. Searches take their turns: each may have to catch up. */
  search(query: string, label: Label): Promise<RecallAnswer> {
    const answer = this.#tail.then(() =>
      this.#search(query, label).catch(async () => {
        this.#rebuild();
        return await this.#search(query, label);
      })
    );
    this.#tail = answer.catch(() => {});
    return answer;
  }

  async #search(query: string, label: Label): Promise<RecallAnswer> {
    await this.#catchUp();
    const terms = queryTerms(query);
    if (terms.length === 0) return { hits: [], partial: false };
    const match = terms.map((term) => `"${term.replaceAll('"', '""')}"`).join(" OR ");
    const rows = this.#database.prepare(
      `SELECT rowid, source, class, untrusted, text FROM items WHERE items MATCH ? AND class <= ? ORDER BY rowid DESC LIMIT ?`,
    ).all(match, sensitivityClasses.indexOf(label.class), rankedMatchesMax + 1) as unknown as ItemRow[];
    const ranked = rows.slice(0, rankedMatchesMax)
      .map((row) => ({ row, score: matchedTerms(row.text, terms) }))
      .sort((a, b) => b.score - a.score || b.row.rowid - a.row.rowid)
      .slice(0, recallHitsMax);
    return {
      hits: ranked.map(({ row }) => ({
        source: row.source,
        label: rowLabel(row),
        snippet: this.#snippet(match, row),
      })),
      partial: rows.length > rankedMatchesMax,
    };
  }

  // Whatever went wrong in it, the files hold everything it held.
  #rebuild(): void {
    this.#database.close();
    removeDatabase(this.#path);
    this.#database = openDatabase(this.#path);
    this.#scanned = false;
    this.#seen.clear();
  }

  /** Drops a source, for a session that was deleted. */
  forget(source: string): void {
    this.#database.prepare("DELETE FROM items WHERE source = ?").run(source);
    this.#database.prepare("DELETE FROM sources WHERE source = ?").run(source);
  }

  close(): void {
    this.#database.close();
  }

  // A number is bound as a float, by which FTS5 does not find a row: without the cast it is the first match of all, whatever its label.
  #snippet(match: string, row: ItemRow): string {
    const found = this.#database.prepare(
      `SELECT snippet(items, 0, '', '', ' … ', ${snippetTokens}) AS snippet FROM items WHERE items MATCH ? AND rowid = CAST(? AS INTEGER)`,
    ).get(match, row.rowid) as { snippet: string } | undefined;
    return found?.snippet ?? row.text.slice(0, 300);
  }

  async #catchUp(): Promise<void> {
    if (!this.#scanned) {
      for await (const entry of Deno.readDir(this.#sessionsDirectory)) {
        if (entry.isDirectory && isSessionId(entry.name)) this.#behind.add(entry.name);
      }
      // Sessions that were deleted while nobody watched are known here alone.
      const known = this.#database.prepare("SELECT source FROM sources").all() as { source: string }[];
      for (const { source } of known) {
        if (isSessionId(source) && !memoryTargets.some((target) => target === source)) {
          this.#behind.add(source);
        }
      }
      this.#scanned = true;
    }
    for (const session of this.#behind) {
      this.#behind.delete(session);
      await this.#readSource(session, sessionLogPath(this.#sessionsDirectory, session), sessionSource);
    }
    for (const target of memoryTargets) {
      const path = this.#memory.path(target);
      const stat = await Deno.stat(path).catch(() => undefined);
      const seen = stat === undefined ? "" : `${stat.size} ${stat.mtime?.getTime()} ${stat.ino}`;
      if (seen !== "" && this.#seen.get(target) === seen) continue;
      await this.#readSource(target, path, memorySource);
      this.#seen.set(target, seen);
    }
  }

  // Reads what was appended since the last time. A file that shrank, or whose bytes before the mark are others now, is read from its start.
  async #readSource(source: string, path: string, { toItem, mark }: SourceKind): Promise<void> {
    let file;
    try {
      file = await Deno.open(path);
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
      return this.forget(source);
    }
    try {
      const { size } = await file.stat();
      let row = this.#database.prepare("SELECT bytes, class, untrusted, tail FROM sources WHERE source = ?")
        .get(source) as unknown as SourceRow | undefined;
      if (row !== undefined && (row.bytes > size || await mark(file, row.bytes) !== row.tail)) {
        this.forget(source);
        row = undefined;
      }
      let position = row?.bytes ?? 0;
      let label = row === undefined ? publicTrusted : rowLabel(row);
      while (position < size) {
        const { lines, bytes } = await readLines(file, position);
        if (bytes === 0) break;
        position += bytes;
        const tail = await mark(file, position);
        // Nothing is awaited inside a transaction: whoever else uses the database meanwhile would be inside it too.
        this.#database.exec("BEGIN");
        const insert = this.#database.prepare(
          "INSERT INTO items (text, source, class, untrusted) VALUES (?, ?, ?, ?)",
        );
        for (const line of lines) {
          const item = toItem(line, label);
          label = item.label;
          for (const { text, label: of } of item.items) {
            insert.run(text, source, sensitivityClasses.indexOf(of.class), of.untrusted ? 1 : 0);
          }
        }
        this.#database.prepare(
          "INSERT OR REPLACE INTO sources (source, bytes, class, untrusted, tail) VALUES (?, ?, ?, ?, ?)",
        ).run(
          source,
          position,
          sensitivityClasses.indexOf(label.class),
          label.untrusted ? 1 : 0,
          tail,
        );
        this.#database.exec("COMMIT");
      }
    } finally {
      file.close();
    }
  }
}

interface ItemRow {
  rowid: number;
  source: string;
  class: number;
  untrusted: number;
  text: string;
}

/** What one line adds, and the label of its source from there on. */
type ItemReader = (line: string, label: Label) => { items: { text: string; label: Label }[]; label: Label };

/** How a source is read, and what proves that its bytes before a position are those that were read. */
interface SourceKind {
  readonly toItem: ItemReader;
  readonly mark: (file: Deno.FsFile, position: number) => Promise<string>;
}

const memoryItem: ItemReader = (line, label) => {
  const entry = decodeEntry(line);
  return { items: entry === undefined ? [] : [{ text: entry.text, label: entry.label }], label };
};

// Everything a session said stands under the session's label at that point: it may repeat what it had read by then.
const sessionItem: ItemReader = (line, label) => {
  const parsed = sessionRecordSchema.safeParse(tryJson(line));
  if (!parsed.success) return { items: [], label };
  const record = parsed.data;
  const after = record.kind === "open"
    ? record.label
    : record.kind === "result"
    ? joinLabels(label, record.label)
    : label;
  const text = indexedText(record);
  return { items: text === "" ? [] : [{ text, label: after }], label: after };
};

// What `recall` found is not found again as something new.
function indexedText(record: SessionRecord): string {
  if (record.kind === "user") return record.text;
  if (record.kind === "assistant") return record.content;
  if (record.kind === "output-summary") return record.text;
  if (record.kind === "result" && record.tool !== "recall" && record.tool !== "find_tool") return record.text;
  return "";
}

function tryJson(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

function openDatabase(path: string): DatabaseSync {
  try {
    return prepared(new DatabaseSync(path));
  } catch {
    removeDatabase(path);
    return prepared(new DatabaseSync(path));
  }
}

function removeDatabase(path: string): void {
  for (const suffix of ["", "-wal", "-shm", "-journal"]) {
    try {
      Deno.removeSync(path + suffix);
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
  }
}

function prepared(database: DatabaseSync): DatabaseSync {
  const { user_version: version } = database.prepare("PRAGMA user_version").get() as { user_version: number };
  if (version !== 0 && version !== schemaVersion) {
    database.close();
    throw new Error(`index format ${version}`);
  }
  // synchronous=OFF: a derived file may lose its last transactions to a power cut, never its agreement with the files.
  database.exec(`
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = OFF;
    CREATE VIRTUAL TABLE IF NOT EXISTS items USING fts5(text, source UNINDEXED, class UNINDEXED, untrusted UNINDEXED);
    CREATE TABLE IF NOT EXISTS sources (source TEXT PRIMARY KEY, bytes INTEGER, class INTEGER, untrusted INTEGER, tail TEXT);
    PRAGMA user_version = ${schemaVersion};
  `);
  return database;
}

function rowLabel(row: { class: number; untrusted: number }): Label {
  return { class: sensitivityClasses[row.class], untrusted: row.untrusted === 1 };
}

function queryTerms(query: string): string[] {
  const words = query.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
  return [...new Set(words)].slice(0, queryTermsMax);
}

function matchedTerms(text: string, terms: readonly string[]): number {
  const lower = text.toLowerCase();
  return terms.filter((term) => lower.includes(term)).length;
}

const tailBytes = 64;

async function tailBefore(file: Deno.FsFile, position: number): Promise<string> {
  const bytes = await readAt(file, Math.max(0, position - tailBytes), Math.min(position, tailBytes));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// The owner edits memory files anywhere in them, so all bytes count; session logs only ever grow, and their end tells enough.
async function hashBefore(file: Deno.FsFile, position: number): Promise<string> {
  // Read by read, each with the hash so far: the platform's digest takes what it hashes at one go.
  let hash = new Uint8Array();
  for (let at = 0; at < position; at += readBytes) {
    const part = await readAt(file, at, Math.min(readBytes, position - at));
    const chained = new Uint8Array(hash.length + part.length);
    chained.set(hash);
    chained.set(part, hash.length);
    hash = new Uint8Array(await crypto.subtle.digest("SHA-256", chained));
  }
  return hash.toHex();
}

const sessionSource: SourceKind = { toItem: sessionItem, mark: tailBefore };
const memorySource: SourceKind = { toItem: memoryItem, mark: hashBefore };

async function readLines(file: Deno.FsFile, position: number): Promise<{ lines: string[]; bytes: number }> {
  let bytesMax = readBytes;
  let bytes = await readAt(file, position, bytesMax);
  // A line longer than one read is read whole, or its source would never be read beyond it.
  while (bytes.length === bytesMax && bytesMax <= sessionLineBytesMax && !bytes.includes(0x0a)) {
    bytesMax *= 2;
    bytes = await readAt(file, position, bytesMax);
  }
  const end = bytes.lastIndexOf(0x0a) + 1;
  return { lines: new TextDecoder().decode(bytes.subarray(0, end)).split("\n").slice(0, -1), bytes: end };
}

async function readAt(file: Deno.FsFile, position: number, bytesMax: number): Promise<Uint8Array> {
  await file.seek(position, Deno.SeekMode.Start);
  const buffer = new Uint8Array(bytesMax);
  let length = 0;
  while (length < bytesMax) {
    const read = await file.read(buffer.subarray(length));
    if (read === null) break;
    length += read;
  }
  return buffer.subarray(0, length);
}
