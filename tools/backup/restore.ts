// Makes a home of a backup: every file held against the manifest, the audit log verified, and only then the home under its name. It never
// adds to a home that exists: two logs of one past cannot be merged.

import { dirname, join } from "node:path";
import { verifyAudit } from "../../core/audit/verify.ts";
import { loadBrokerdConfig } from "../../core/config/brokerd_toml.ts";
import { loadLoopdConfig } from "../../core/config/loopd_toml.ts";
import { UsageError } from "../../core/errors.ts";
import { type HomePaths, homePaths, pathFaults } from "../../core/home.ts";
import { homeDirectories } from "../launch/directories.ts";
import { lockHolder } from "../launch/lock.ts";
import { copyWhole, forEach } from "./copy.ts";
import { loadManifest, type Manifest, sessionsIn } from "./manifest.ts";

export interface RestoreOptions {
  /** Absolute. */
  readonly directory: string;
  /** The home to make; absent or empty. */
  readonly paths: HomePaths;
  readonly signal?: AbortSignal;
}

export interface RestoreReport {
  readonly manifest: Manifest;
  readonly sessions: number;
  readonly bytes: number;
  /** Of the restored log; absent where the backup holds none. */
  readonly audit: { readonly exit: number; readonly text: string } | undefined;
  /** Secrets that the files name and the backup does not hold. */
  readonly missingSecrets: readonly string[];
}

/** What differs from the manifest; nothing was restored. */
export class DamagedBackup extends Error {
  override readonly name = "DamagedBackup";
}

const namedFaultsMax = 10;

/** Where the home is made until it is whole. */
export function restoringPath(home: string): string {
  return `${home}.restoring`;
}

/** Throws UsageError where the home may not be made here or the directory is no backup, DamagedBackup where the backup is not whole. */
export async function restore({ directory, paths, signal }: RestoreOptions): Promise<RestoreReport> {
  await mustBeFree(paths);
  const manifest = await loadManifest(directory);
  const draft = homePaths(restoringPath(paths.home));
  await Deno.mkdir(draft.home, { mode: 0o700 }).catch((error) => {
    if (!(error instanceof Deno.errors.AlreadyExists)) throw error;
    throw new UsageError([{
      file: draft.home,
      text:
        `was left by a restore that was cut short, or another one is writing it; remove it with: rm -r ${draft.home}`,
    }]);
  });
  try {
    await Deno.chmod(draft.home, 0o700);
    for (const path of homeDirectories(draft)) await Deno.mkdir(path, { mode: 0o700 });
    await copyAll(directory, draft.home, manifest, signal);
    const audit = manifest.audit === undefined ? undefined : await verifyAudit(draft.audit);
    const missingSecrets = await secretsMissing(draft);
    await Deno.rename(draft.home, paths.home);
    return {
      manifest,
      sessions: sessionsIn(manifest.files),
      bytes: manifest.files.reduce((sum, { bytes }) => sum + bytes, 0),
      audit: audit && { exit: audit.exit, text: audit.text },
      missingSecrets,
    };
  } catch (error) {
    await Deno.remove(draft.home, { recursive: true });
    throw error;
  }
}

async function mustBeFree(paths: HomePaths): Promise<void> {
  const faults = pathFaults(paths.home);
  if (faults.length > 0) throw new UsageError(faults);
  const refuse = (text: string) => new UsageError([{ file: paths.home, text, runbook: "home" }]);
  const holder = lockHolder(paths);
  if (holder !== undefined) {
    const process = holder === "" ? "" : ` (process ${holder})`;
    throw refuse(
      `is in use by a launcher${process}; a backup becomes a new home: give another one with --home DIR`,
    );
  }
  try {
    for await (const _ of Deno.readDir(paths.home)) {
      throw refuse(
        `is not empty; a backup becomes a new home: give another one with --home DIR, or move this one away: ` +
          `mv ${paths.home} ${paths.home}.old`,
      );
    }
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return;
    if (error instanceof Deno.errors.NotADirectory) throw refuse("is no directory; a home is one");
    throw error;
  }
}

async function copyAll(
  directory: string,
  home: string,
  { files }: Manifest,
  signal: AbortSignal | undefined,
): Promise<void> {
  for (const to of new Set(files.map(({ path }) => dirname(join(home, path))))) {
    await Deno.mkdir(to, { mode: 0o700, recursive: true });
  }
  const bad: string[] = [];
  await forEach(files, async ({ path, bytes, sha256 }) => {
    signal?.throwIfAborted();
    const text = await whatIsWrong(join(directory, path), { bytes, sha256 }, join(home, path));
    if (text !== undefined) bad.push(`${path} ${text}`);
  });
  if (bad.length === 0) return;
  const more = bad.length > namedFaultsMax ? `, and ${bad.length - namedFaultsMax} more` : "";
  throw new DamagedBackup(
    `the backup in ${directory} is damaged, nothing was restored: ${
      bad.slice(0, namedFaultsMax).join("; ")
    }${more}`,
  );
}

async function whatIsWrong(
  from: string,
  wanted: { bytes: number; sha256: string },
  to: string,
): Promise<string | undefined> {
  try {
    if (!(await Deno.lstat(from)).isFile) return "is no regular file";
    const { bytes, sha256 } = await copyWhole(from, to);
    if (bytes !== wanted.bytes) return `has ${bytes} bytes, wanted ${wanted.bytes}`;
    return sha256 === wanted.sha256 ? undefined : "has another SHA-256 than the manifest names";
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return "is missing";
    throw error;
  }
}

async function secretsMissing(paths: HomePaths): Promise<string[]> {
  const loopd = loadLoopdConfig(paths);
  const brokerd = loadBrokerdConfig(paths);
  const names = [
    "value" in loopd ? loopd.value.inference?.secretName : undefined,
    "value" in brokerd ? brokerd.value.consult?.secretName : undefined,
    "value" in brokerd ? brokerd.value.honcho?.secretName : undefined,
  ];
  const missing: string[] = [];
  for (const name of new Set(names)) {
    if (name === undefined) continue;
    const found = await Deno.lstat(join(paths.secrets, name)).then(() => true, (error) => {
      if (error instanceof Deno.errors.NotFound) return false;
      throw error;
    });
    if (!found) missing.push(name);
  }
  return missing;
}
