// `manifest.json` of a backup: what it holds, byte for byte, and which formats it was written in. It names files by their path below the
// home, with `/` between the parts; a name that would lead anywhere else is refused here, before any path is made of it.

import { join } from "node:path";
import { z } from "zod";
import { type Fault, UsageError } from "../../core/errors.ts";
import { formatVersions, newerFormatFault } from "../../core/format_versions.ts";
import { parseJsonObject } from "../../core/json.ts";
import { hashSchema } from "../../core/protocol/common.ts";

export const manifestName = "manifest.json";
/** About 200 bytes a file: a million of them. */
const manifestBytesMax = 256 * 1_048_576;

/** `loopd.toml`, `sessions/chat-1/log.jsonl`: letters, digits, dot, dash and underscore, no part made of dots alone. */
const namePattern = /^(?!\.+(?:\/|$))[A-Za-z0-9._-]+(?:\/(?!\.+(?:\/|$))[A-Za-z0-9._-]+)*$/;

export function isBackupName(name: string): boolean {
  return namePattern.test(name);
}

const fileSchema = z.strictObject({
  path: z.string().refine(isBackupName),
  bytes: z.int().min(0),
  sha256: hashSchema,
});
export type BackupFile = z.infer<typeof fileSchema>;

export const manifestSchema = z.strictObject({
  v: z.literal(formatVersions.backup),
  kind: z.literal("boxmaker-backup"),
  /** When it was begun. */
  time: z.iso.datetime(),
  /** The home that was copied. */
  home: z.string(),
  deno: z.string(),
  /** Formats of what it holds. */
  formats: z.record(z.string(), z.int().min(1)),
  withSecrets: z.boolean(),
  /** What verifying the copied audit log said; absent where the home had none yet. */
  audit: z.strictObject({
    exit: z.int(),
    text: z.string(),
    head: z.strictObject({ seq: z.int().min(1), hash: hashSchema }).optional(),
  }).optional(),
  files: z.array(fileSchema),
});
export type Manifest = z.infer<typeof manifestSchema>;

/** How many of these files are logs of sessions, those set aside not counted. */
export function sessionsIn(files: readonly BackupFile[]): number {
  return files.filter(({ path }) => /^sessions\/[^/.]+\/log\.jsonl$/.test(path)).length;
}

/** Throws UsageError where the directory is no backup, or one of a newer Boxmaker. */
export async function loadManifest(directory: string): Promise<Manifest> {
  const path = join(directory, manifestName);
  const refuse = (fault: Fault) => new UsageError([fault]);
  let text: string;
  try {
    if ((await Deno.stat(path)).size > manifestBytesMax) {
      throw refuse({ file: path, text: `is larger than ${manifestBytesMax} bytes; no manifest is` });
    }
    text = await Deno.readTextFile(path);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    throw refuse({
      file: directory,
      text: `holds no ${manifestName}; wanted a directory that \`bx backup\` made`,
    });
  }
  const value = parseJsonObject(text);
  const newer = newerFormatFault(path, value?.v, formatVersions.backup);
  if (newer !== undefined) throw refuse(newer);
  const parsed = manifestSchema.safeParse(value);
  if (!parsed.success) {
    const where = parsed.error.issues[0]?.path.join(".") ?? "";
    throw refuse({ file: path, ...(where === "" ? {} : { key: where }), text: "is no manifest of a backup" });
  }
  const faults = Object.entries(parsed.data.formats).flatMap(([name, version]) => {
    const known = Object.hasOwn(formatVersions, name)
      ? formatVersions[name as keyof typeof formatVersions]
      : 0;
    const fault = newerFormatFault(path, version, known);
    return fault === undefined ? [] : [{ ...fault, key: `formats.${name}` }];
  });
  if (faults.length > 0) throw new UsageError(faults);
  return parsed.data;
}
