// The process behind `bx backup DIR` and `bx restore DIR`: reads its arguments, says what came of it, and ends with the exit code. The
// launcher resolved every path and granted just those (tools/launch/plan.ts); what is done with them stands in backup.ts and restore.ts.

import { parseArgs } from "node:util";
import { systemClock } from "../../core/clock.ts";
import { describeError, exitCodes, UsageError } from "../../core/errors.ts";
import { homePaths } from "../../core/home.ts";
import { printFaults } from "../launch/program.ts";
import { backUp, type BackupReport } from "./backup.ts";
import { DamagedBackup, restore, type RestoreReport } from "./restore.ts";

interface Asked {
  readonly home: string;
  readonly directory: string;
  readonly json: boolean;
  readonly signal: AbortSignal;
}

async function runBackup(
  asked: Asked,
  also: { withSecrets: boolean; withPermissions: boolean },
): Promise<number> {
  const { home, directory, json, signal } = asked;
  const began = performance.now();
  const report = await backUp({ paths: homePaths(home), directory, ...also, clock: systemClock, signal });
  const { audit, files, withSecrets } = report.manifest;
  const sound = audit === undefined || audit.exit === 0;
  if (json) {
    console.log(
      JSON.stringify({ ...summary(report), directory, audit, ms: Math.round(performance.now() - began) }),
    );
  } else {
    console.log(
      `copied ${home} to ${directory}: ${report.sessions} sessions, ${files.length} files, ${
        megabytes(report.bytes)
      }`,
    );
    if (audit === undefined) console.log("audit   none yet");
    else {console.log(
        `audit   ${audit.text}${
          audit.head === undefined ? "" : `\nhead    ${audit.head.seq}:${audit.head.hash}`
        }`,
      );}
    console.log(`manifest SHA-256 ${report.manifestSha256}`);
    if (!withSecrets) console.log("without secrets; --with-secrets takes them along");
  }
  for (const path of report.skipped) {
    console.error(`bx: left out, its name or kind is none of ours: ${JSON.stringify(path)}`);
  }
  if (!sound) {
    console.error(
      "bx: the audit log of this home does not verify, and its copy is as it is; see docs/runbook.md#audit-unavailable",
    );
  }
  return sound ? exitCodes.done : exitCodes.failed;
}

function summary({ sessions, bytes, manifestSha256, manifest }: BackupReport) {
  return { sessions, files: manifest.files.length, bytes, manifestSha256, withSecrets: manifest.withSecrets };
}

async function runRestore({ home, directory, json, signal }: Asked): Promise<number> {
  const report = await restore({ paths: homePaths(home), directory, signal });
  const sound = report.audit === undefined || report.audit.exit === 0;
  if (json) console.log(JSON.stringify({ home, directory, ...restored(report) }));
  else {
    console.log(
      `restored ${directory} of ${report.manifest.time} to ${home}: ${report.sessions} sessions, ${
        megabytes(report.bytes)
      }`,
    );
    console.log(`audit   ${report.audit?.text ?? "none yet"}`);
    for (const name of report.missingSecrets) {
      console.log(
        `missing secrets/${name}: write the key into it and run: chmod 600 ${home}/secrets/${name}`,
      );
    }
  }
  if (!sound) {
    console.error("bx: the restored audit log does not verify; see docs/runbook.md#audit-unavailable");
  }
  return sound ? exitCodes.done : exitCodes.failed;
}

function restored({ sessions, bytes, audit, missingSecrets, manifest }: RestoreReport) {
  return { time: manifest.time, sessions, files: manifest.files.length, bytes, audit, missingSecrets };
}

function megabytes(bytes: number): string {
  return `${(bytes / 1_000_000).toFixed(1)} MB`;
}

async function main(args: string[]): Promise<number> {
  const { values, positionals } = parseArgs({
    args,
    options: {
      home: { type: "string" },
      directory: { type: "string" },
      "with-secrets": { type: "boolean" },
      "with-permissions": { type: "boolean" },
      json: { type: "boolean" },
    },
    allowPositionals: true,
  });
  const interrupted = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    Deno.addSignalListener(
      signal,
      () => interrupted.abort(new Error("interrupted, and nothing is left behind")),
    );
  }
  const asked = {
    home: values.home ?? "",
    directory: values.directory ?? "",
    json: values.json ?? false,
    signal: interrupted.signal,
  };
  try {
    if (positionals[0] === "restore") return await runRestore(asked);
    return await runBackup(asked, {
      withSecrets: values["with-secrets"] ?? false,
      withPermissions: values["with-permissions"] ?? false,
    });
  } catch (error) {
    if (error instanceof UsageError) {
      printFaults(error.faults);
      return exitCodes.usage;
    }
    if (error instanceof Deno.errors.NotCapable) throw error;
    const text = error instanceof DamagedBackup
      ? error.message
      : `bx ${positionals[0]}: ${describeError(error)}`;
    console.error(text);
    return exitCodes.failed;
  }
}

if (import.meta.main) Deno.exit(await main(Deno.args));
