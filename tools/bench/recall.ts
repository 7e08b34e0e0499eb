// What recall costs, by how much there is to search.

import { join } from "node:path";
import { type Around, type Bench, type Findings, median, ratio, sampled } from "./bench.ts";
import { type BenchHome, benchHome, startRoles } from "./bench_home.ts";
import { logPath, readTemplate, type Template } from "./long_session.ts";
import { call, clockCall, noon } from "./replies.ts";
import { type ScriptedReply, type ScriptedServer, startScriptedServer } from "./scripted_server.ts";

/** Entries in one session. */
const entriesEach = 1_000;
const iterations = 8;

export const recall: Bench = {
  name: "recall",
  about:
    "One tool iteration with recall, over 1,000 to 1,000,000 entries in sessions of 1,000, for a word that stands in each entry, one that stands in " +
    "each hundredth, and one that stands in none. The first search after a start indexes what is new and is said apart. A search " +
    "ranks the newest 1,000 matches at most, so it is bounded by that and by the index's own walk, not by the number of entries.",
  run,
};

const queries = { common: "kettle", rare: "word17", absent: "zeppelin" } as const;

async function run({ quick, progress }: Around): Promise<Findings> {
  const sizes = quick ? [1_000, 10_000] : [1_000, 10_000, 100_000, 1_000_000];
  await using server = startScriptedServer();
  const taken = new Map<number, Record<keyof typeof queries | "clock", number[]>>();
  const indexed = new Map<number, number>();
  for (const entries of sizes) {
    progress(`${entries} entries`);
    await using home = await benchHome(server.url);
    await writeEntries(home, server, entries);
    await using roles = await startRoles(home);
    const iterate = async (reply: ScriptedReply, count: number) => {
      server.reset();
      server.script = ({ order }) => order <= count ? reply : noon;
      await roles.send(await roles.newSession(), "Do you remember?");
      const { arrivals } = server;
      return arrivals.slice(1).map(({ wholeAt }, at) => wholeAt - arrivals[at].wholeAt);
    };
    const search = (query: string) => call("recall", { query });
    indexed.set(entries, (await iterate(search(queries.absent), 1))[0]);
    const one = { clock: [], common: [], rare: [], absent: [] } as Record<string, number[]>;
    for (let round = 0; round < (quick ? 2 : 5); round++) {
      one.clock.push(...await iterate(clockCall, iterations));
      for (const [name, query] of Object.entries(queries)) {
        one[name].push(...await iterate(search(query), iterations));
      }
    }
    taken.set(entries, one);
  }
  const shown = (entries: number) => entries.toLocaleString("en");
  const last = sizes[sizes.length - 1];
  return {
    figures: [
      ...[...taken].flatMap(([entries, samples]) => [
        sampled(`recall.common-${entries}`, `${shown(entries)} entries, a word in each`, samples.common),
        sampled(`recall.rare-${entries}`, `${shown(entries)} entries, a word in one of 100`, samples.rare),
        sampled(`recall.absent-${entries}`, `${shown(entries)} entries, a word in none`, samples.absent),
      ]),
      sampled("recall.clock", "beside it: one iteration with clock", taken.get(last)!.clock),
      ratio("recall.growth", `a word in each, ${shown(last)} entries over ${shown(sizes[1])}`, {
        value: median(taken.get(last)!.common),
        over: median(taken.get(sizes[1])!.common),
      }, { target: { atMost: 2 } }),
      ...[...indexed].map(([entries, ms]) => ({
        id: `recall.index-${entries}`,
        title: `indexing ${shown(entries)} entries, once`,
        value: ms,
        unit: "ms" as const,
      })),
    ],
    curves: [{
      id: "recall",
      title: "One iteration with recall, by entries",
      xLabel: "entries",
      yLabel: "ms",
      series: Object.keys(queries).map((name) => ({
        name: `a word in ${
          { common: "each", rare: "one of 100", absent: "none" }[name as keyof typeof queries]
        }`,
        points: [...taken].map(([entries, samples]) =>
          [entries, median(samples[name as keyof typeof queries])] as const
        ),
      })),
    }],
  };
}

/** What loopd wrote of one session, with its user's text again and again. */
async function writeEntries(home: BenchHome, server: ScriptedServer, entries: number): Promise<void> {
  let template: Template;
  {
    await using roles = await startRoles(home);
    server.reset();
    server.script = () => noon;
    const first = await roles.newSession();
    await roles.send(first, "What time is it?");
    template = await readTemplate(home.paths, first);
  }
  const user = template.turn.find(({ kind }) => kind === "user");
  const end = template.turn.find(({ kind }) => kind === "end");
  for (let written = 0; written < entries; written += entriesEach) {
    const session = `chat-m${written / entriesEach}`;
    await Deno.mkdir(join(home.paths.sessions, session), { mode: 0o700 });
    const records = [
      ...template.opening.map((record) => record.kind === "open" ? { ...record, session } : record),
      ...Array.from({ length: entriesEach }, (_, entry) => ({
        ...user,
        text: `entry ${written + entry}: the kettle is on, and word${entry % 100} was said`,
      })),
      end,
    ];
    const text = records.map((record, index) => JSON.stringify({ ...record, seq: index + 1 }) + "\n").join(
      "",
    );
    await Deno.writeTextFile(logPath(home.paths, session), text, { mode: 0o600 });
  }
}
