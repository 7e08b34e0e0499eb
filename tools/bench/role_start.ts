// Whether either role's start grows with what it has behind it.

import { type Around, type Bench, type Findings, median, ratio, sampled } from "./bench.ts";
import { writeAuditLog } from "./audit_generator.ts";
import { benchHome, startRoles } from "./bench_home.ts";
import { readTemplate, writeLongSession } from "./long_session.ts";
import { clockCall, noon } from "./replies.ts";
import { startScriptedServer } from "./scripted_server.ts";

const recordsPerTurn = 5;
/** In the last segment of each longer log, so that what differs is what lies before it. */
const lastSegmentRecords = 10_000;
/** Just below what fills one segment of 16 MiB. */
const fullSegmentRecords = 32_000;

export const roleStart: Bench = {
  name: "role-start",
  about:
    "Each role from its start to ready on homes with an empty log and with logs of 10,000 to 1,000,000 records: brokerd on an audit log, loopd on " +
    "one session. brokerd verifies and folds the last segment alone, so the last segments here hold 10,000 records each, however many lie before " +
    "them; a log of one full segment (16 MiB, 32,000 records) stands beside them, and is the most that a start reads. loopd reads the end of each " +
    "session's log.",
  run,
};

async function run({ quick, progress }: Around): Promise<Findings> {
  const sizes = quick ? [0, 10_000, 100_000] : [0, 10_000, 100_000, 1_000_000];
  const rounds = quick ? 2 : 5;
  await using server = startScriptedServer();
  const taken = new Map<number, { loopd: number[]; brokerd: number[]; segments: number }>();
  for (const records of sizes) {
    progress(`writing ${records} records`);
    await using home = await benchHome(server.url);
    const { segments } = records === 0 ? { segments: 0 } : await writeAuditLog(home.paths.audit, records, {
      lastSegmentRecords,
    });
    const loopd: number[] = [];
    const brokerd: number[] = [];
    for (let round = 0; round <= rounds; round++) {
      await using roles = await startRoles(home);
      if (round > 0) {
        loopd.push(roles.readyMs.loopd);
        brokerd.push(roles.readyMs.brokerd);
      } else if (records > 0) {
        // The first start is used to have loopd write what the long session is made of.
        server.reset();
        server.script = ({ order }) => order % 2 === 1 ? clockCall : noon;
        const first = await roles.newSession();
        await roles.send(first, "What time is it?");
        const template = await readTemplate(home.paths, first);
        await writeLongSession(home.paths, "chat-long", { template, turns: records / recordsPerTurn });
      }
    }
    taken.set(records, { loopd, brokerd, segments });
  }
  const full = await startsOnFullSegment(server.url, rounds);
  const largest = taken.get(sizes[sizes.length - 1])!;
  const least = taken.get(sizes[1])!;
  const shown = (records: number) => records.toLocaleString("en");
  const points = (role: "loopd" | "brokerd") =>
    [...taken].map(([records, samples]) => [Math.max(1, records), median(samples[role])] as const);
  return {
    figures: [
      ...[...taken].map(([records, { brokerd, segments }]) =>
        sampled(`role-start.brokerd-${records}`, `brokerd, audit log of ${shown(records)} records`, brokerd, {
          note: `${segments} segments`,
        })
      ),
      sampled("role-start.brokerd-full", "brokerd, one full segment", full),
      ...[...taken].map(([records, { loopd }]) =>
        sampled(`role-start.loopd-${records}`, `loopd, session of ${shown(records)} records`, loopd)
      ),
      ratio("role-start.brokerd-flat", `brokerd, ${shown(sizes[sizes.length - 1])} over ${shown(sizes[1])}`, {
        value: median(largest.brokerd),
        over: median(least.brokerd),
      }, { target: { atMost: 1.5 } }),
      ratio("role-start.loopd-flat", `loopd, ${shown(sizes[sizes.length - 1])} over ${shown(sizes[1])}`, {
        value: median(largest.loopd),
        over: median(least.loopd),
      }, { target: { atMost: 1.5 } }),
    ],
    curves: [{
      id: "role-start",
      title: "Start to ready, by the length of the log",
      xLabel: "records",
      yLabel: "ms",
      series: [{ name: "brokerd", points: points("brokerd") }, { name: "loopd", points: points("loopd") }],
    }],
  };
}

async function startsOnFullSegment(url: string, rounds: number): Promise<number[]> {
  await using home = await benchHome(url);
  await writeAuditLog(home.paths.audit, fullSegmentRecords);
  const starts: number[] = [];
  for (let round = 0; round <= rounds; round++) {
    await using roles = await startRoles(home);
    if (round > 0) starts.push(roles.readyMs.brokerd);
  }
  return starts;
}
