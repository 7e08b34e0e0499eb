// What the launcher leaves behind of every start: one line in `audit/launches.jsonl`, and the name of the process's permission-audit
// file. Both carry the same time, so that a file finds its line. Appends and rotates; never rewrites a line.

import { join } from "node:path";
import { z } from "zod";
import { UsageError } from "../../core/errors.ts";
import { formatVersions, newerFormatFault } from "../../core/format_versions.ts";
import { parseJsonObject } from "../../core/json.ts";
import { roleNames } from "../../core/protocol/common.ts";
import type { HomePaths } from "../../core/home.ts";
import { countsPath } from "./permission_fold.ts";
import type { Role } from "./plan.ts";

export const launchRecordSchema = z.strictObject({
  /** Lines of the first form have none. */
  v: z.literal(formatVersions.launches).default(formatVersions.launches),
  time: z.string(),
  role: z.enum(roleNames),
  /** As /proc shows it, without the program's own name. */
  argv: z.array(z.string()),
  /** SHA-256 of the bytes of the role's own TOML file. */
  configSha256: z.string(),
  /** For brokerd, SHA-256 of the bytes of grants.toml at the start; what a reload reads, its own log pins. */
  grantsSha256: z.string().optional(),
});
export type LaunchRecord = z.infer<typeof launchRecordSchema>;

/** The record of one line; `undefined` for a line that is none. Throws UsageError for one that a newer Boxmaker wrote. */
export function parseLaunch(line: string, { launches }: HomePaths): LaunchRecord | undefined {
  const value = parseJsonObject(line);
  const newer = newerFormatFault(launches, value?.v, formatVersions.launches);
  if (newer !== undefined) throw new UsageError([newer]);
  const record = launchRecordSchema.safeParse(value);
  return record.success ? record.data : undefined;
}

/** Permission-audit files kept for each role, the running one included. */
export const permissionFilesMax = 20;

/** Durable before the process starts: a launch that nobody recorded never ran. */
export async function appendLaunch(paths: HomePaths, record: Omit<LaunchRecord, "v">): Promise<void> {
  using file = await Deno.open(paths.launches, { append: true, create: true, mode: 0o600 });
  const bytes = new TextEncoder().encode(JSON.stringify({ v: formatVersions.launches, ...record }) + "\n");
  for (let written = 0; written < bytes.length;) written += await file.write(bytes.subarray(written));
  await file.syncData();
}

export function permissionFile(paths: HomePaths, role: Role, time: string): string {
  return join(paths.permissions, `${permissionFilePrefix(role)}${time.replaceAll(":", "-")}.jsonl`);
}

/** Removes the oldest files of the role so that there is room for one more. */
export async function rotatePermissionFiles(paths: HomePaths, role: Role): Promise<void> {
  const names: string[] = [];
  for await (const { name } of Deno.readDir(paths.permissions)) {
    if (name.startsWith(permissionFilePrefix(role)) && name.endsWith(".jsonl")) names.push(name);
  }
  // Their times sort as text.
  const old = names.sort().slice(0, Math.max(0, names.length - permissionFilesMax + 1));
  for (const name of old) {
    await Deno.remove(join(paths.permissions, name));
    await Deno.remove(countsPath(join(paths.permissions, name))).catch((error) => {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    });
  }
}

function permissionFilePrefix(role: Role): string {
  return `${role}-`;
}
