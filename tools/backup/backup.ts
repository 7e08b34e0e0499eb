// Copies a home that may be in full use into a new directory. What makes the copy consistent is the order, and only the order:
// - head.json, then the audit segments: the copied head names a record that the copied log holds.
// - the audit log, then the sessions: a ledger that is behind a session is met by the label that loopd states and by calls it does not know,
//   which end as `interrupted`; a ledger that is ahead would refuse the session's next calls as duplicates.
// - a parent's log, then its children's: a parent that waits takes its finished child's answer; a child whose parent had the answer already
//   would run again for nobody.
// It asks no role, changes nothing in the home, and without `withSecrets` cannot read a secret.

import { join } from "node:path";
import { listSegments, readLines, segmentAt } from "../../core/audit/segments.ts";
import { verifyAudit } from "../../core/audit/verify.ts";
import { type Clock, timestamp } from "../../core/clock.ts";
import { UsageError } from "../../core/errors.ts";
import { formatVersions } from "../../core/format_versions.ts";
import type { HomePaths } from "../../core/home.ts";
import { ancestorSessionIds, isSessionId, type SessionId } from "../../core/ids.ts";
import { parseJsonObject } from "../../core/json.ts";
import { type Copied, copiesMax, copyLines, copyStable, copyWhole, forEach, writeNew } from "./copy.ts";
import { type BackupFile, isBackupName, type Manifest, manifestName, sessionsIn } from "./manifest.ts";

export interface BackupOptions {
  readonly paths: HomePaths;
  /** Absolute; absent or empty. */
  readonly directory: string;
  readonly withSecrets: boolean;
  readonly withPermissions: boolean;
  readonly clock: Clock;
  readonly signal?: AbortSignal;
  /** Called after each file: tests act on the home between two of them, one after the other then. */
  readonly onCopied?: (path: string) => Promise<void>;
}

export interface BackupReport {
  readonly manifest: Manifest;
  /** Of the manifest's bytes: written down elsewhere, it vouches for the whole backup. */
  readonly manifestSha256: string;
  readonly sessions: number;
  readonly bytes: number;
  /** Files of the home that were left out because their names or kinds are not ours. */
  readonly skipped: readonly string[];
}

/** A session that is retired while its log is copied makes the whole pass begin again. */
const passesMax = 3;

/** Where it is written until it is whole; a directory under the final name is always whole. */
export function partialPath(directory: string): string {
  return `${directory}.partial`;
}

/** Throws UsageError where the directory is taken. */
export async function backUp(options: BackupOptions): Promise<BackupReport> {
  const { directory, paths, clock } = options;
  await mustBeFree(directory);
  const partial = partialPath(directory);
  await Deno.mkdir(partial, { mode: 0o700 }).catch((error) => {
    if (!(error instanceof Deno.errors.AlreadyExists)) throw error;
    throw new UsageError([{
      file: partial,
      text:
        `was left by a backup that was cut short, or another one is writing it; remove it with: rm -r ${partial}`,
    }]);
  });
  try {
    const time = timestamp(clock);
    const pass = await copyConsistently(options, partial);
    await copyRest(options, pass);
    const audit = pass.files.some(({ path }) => /^audit\/audit-/.test(path))
      ? await verifyAudit(join(partial, "audit"))
      : undefined;
    const manifest: Manifest = {
      v: formatVersions.backup,
      kind: "boxmaker-backup",
      time,
      home: paths.home,
      deno: Deno.version.deno,
      formats: {
        session: formatVersions.session,
        audit: formatVersions.audit,
        launches: formatVersions.launches,
      },
      withSecrets: options.withSecrets,
      ...(audit === undefined ? {} : { audit: { exit: audit.exit, text: audit.text, head: audit.last } }),
      files: pass.files.toSorted((a, b) => a.path < b.path ? -1 : 1),
    };
    const text = `${JSON.stringify(manifest, null, 1)}\n`;
    const { sha256 } = await writeNew(join(partial, manifestName), new TextEncoder().encode(text));
    options.signal?.throwIfAborted();
    await Deno.rename(partial, directory);
    return {
      manifest,
      manifestSha256: sha256,
      sessions: sessionsIn(pass.files),
      bytes: pass.files.reduce((sum, { bytes }) => sum + bytes, 0),
      skipped: pass.skipped,
    };
  } catch (error) {
    await Deno.remove(partial, { recursive: true });
    throw error;
  }
}

async function mustBeFree(directory: string): Promise<void> {
  const taken = (text: string) => new UsageError([{ file: directory, text }]);
  try {
    for await (const _ of Deno.readDir(directory)) {
      throw taken("is not empty; a backup is a new directory each time, so name one that does not exist yet");
    }
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return;
    if (error instanceof Deno.errors.NotADirectory) {
      throw taken("is no directory; name one that does not exist yet");
    }
    throw error;
  }
}

/** One attempt at a copy: where it goes, and what it holds so far. */
class Pass {
  readonly #files = new Map<string, BackupFile>();
  readonly skipped: string[] = [];
  /** Of the audit log: the last segment that was copied and how far. */
  auditEnd: { readonly segment: number; readonly bytes: number } | undefined;
  readonly #directories = new Map<string, Promise<void>>();

  constructor(
    readonly from: string,
    readonly to: string,
    readonly options: Pick<BackupOptions, "signal" | "onCopied">,
  ) {}

  get files(): BackupFile[] {
    return [...this.#files.values()];
  }

  has(path: string): boolean {
    return this.#files.has(path);
  }

  /** The copy, or `undefined` where the file went away meanwhile. */
  async copy(path: string, way: (from: string, to: string) => Promise<Copied>): Promise<Copied | undefined> {
    this.options.signal?.throwIfAborted();
    await this.#makeDirectoryOf(path);
    let copied: Copied;
    try {
      copied = await way(join(this.from, path), join(this.to, path));
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return undefined;
      throw error;
    }
    this.#files.set(path, { path, ...copied });
    await this.options.onCopied?.(path);
    return copied;
  }

  /** Regular files of a directory that exists; what is neither file nor directory is never followed. */
  async list(path: string): Promise<{ files: string[]; directories: string[] }> {
    const files: string[] = [];
    const directories: string[] = [];
    try {
      for await (const entry of Deno.readDir(join(this.from, path))) {
        const name = `${path}/${entry.name}`;
        if (!isBackupName(name) || (!entry.isFile && !entry.isDirectory)) this.skipped.push(name);
        else (entry.isFile ? files : directories).push(name);
      }
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
    return { files: files.sort(), directories: directories.sort() };
  }

  async #makeDirectoryOf(path: string): Promise<void> {
    const parts = path.split("/").slice(0, -1);
    for (let length = 1; length <= parts.length; length++) {
      const directory = parts.slice(0, length).join("/");
      const making = this.#directories.get(directory) ??
        Deno.mkdir(join(this.to, directory), { mode: 0o700 });
      this.#directories.set(directory, making);
      await making;
    }
  }
}

/** The audit log and the sessions, which must fit each other. */
async function copyConsistently(options: BackupOptions, partial: string): Promise<Pass> {
  for (let tries = 1;; tries++) {
    const pass = new Pass(options.paths.home, partial, options);
    const before = await sessionNames(options.paths);
    const whole = await copyAudit(pass, options.paths);
    if (whole) await copySessions(pass, before);
    const after = await sessionNames(options.paths);
    if (whole && !setAside(before, after) && !await wasRetired(pass, options.paths)) {
      await copyForgotten(pass, after);
      return pass;
    }
    if (tries === passesMax) {
      throw new Error(
        `sessions were retired or the audit log pruned ${tries} times during the backup; begin it again`,
      );
    }
    for (const name of ["audit", "sessions"]) {
      await Deno.remove(join(partial, name), { recursive: true }).catch(ignoreAbsent);
    }
  }
}

/** False where a segment was pruned before it was copied. */
async function copyAudit(pass: Pass, { audit }: HomePaths): Promise<boolean> {
  await pass.copy("audit/head.json", copyStable);
  const segments = await listSegments(audit).catch((error) => {
    ignoreAbsent(error);
    return [];
  });
  for (const { name, number } of segments) {
    const copied = await pass.copy(`audit/${name}`, copyLines);
    if (copied === undefined) return false;
    pass.auditEnd = { segment: number, bytes: copied.bytes };
  }
  await pass.copy("audit/launches.jsonl", copyLines);
  return true;
}

interface SessionNames {
  readonly ids: ReadonlySet<SessionId>;
  readonly retired: readonly string[];
  /** Marks of sessions that were forgotten. */
  readonly forgotten: readonly string[];
}

async function sessionNames({ sessions }: HomePaths): Promise<SessionNames> {
  const names = { ids: new Set<SessionId>(), retired: [] as string[], forgotten: [] as string[] };
  try {
    for await (const { name, isDirectory } of Deno.readDir(sessions)) {
      if (isDirectory && isSessionId(name)) names.ids.add(name);
      else if (isDirectory && /^[a-z0-9-]+\.retired-\d+$/.test(name)) names.retired.push(name);
      else if (!isDirectory && /^[a-z0-9-]+\.forgotten$/.test(name)) names.forgotten.push(name);
    }
  } catch (error) {
    ignoreAbsent(error);
  }
  return names;
}

async function copySessions(pass: Pass, { ids, retired }: SessionNames): Promise<void> {
  for (const name of retired) await copyTree(pass, `sessions/${name}`, copyWhole);
  // By depth: no session before its parent. What a parent spawns meanwhile comes to light in its own copied log.
  const levels: Set<SessionId>[] = [];
  const add = (id: SessionId) => (levels[ancestorSessionIds(id).length] ??= new Set()).add(id);
  for (const id of ids) add(id);
  const copySession = async (id: SessionId) => {
    const directory = `sessions/${id}`;
    if (await pass.copy(`${directory}/log.jsonl`, copyLines) === undefined) return;
    for (const child of await spawnedIn(join(pass.to, directory, "log.jsonl"))) add(child);
    await copyTree(pass, directory, copyStable);
  };
  const atOnce = pass.options.onCopied === undefined ? copiesMax : 1;
  for (let depth = 0; depth < levels.length; depth++) {
    await forEach([...levels[depth] ?? []].sort(), copySession, atOnce);
  }
}

/** Everything below a directory but a log that was copied already. */
async function copyTree(pass: Pass, path: string, way: typeof copyWhole): Promise<void> {
  const { files, directories } = await pass.list(path);
  for (const file of files) if (!pass.has(file)) await pass.copy(file, way);
  for (const directory of directories) await copyTree(pass, directory, way);
}

async function spawnedIn(log: string): Promise<SessionId[]> {
  const children: SessionId[] = [];
  for await (const lines of readLines(log)) {
    for (const { bytes } of lines) {
      const line = decoder.decode(bytes);
      if (!line.includes('"kind":"spawn"')) continue;
      const record = parseJsonObject(line);
      if (record?.kind === "spawn" && typeof record.child === "string" && isSessionId(record.child)) {
        children.push(record.child);
      }
    }
  }
  return children;
}

/** A session that was set aside while we copied begins its id anew: log and ledger must agree on which of the two it is. */
function setAside(before: SessionNames, after: SessionNames): boolean {
  return after.retired.some((name) => !before.retired.includes(name));
}

async function wasRetired({ auditEnd }: Pass, { audit }: HomePaths): Promise<boolean> {
  if (auditEnd === undefined) return false;
  for (let number = auditEnd.segment;; number++) {
    const from = number === auditEnd.segment ? auditEnd.bytes : 0;
    try {
      for await (const lines of readLines(segmentAt(audit, number).path, from)) {
        if (lines.some(({ bytes }) => decoder.decode(bytes).includes('"kind":"retire"'))) return true;
      }
    } catch (error) {
      ignoreAbsent(error);
      return false;
    }
  }
}

/** A forgotten id may not begin again, so its mark is kept; where its log was copied before, that is what the backup knows. */
async function copyForgotten(pass: Pass, { forgotten }: SessionNames): Promise<void> {
  for (const name of forgotten) {
    const id = name.replace(/\.forgotten$/, "");
    if (!pass.has(`sessions/${id}/log.jsonl`)) await pass.copy(`sessions/${name}`, copyWhole);
  }
}

/** What stands on its own: the owner's files, the memory, and what was asked for. */
async function copyRest({ withSecrets, withPermissions }: BackupOptions, pass: Pass): Promise<void> {
  if (await pass.copy("loopd.toml", copyStable) === undefined) {
    throw new UsageError([{ file: pass.from, text: "is no home: it holds no loopd.toml", runbook: "home" }]);
  }
  for (const name of ["brokerd.toml", "grants.toml"]) await pass.copy(name, copyStable);
  for (const file of (await pass.list("memory")).files) {
    if (!file.endsWith(".next")) await pass.copy(file, copyStable);
  }
  if (withSecrets) {
    for (const file of (await pass.list("secrets")).files) {
      await pass.copy(file, copyStable);
    }
  }
  // Deno appends to the running ones; a line may be cut at their ends.
  if (withPermissions) {
    for (const file of (await pass.list("permissions")).files) await pass.copy(file, copyLines);
  }
}

function ignoreAbsent(error: unknown): void {
  if (!(error instanceof Deno.errors.NotFound)) throw error;
}

const decoder = new TextDecoder();
