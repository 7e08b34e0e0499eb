// The floor by itself: what everything else is held against.

import { type Around, type Bench, type Findings, sampled } from "./bench.ts";
import { startFloor } from "./floor.ts";
import { clockCall, noon } from "./replies.ts";
import { startScriptedServer } from "./scripted_server.ts";

const iterations = 12;

export const floorBench: Bench = {
  name: "floor",
  about:
    "The least that an agent with a durable log can do, as a program of about 50 lines (floor_loop.ts): ask, parse the stream, append each record with " +
    "fdatasync, answer the call, ask again; its connection to the server is kept. Bounded by two fsyncs and one round trip an iteration. Every bench " +
    "that compares with it takes it anew, in the same run.",
  run,
};

async function run({ quick }: Around): Promise<Findings> {
  await using server = startScriptedServer();
  server.script = ({ order }) => order <= iterations ? clockCall : noon;
  const directory = await Deno.makeTempDir({ prefix: "bx-bench-" });
  try {
    await using floor = startFloor(server.url, directory);
    const samples: number[] = [];
    const shares: number[] = [];
    for (let round = 0; round <= (quick ? 10 : 50); round++) {
      server.reset();
      await floor.converse(`${directory}/${round}.jsonl`);
      if (round === 0) continue;
      const { arrivals } = server;
      samples.push(...arrivals.slice(1).map(({ wholeAt }, at) => wholeAt - arrivals[at].wholeAt));
      shares.push(...arrivals.map(({ headAt, answeredAt }) => answeredAt - headAt));
    }
    const appends: number[] = [];
    using file = await Deno.open(`${directory}/append`, { append: true, create: true });
    const line = new Uint8Array(300).fill(0x61);
    for (let round = 0; round < (quick ? 200 : 1_000); round++) {
      const began = performance.now();
      await file.write(line);
      await file.syncData();
      appends.push(performance.now() - began);
    }
    return {
      figures: [
        sampled("floor.iteration", "one iteration", samples),
        sampled("floor.server", "of that, the scripted server's own share", shares),
        sampled("floor.append", "one append and fdatasync", appends),
      ],
    };
  } finally {
    await Deno.remove(directory, { recursive: true });
  }
}
