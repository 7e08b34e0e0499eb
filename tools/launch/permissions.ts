// `deno task permissions`: for each role, what its last launch was granted, what it used, and what it tried and was refused.
// Reads the launch records and the permission-audit files of those processes; changes nothing and asks no role.

import { exitCodes, UsageError } from "../../core/errors.ts";
import { homeFaults, type HomePaths, homePaths, resolveHome } from "../../core/home.ts";
import { roleNames } from "../../core/protocol/common.ts";
import { type LaunchRecord, parseLaunch, permissionFile, permissionFilesMax } from "./launch_log.ts";
import { loadCounts } from "./permission_fold.ts";
import { type PermissionReport, PermissionTally, sumRows } from "./permission_report.ts";
import { type Given, runProgram } from "./program.ts";

const help =
  `What each role was granted at its last start, what it used of that, and what it was refused, over its last 20 lives.
A life under other flags (another address in a file, say) counts for what it was refused alone.

  deno task permissions [--home DIR] [--json]

  --home DIR  the home; else $BOXMAKER_HOME, else $HOME/.boxmaker
  --json      one object: {roles: [{role, time, launches, granted, denied}]}, rows of {permission, value, count}
  --help      this text

A grant that was never used is a finding: the process may do more than it needs.`;

export interface RoleReport extends PermissionReport {
  readonly role: string;
  /** Start of the last launch, whose grants these are. */
  readonly time: string;
  /** Launches whose checks are counted: those whose permission files are still kept. */
  readonly launches: number;
  /** Bytes of checks that were made while a file was being emptied (permission_fold.ts); absent where none were. */
  readonly lostBytes?: number;
}

/** A line longer than this is no record of ours. */
const lineCharactersMax = 1_048_576;

/** One report for each role that was ever started in this home. */
export async function permissionReports(paths: HomePaths): Promise<RoleReport[]> {
  const records = new Map<string, LaunchRecord[]>(roleNames.map((role) => [role, []]));
  for await (const line of fileLines(paths.launches)) {
    const record = parseLaunch(line, paths);
    if (record === undefined) continue;
    const ofRole = records.get(record.role) ?? [];
    ofRole.push(record);
    if (ofRole.length > permissionFilesMax) ofRole.shift();
  }
  const reports: RoleReport[] = [];
  for (const [role, launches] of records) {
    const last = launches.at(-1);
    if (last !== undefined) reports.push({ role, ...await reportOf(paths, launches, last) });
  }
  return reports;
}

/**
 * Use and refusals of the last flags over all lives under them: a role that was refused, died and came back shows it. Refusals under
 * other flags (another address in the file) count by those.
 */
async function reportOf(paths: HomePaths, launches: readonly LaunchRecord[], last: LaunchRecord) {
  const tallies = new Map<string, PermissionTally>();
  let lostBytes = 0;
  for (const { role, argv, time } of launches) {
    const flags = JSON.stringify(argv);
    const tally = tallies.get(flags) ?? new PermissionTally(argv);
    tallies.set(flags, tally);
    const file = permissionFile(paths, role, time);
    const counts = loadCounts(file);
    if (counts !== undefined) tally.addCounts(counts);
    lostBytes += counts?.lostBytes ?? 0;
    for await (const line of fileLines(file, counts?.bytes)) tally.addLine(line);
  }
  const reports = [...tallies].map(([flags, tally]) => ({
    isLast: flags === JSON.stringify(last.argv),
    ...tally.report(),
  }));
  return {
    time: last.time,
    launches: launches.length,
    ...(lostBytes === 0 ? {} : { lostBytes }),
    granted: reports.find(({ isLast }) => isLast)?.granted ?? [],
    denied: sumRows(reports.flatMap(({ denied }) => denied)),
  };
}

/** Lines of a file from a byte on, without the hole that may stand there; none where it is absent. */
async function* fileLines(path: string, from = 0): AsyncGenerator<string> {
  let file: Deno.FsFile;
  try {
    file = await Deno.open(path, { read: true });
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return;
    throw error;
  }
  await file.seek(from, Deno.SeekMode.Start);
  let rest = "";
  for await (const text of file.readable.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split("\n");
    rest = (lines.pop() ?? "").slice(0, lineCharactersMax);
    for (const one of lines) yield one.replace(/^\0+/, "");
  }
}

function printReport({ role, time, launches, granted, denied, lostBytes }: RoleReport): void {
  const lives = `the last ${launches} launch${launches === 1 ? "" : "es"}`;
  console.log(`${role}, started ${time}; of ${lives}: uses under these very flags, and every refusal`);
  for (const { permission, value, count } of granted) {
    const use = count === 0 ? "granted, never used" : `granted, used ${count} times`;
    console.log(`  ${permission.padEnd(6)} ${use.padEnd(26)} ${value}`);
  }
  for (const { permission, value, count } of denied) {
    console.log(`  ${permission.padEnd(6)} ${`DENIED ${count} times`.padEnd(26)} ${value}`);
  }
  if (lostBytes !== undefined) {
    console.log(`  ${lostBytes} bytes of checks were made while a file was emptied, and are lost`);
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
