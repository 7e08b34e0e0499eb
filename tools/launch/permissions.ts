// `deno task permissions`: for each role, what its last launch was granted, what it used, and what it tried and was refused.
// Reads the launch record and that process's permission-audit file; changes nothing and asks no role.

import { exitCodes, UsageError } from "../../core/errors.ts";
import { homeFaults, type HomePaths, homePaths, resolveHome } from "../../core/home.ts";
import { parseJsonObject } from "../../core/json.ts";
import { roleNames } from "../../core/protocol/common.ts";
import { type LaunchRecord, launchRecordSchema, permissionFile } from "./launch_log.ts";
import { type PermissionReport, PermissionTally } from "./permission_report.ts";
import { type Given, runProgram } from "./program.ts";

const help = `What each role was granted at its last start, what it used of that, and what it was refused.

  deno task permissions [--home DIR] [--json]

  --home DIR  the home; else $BOXMAKER_HOME, else $HOME/.boxmaker
  --json      one object: {roles: [{role, time, granted, denied}]}, rows of {permission, value, count}
  --help      this text

A grant that was never used is a finding: the process may do more than it needs.`;

export interface RoleReport extends PermissionReport {
  readonly role: string;
  readonly time: string;
}

/** A line longer than this is no record of ours. */
const lineCharactersMax = 1_048_576;

/** One report for each role that was ever started in this home. */
export async function permissionReports(paths: HomePaths): Promise<RoleReport[]> {
  const last = new Map<string, LaunchRecord>();
  for await (const line of fileLines(paths.launches)) {
    const record = launchRecordSchema.safeParse(parseJsonObject(line));
    if (record.success) last.set(record.data.role, record.data);
  }
  const reports: RoleReport[] = [];
  for (const role of roleNames) {
    const record = last.get(role);
    if (record === undefined) continue;
    const tally = new PermissionTally(record.argv);
    for await (const line of fileLines(permissionFile(paths, role, record.time))) {
      const check = parseJsonObject(line);
      if (typeof check?.permission !== "string") continue;
      tally.add({ permission: check.permission, value: typeof check.value === "string" ? check.value : "" });
    }
    reports.push({ role, time: record.time, ...tally.report() });
  }
  return reports;
}

/** Lines of a file, none where it is absent. */
async function* fileLines(path: string): AsyncGenerator<string> {
  let file: Deno.FsFile;
  try {
    file = await Deno.open(path, { read: true });
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return;
    throw error;
  }
  let rest = "";
  for await (const text of file.readable.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split("\n");
    rest = (lines.pop() ?? "").slice(0, lineCharactersMax);
    yield* lines;
  }
}

function printReport({ role, time, granted, denied }: RoleReport): void {
  console.log(`${role}, started ${time}`);
  for (const { permission, value, count } of granted) {
    const use = count === 0 ? "granted, never used" : `granted, used ${count} times`;
    console.log(`  ${permission.padEnd(6)} ${use.padEnd(26)} ${value}`);
  }
  for (const { permission, value, count } of denied) {
    console.log(`  ${permission.padEnd(6)} ${`DENIED ${count} times`.padEnd(26)} ${value}`);
  }
  const unused = granted.filter(({ count }) => count === 0).length;
  console.log(
    `  ${granted.length} granted, ${unused} of them never used; ${denied.length} kinds of attempt denied\n`,
  );
}

async function run({ home, json }: Given): Promise<number> {
  const resolved = resolveHome(home);
  const faults = homeFaults(resolved);
  if (faults.length > 0) throw new UsageError(faults);
  const reports = await permissionReports(homePaths(resolved));
  if (json) console.log(JSON.stringify({ roles: reports }));
  else if (reports.length === 0) {
    console.log(`No role was ever started in ${resolved}; start both with: deno task up`);
  } else for (const report of reports) printReport(report);
  return exitCodes.done;
}

if (import.meta.main) await runProgram({ name: "permissions", help, run });
