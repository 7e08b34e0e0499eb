// Brings one home up: preflight, the missing directories, the lock, the packages, then both roles under supervision.
// Nothing is started and no file appears before preflight has found no fault.

import { join } from "node:path";
import { systemClock } from "../../core/clock.ts";
import type { Fault } from "../../core/errors.ts";
import type { HomePaths } from "../../core/home.ts";
import { isJsonObject, parseJsonObject } from "../../core/json.ts";
import { denoDirectory, type OwnEnvironment } from "./environment.ts";
import { homeDirectories } from "./directories.ts";
import { takeHomeLock } from "./lock.ts";
import { watchPermissionFile } from "./permission_fold.ts";
import type { Role } from "./plan.ts";
import { loadFiles, preflight, runningFault } from "./preflight.ts";
import { ownRoot } from "./root.ts";
import { type LaunchEvent, supervise, type Supervisor } from "./supervise.ts";

export interface UpOptions {
  /** Resolved: no link on its way. */
  readonly paths: HomePaths;
  readonly own: OwnEnvironment;
  readonly onEvent: (event: LaunchEvent) => void;
  /** Stands in for an absent `[inference] url`. */
  readonly inferenceUrl?: string;
  /** Where the programs lie; by default this checkout. */
  readonly root?: string;
  readonly entries?: { readonly [role in Role]?: string };
}

const noInferenceText =
  "loopd.toml names no [inference] url: every turn fails until it does; deno task chat brings a practice model";

/** Both roles under supervision, or all that stands in the way. */
export async function up(options: UpOptions): Promise<Supervisor | { faults: Fault[] }> {
  const { paths, own, inferenceUrl, entries, onEvent, root = ownRoot } = options;
  const timeZone = Temporal.Now.timeZoneId();
  const found = await preflight(paths, { inferenceUrl, timeZone, uid: Deno.uid() });
  if ("faults" in found) return found;

  for (const directory of homeDirectories(paths)) {
    await Deno.mkdir(directory, { recursive: true, mode: 0o700 });
  }
  const lock = takeHomeLock(paths);
  if (lock === undefined) return { faults: [runningFault(paths)] };
  const missing = packagesAreThere(root, own) ? undefined : await fetchPackages(root, entries);
  if (missing !== undefined) {
    lock.release();
    return { faults: [missing] };
  }

  if (found.loopd.inference === undefined) onEvent({ event: "notice", text: noInferenceText });

  let sound = found;
  const supervisor = supervise({
    paths,
    root,
    own,
    timeZone,
    inferenceUrl,
    entries,
    clock: systemClock,
    onEvent,
    watchPermissionFile: (path, argv) =>
      watchPermissionFile(path, argv, {
        clock: systemClock,
        onFailure: (text) => onEvent({ event: "notice", text }),
      }),
    async load() {
      // A file that was spoilt meanwhile is the role's own to refuse; its flags stay those that were sound.
      const loaded = await loadFiles(paths, { inferenceUrl });
      if (!("faults" in loaded)) sound = loaded;
      return sound;
    },
  });
  supervisor.ended.then(() => lock.release());
  return supervisor;
}

/**
 * Deno installs every package of the lock before a program's first line, so the launcher's own start has done it, unless its cache is another.
 * Looking takes a millisecond, asking Deno as long as starting it. With more registries than one only Deno knows whose packages count.
 */
function packagesAreThere(root: string, own: OwnEnvironment): boolean {
  try {
    const cache = join(denoDirectory(own), "npm");
    const [registry, ...others] = [...Deno.readDirSync(cache)];
    const locked = parseJsonObject(Deno.readTextFileSync(join(root, "deno.lock")))?.npm;
    if (registry === undefined || others.length > 0 || !isJsonObject(locked)) return false;
    return Object.keys(locked).every((key) => {
      const [, name, version] = /^(@?[^@]+)@([^@_]+)/.exec(key)!;
      return Deno.statSync(join(cache, registry.name, name, version)).isDirectory;
    });
  } catch {
    return false;
  }
}

/** Roles run from the cache alone, so what they import must be in it before: a few megabytes at the first start, nothing later. */
async function fetchPackages(root: string, entries: UpOptions["entries"]): Promise<Fault | undefined> {
  const programs = (["loopd", "brokerd"] as const).map((role) =>
    entries?.[role] ?? join(root, role, "main.ts")
  );
  const { success } = await new Deno.Command(Deno.execPath(), {
    args: ["cache", "-q", "--frozen", "--config", join(root, "deno.json"), ...programs],
    stdin: "null",
    stdout: "null",
    stderr: "inherit",
  }).output();
  if (success) return undefined;
  return {
    text: "the packages that the roles import could not be fetched; connect this device once and start again",
  };
}
