// What the roles take of the device's memory.

import { type Around, type Bench, type Figure, type Findings } from "./bench.ts";
import { benchHome, startRoles } from "./bench_home.ts";
import { startFloor } from "./floor.ts";
import { noon } from "./replies.ts";
import { startScriptedServer } from "./scripted_server.ts";

const settleMs = 2_000;
const turnsEach = 20;

export const memory: Bench = {
  name: "memory",
  about:
    "Resident memory of each role when it has been ready for two seconds, and after 1,000 turns in 50 sessions. Both roles map the same Deno " +
    "binary, and the kernel counts its pages in each: what both take together is the memory of each alone plus the mapped pages once. " +
    "Bounded below by Deno itself, zod and node:http; above, by how far V8 lets its heap grow before it collects.",
  run,
};

async function run({ quick, progress }: Around): Promise<Findings> {
  const turns = quick ? 100 : 1_000;
  await using server = startScriptedServer();
  server.script = () => noon;
  await using home = await benchHome(server.url);
  const floorDirectory = `${home.paths.home}/floor`;
  await Deno.mkdir(floorDirectory);
  await using floor = startFloor(server.url, floorDirectory);
  await floor.converse(`${floorDirectory}/0.jsonl`);
  await using roles = await startRoles(home);
  const look = () => ({ loopd: resident(roles.pids.loopd), brokerd: resident(roles.pids.brokerd) });
  await settle();
  const idle = look();
  const floorIdle = resident(floor.pid);
  const points = { loopd: [[0, idle.loopd.all]], brokerd: [[0, idle.brokerd.all]] } as Record<
    string,
    [number, number][]
  >;
  let session = "";
  for (let turn = 0; turn < turns; turn++) {
    if (turn % turnsEach === 0) session = await roles.newSession();
    await roles.send(session, "What time is it?");
    if ((turn + 1) % (turns / 10) !== 0) continue;
    progress(`${turn + 1} of ${turns} turns`);
    const now = look();
    points.loopd.push([turn + 1, now.loopd.all]);
    points.brokerd.push([turn + 1, now.brokerd.all]);
  }
  await settle();
  const after = look();

  const figure = (id: string, title: string, value: number, more: Partial<Figure> = {}): Figure => ({
    id: `memory.${id}`,
    title,
    value,
    unit: "MB",
    ...more,
  });
  return {
    figures: [
      figure("loopd", "loopd, idle: resident", idle.loopd.all),
      figure("brokerd", "brokerd, idle: resident", idle.brokerd.all),
      figure("idle", "both together, shared pages once", together(idle), { target: { atMost: 120 } }),
      figure("idle-sum", "both together, shared pages twice", idle.loopd.all + idle.brokerd.all),
      figure("grown", `more after ${turns} turns`, together(after) - together(idle), {
        target: { atMost: 40 },
      }),
      figure("floor", "floor loop, after one conversation: resident", floorIdle.all),
    ],
    curves: [{
      id: "memory",
      title: "Resident memory over turns",
      xLabel: "turns",
      yLabel: "MB",
      series: Object.entries(points).map(([name, points]) => ({ name, points })),
    }],
  };
}

/** In MB. */
interface Resident {
  readonly all: number;
  readonly own: number;
  readonly mapped: number;
}

function resident(pid: number): Resident {
  const status = Deno.readTextFileSync(`/proc/${pid}/status`);
  const read = (name: string) =>
    Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(status)?.[1] ?? NaN) / 1_024;
  return { all: read("VmRSS"), own: read("RssAnon"), mapped: read("RssFile") };
}

function together({ loopd, brokerd }: { loopd: Resident; brokerd: Resident }): number {
  return loopd.own + brokerd.own + Math.max(loopd.mapped, brokerd.mapped);
}

function settle(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, settleMs));
}
