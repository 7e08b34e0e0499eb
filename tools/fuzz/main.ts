// `deno task fuzz`: fuzzes the three sockets of real roles and the two log readers, and prints what was done and what was found.
// Works in a private temporary home, reaches loopback alone, leaves nothing behind. Exit 1 on any finding.

import { parseArgs } from "node:util";
import { exitCodes } from "../../core/errors.ts";
import { fuzz, type FuzzReport } from "./run.ts";

const help = `Fuzzes the three sockets and the two log readers.

  deno task fuzz [--minutes N] [--seed N] [--json]

  --minutes N  how long (default 10; fractions allowed)
  --seed N     where chance begins (default: the time); the same seed makes the same requests
  --json       the report as one JSON object

Exit codes: 0 nothing found, 1 something found, 2 usage.`;

const minutesMax = 24 * 60;

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      minutes: { type: "string", default: "10" },
      seed: { type: "string" },
      json: { type: "boolean" },
      help: { type: "boolean", short: "h" },
    },
  });
  const minutes = Number(values.minutes);
  const seed = values.seed === undefined ? Date.now() % 2 ** 32 : Number(values.seed);
  const isUsable = minutes > 0 && minutes <= minutesMax && Number.isInteger(seed) && seed >= 0 &&
    seed < 2 ** 32;
  if (values.help || !isUsable) {
    console.log(help);
    return values.help ? exitCodes.done : exitCodes.usage;
  }
  // Ctrl-C ends the run early, with its report, and leaves nothing behind.
  const stop = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) Deno.addSignalListener(signal, () => stop.abort());
  const report = await fuzz({
    signal: stop.signal,
    seed,
    milliseconds: minutes * 60_000,
    onProgress: values.json ? undefined : (text) => console.log(text),
  });
  console.log(values.json ? JSON.stringify(report) : describe(report));
  return report.findings.length === 0 ? exitCodes.done : exitCodes.failed;
}

function describe(report: FuzzReport): string {
  const {
    seed,
    seconds,
    counts,
    peakMebibytes,
    roleExits,
    auditRecords,
    auditExit,
    arrived,
    allowed,
    findings,
  } = report;
  return [
    `seed ${seed}, ${seconds} s`,
    ...Object.entries(counts).map(([name, count]) => `  ${name}: ${count}`),
    `role exits: ${roleExits}`,
    `peak memory in MiB: ${
      Object.entries(peakMebibytes).map(([role, peak]) => `${role} ${peak}`).join(", ")
    }`,
    `audit log: ${auditRecords} records, verify exit ${auditExit}`,
    `bodies that arrived: ${arrived}; that the log allowed: ${allowed}`,
    `findings: ${findings.length}`,
    ...findings.map(({ what, how }) => `  ${what}\n    ${how}`),
  ].join("\n");
}

if (import.meta.main) Deno.exit(await main());
