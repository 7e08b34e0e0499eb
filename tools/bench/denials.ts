// How many decisions a second brokerd makes durable.

import { type Around, type Bench, type Findings, median, ratio, sampled } from "./bench.ts";
import { benchHome, startRoles } from "./bench_home.ts";
import { denialsPerSecond } from "./broker_load.ts";
import { makeDisklessBroker } from "./diskless_broker.ts";

const callerCounts = [1, 8, 64] as const;

export const denials: Bench = {
  name: "denials",
  about:
    "Denied consults a second with 1, 8 and 64 callers, each on its own connection, each waiting for its durable answer; and the same path " +
    "with the disk taken away: brokerd's own start with files that take each byte and keep none, so records are still decided, encoded " +
    "and hashed. With one caller bounded by one fsync a call; with 64 by the one thread that parses, decides and hashes, since whoever comes " +
    "while an fsync runs shares the next. The callers run on the other core.",
  run,
};

async function run({ quick, progress }: Around): Promise<Findings> {
  const ms = quick ? 700 : 3_000;
  await using diskless = await makeDisklessBroker();
  const brokerdToml = `[consult]\nurl = "http://127.0.0.1:9/v1"\nmodel = "big"\nsecret = "consult"\n`;
  await using home = await benchHome("http://127.0.0.1:9", { brokerdToml });
  await using _roles = await startRoles(home);
  await using barren = await benchHome("http://127.0.0.1:9", { brokerdToml });
  await using _barrenRoles = await startRoles(barren, { entries: { brokerd: diskless.entry } });

  const durable = new Map<number, number[]>();
  const without = new Map<number, number[]>();
  for (const socket of [home.paths.brokerSocket, barren.paths.brokerSocket]) {
    await denialsPerSecond(socket, 64, ms);
  }
  // In turns, so that a busy moment hits both.
  for (let round = 0; round < 3; round++) {
    for (const callers of callerCounts) {
      progress(`round ${round + 1} of 3, ${callers} callers`);
      push(durable, callers, await denialsPerSecond(home.paths.brokerSocket, callers, ms));
      push(without, callers, await denialsPerSecond(barren.paths.brokerSocket, callers, ms));
    }
  }
  const figures = callerCounts.flatMap((callers) => {
    const with_ = durable.get(callers)!;
    const without_ = without.get(callers)!;
    const many = callers === 64;
    return [
      sampled(`denials.${callers}`, `durable denials, ${callers} callers`, with_, {
        unit: "/s",
        target: many ? { atLeast: 10_000 } : undefined,
      }),
      sampled(`denials.${callers}-diskless`, `  without the disk`, without_, { unit: "/s" }),
      ratio(`denials.${callers}-ratio`, "  durable, times without", {
        value: median(with_),
        over: median(without_),
      }, { target: many ? { atLeast: 0.5 } : undefined }),
    ];
  });
  return {
    figures,
    curves: [{
      id: "denials",
      title: "Durable denials a second",
      xLabel: "callers",
      yLabel: "denials a second",
      series: [
        { name: "durable", points: callerCounts.map((callers) => [callers, median(durable.get(callers)!)]) },
        {
          name: "without the disk",
          points: callerCounts.map((callers) => [callers, median(without.get(callers)!)]),
        },
      ],
    }],
  };
}

function push(into: Map<number, number[]>, key: number, value: number): void {
  into.set(key, [...into.get(key) ?? [], value]);
}
