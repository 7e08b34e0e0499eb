// What a long session costs: to open, and then each turn.

import { type Around, type Bench, type Findings, median, ratio, sampled } from "./bench.ts";
import { type BenchHome, benchHome, type Roles, startRoles } from "./bench_home.ts";
import { startFloor } from "./floor.ts";
import { readTemplate, type Template, writeFloorLog, writeLongSession } from "./long_session.ts";
import { clockCall, noon } from "./replies.ts";
import { type ScriptedServer, startScriptedServer } from "./scripted_server.ts";

const recordsPerTurn = 5;
const messagesPerTurn = 4;

export const sessionOpen: Bench = {
  name: "session",
  about:
    "loopd runs and has never opened the session: from a message on the socket to its request at the server, for logs of 100 to 100,000 " +
    "records, the compaction threshold raised so that all of them are sent; then the next turn, open by now. Beside it the floor loop on as many " +
    "messages, started anew as the peers were, and once more running. Opening is bounded by reading, parsing and checking each record once; a turn " +
    "by the bytes that it sends. With a compacted log, a turn sends the last epoch alone, whatever the log's length.",
  run,
};

interface Taken {
  readonly open: number[];
  readonly next: number[];
  readonly compacted: number[];
}

async function run({ quick, progress }: Around): Promise<Findings> {
  const sizes = quick ? [100, 1_000, 10_000] : [100, 1_000, 10_000, 100_000];
  await using server = startScriptedServer();
  await using home = await benchHome(server.url, { loopdToml: "[compact]\nthreshold_tokens = 10000000\n" });
  await using roles = await startRoles(home);
  server.script = ({ order }) => order % 2 === 1 ? clockCall : noon;
  const first = await roles.newSession();
  await roles.send(first, "What time is it?");
  const template = await readTemplate(home.paths, first);
  server.script = () => noon;
  const long = new Long(home, roles, server, template);

  // What runs for the first time is compiled meanwhile.
  for (let round = 0; round < 3; round++) await long.open(200, false);
  const bySize = new Map<number, Taken>();
  for (const records of sizes) {
    progress(`${records} records`);
    const taken: Taken = { open: [], next: [], compacted: [] };
    const turns = Math.round(records / recordsPerTurn);
    for (let round = 0; round < (quick ? 3 : records >= 100_000 ? 3 : 7); round++) {
      const whole = await long.open(turns, false);
      taken.open.push(whole.open);
      taken.next.push(...whole.next);
      taken.compacted.push(...(await long.open(turns, true)).next);
    }
    bySize.set(records, taken);
  }

  progress("5,000 messages, beside the floor");
  const five = { open: [] as number[], started: [] as number[], running: [] as number[] };
  for (let round = 0; round < (quick ? 4 : 12); round++) {
    five.open.push((await long.open(5_000 / messagesPerTurn, false)).open);
    const floor = await floorResume(home, server, template);
    five.started.push(floor.started);
    five.running.push(floor.running);
  }
  const curve = (name: string, of: (taken: Taken) => number[]) => ({
    name,
    points: [...bySize].map(([records, taken]) => [records, median(of(taken))] as const),
  });
  const largest = bySize.get(sizes[sizes.length - 1])!;
  const smallest = bySize.get(sizes[0])!;
  return {
    figures: [
      sampled("session.open-5000", "5,000 messages: message → first request", five.open),
      sampled("session.floor-5000", "floor loop, started anew on 5,000 messages", five.started),
      ratio("session.ratio", "  Boxmaker, times the floor", {
        value: median(five.open),
        over: median(five.started),
      }, { target: { atMost: 2 } }),
      sampled("session.floor-5000-running", "floor loop, running already", five.running),
      ratio("session.running-ratio", "  Boxmaker, times that", {
        value: median(five.open),
        over: median(five.running),
      }),
      ...[...bySize].map(([records, { open }]) =>
        sampled(`session.open-${records}`, `open at ${records.toLocaleString("en")} records`, open)
      ),
      ...[...bySize].map(([records, { next }]) =>
        sampled(
          `session.next-${records}`,
          `next turn at ${records.toLocaleString("en")}, all of it sent`,
          next,
        )
      ),
      ...[...bySize].map(([records, { compacted }]) =>
        sampled(
          `session.compacted-${records}`,
          `next turn at ${records.toLocaleString("en")}, compacted`,
          compacted,
        )
      ),
      ratio(
        "session.flat",
        "next turn, compacted: longest log over shortest",
        { value: median(largest.compacted), over: median(smallest.compacted) },
        { target: { atMost: 1.5 } },
      ),
    ],
    curves: [
      {
        id: "session-open",
        title: "First request of a session, by the length of its log",
        xLabel: "records",
        yLabel: "ms",
        series: [curve("opened for it", ({ open }) => open), curve("open already", ({ next }) => next)],
      },
      {
        id: "session-turn",
        title: "Message to request in a compacted session, by the length of its log",
        xLabel: "records",
        yLabel: "ms",
        series: [curve("compacted", ({ compacted }) => compacted)],
      },
    ],
  };
}

const nextTurns = 5;

class Long {
  #written = 0;

  constructor(
    readonly home: BenchHome,
    readonly roles: Roles,
    readonly server: ScriptedServer,
    readonly template: Template,
  ) {}

  /** Milliseconds from message to request: the first, that opens the session, and those that follow. */
  async open(turns: number, compacted: boolean): Promise<{ open: number; next: number[] }> {
    const session = `chat-long${++this.#written}`;
    await writeLongSession(this.home.paths, session, { template: this.template, turns, compacted });
    const open = await this.#turn(session);
    const next: number[] = [];
    for (let turn = 0; turn < nextTurns; turn++) next.push(await this.#turn(session));
    return { open, next };
  }

  async #turn(session: string): Promise<number> {
    this.server.reset();
    const began = performance.now();
    await this.roles.send(session, "And now?");
    return this.server.arrivals[0].wholeAt - began;
  }
}

async function floorResume(home: BenchHome, server: ScriptedServer, template: Template) {
  const directory = `${home.paths.home}/floor`;
  await Deno.mkdir(directory, { recursive: true });
  const path = `${directory}/log.jsonl`;
  const resume = async (converse: () => Promise<void>) => {
    await writeFloorLog(path, { template, turns: 5_000 / messagesPerTurn });
    server.reset();
    const began = performance.now();
    await converse();
    return server.arrivals[0].wholeAt - began;
  };
  let floor: ReturnType<typeof startFloor> | undefined;
  const started = await resume(() => {
    floor = startFloor(server.url, directory);
    return floor.converse(path);
  });
  await using running = floor!;
  return { started, running: await resume(() => running.converse(path)) };
}
