// `deno task bench`: what Boxmaker costs, as figures and ratios of one run, each beside what it is held against. Works in private temporary homes
// and on loopback; the owner's home is neither read nor written.

import { dirname, join, relative, resolve } from "node:path";
import { parseArgs } from "node:util";
import { describeError, exitCodes } from "../../core/errors.ts";
import { type Bench, isMet } from "./bench.ts";
import { brokeredCall } from "./brokered_call.ts";
import { coldStart } from "./cold_start.ts";
import { denials } from "./denials.ts";
import { firstRequestBytes } from "./first_request_bytes.ts";
import { floorBench } from "./floor_bench.ts";
import { memory } from "./memory.ts";
import { messageToRequest } from "./message_to_request.ts";
import { realServer } from "./real_server.ts";
import { recall } from "./recall.ts";
import { machine, replaceBlock, type Result, tell, toJson, toMarkdown } from "./report.ts";
import { roleStart } from "./role_start.ts";
import { sessionOpen } from "./session_open.ts";
import { spawnChild } from "./spawn_child.ts";
import { plot } from "./svg.ts";
import { toolIteration } from "./tool_iteration.ts";

/** In the order in which they run. */
const benches: readonly Bench[] = [
  floorBench,
  toolIteration,
  messageToRequest,
  coldStart,
  spawnChild,
  brokeredCall,
  denials,
  memory,
  firstRequestBytes,
  sessionOpen,
  roleStart,
  recall,
];

const help = `Measures what Boxmaker costs, beside a minimal loop and bare system calls in the same run.

  deno task bench [--quick] [--only NAME]… [--json FILE] [--svg DIR] [--doc FILE] [--dir DIR] [--real URL]

  --only NAME  one bench; may be given again. Names: ${benches.map(({ name }) => name).join(", ")}
  --quick      fewer rounds and smaller sizes, under 90 s
  --json FILE  all figures and curves
  --svg DIR    the growth curves as small plots
  --doc FILE   the figures into their block of this page; with --real into the block of that check. Wants all benches.
  --dir DIR    where the temporary homes lie; default the system's temporary directory. Wants a disk whose fsync is real.
  --real URL   only the prefix check against a llama.cpp server with three slots, on loopback
  --about      what each bench measures and what bounds it
  --help       this text

Exit codes: 0 all were taken, 1 one could not be, 2 usage. A missed target is said, and is no failure.`;

interface Options {
  readonly chosen: readonly Bench[];
  readonly quick: boolean;
  readonly json?: string;
  readonly svg?: string;
  /** The page, and which of its blocks. */
  readonly page?: { readonly path: string; readonly block: "figures" | "real" };
}

async function run({ chosen, quick, json, svg, page }: Options): Promise<number> {
  const about = { machine: await machine(), quick, time: new Date().toISOString() };
  const load = [Deno.loadavg()];
  console.log(
    `${about.machine.processor}, ${about.machine.cores} cores, ${about.machine.system}, Deno ${about.machine.deno}; ` +
      `load ${load[0][0].toFixed(2)}${quick ? "; quick" : ""}\n`,
  );
  const results: Result[] = [];
  for (const bench of chosen) {
    const result = await take(bench, quick);
    results.push(result);
    console.log(`${tell(result)}\n`);
    load.push(Deno.loadavg());
    // Each time, so that a run that is cut short leaves what it had.
    if (json !== undefined) await Deno.writeTextFile(json, toJson(results, { ...about, load }));
    if (svg !== undefined) await writePlots(result, svg);
  }
  if (page !== undefined) {
    const images = svg === undefined ? "img" : relative(dirname(page.path), svg);
    const text = toMarkdown(results, { ...about, load, images });
    await Deno.writeTextFile(page.path, replaceBlock(await Deno.readTextFile(page.path), page.block, text));
  }
  const judged = results.flatMap(({ findings }) => findings?.figures ?? []).filter(({ target }) => target);
  const met = judged.filter((figure) => isMet(figure)).length;
  console.log(
    `${met} of ${judged.length} targets met; load ${load.map(([one]) => one.toFixed(1)).join(" ")}`,
  );
  return results.some(({ failed }) => failed !== undefined) ? exitCodes.failed : exitCodes.done;
}

async function take(bench: Bench, quick: boolean): Promise<Result> {
  const began = performance.now();
  const progress = (text: string) => {
    if (Deno.stderr.isTerminal()) console.error(`… ${bench.name}: ${text}`);
  };
  try {
    const findings = await bench.run({ quick, progress });
    return { bench, findings, tookMs: performance.now() - began };
  } catch (error) {
    const failed = error instanceof Error ? error.stack ?? error.message : describeError(error);
    return { bench, findings: undefined, failed, tookMs: performance.now() - began };
  }
}

async function writePlots({ findings }: Result, directory: string): Promise<void> {
  await Deno.mkdir(directory, { recursive: true });
  for (const curve of findings?.curves ?? []) {
    await Deno.writeTextFile(join(directory, `${curve.id}.svg`), plot(curve));
  }
}

function parseOptions(args: string[]): Options & { dir?: string } | "help" | "about" {
  const { values } = parseArgs({
    args,
    options: {
      only: { type: "string", multiple: true, default: [] },
      quick: { type: "boolean", default: false },
      json: { type: "string" },
      svg: { type: "string" },
      doc: { type: "string" },
      dir: { type: "string" },
      real: { type: "string" },
      about: { type: "boolean" },
      help: { type: "boolean", short: "h" },
    },
  });
  if (values.help) return "help";
  if (values.about) return "about";
  const unknown = values.only.find((name) => !benches.some((bench) => bench.name === name));
  if (unknown !== undefined) {
    throw new RangeError(
      `${JSON.stringify(unknown)} is no bench, wanted one of ${benches.map(({ name }) => name).join(", ")}`,
    );
  }
  const chosen = values.real !== undefined
    ? [realServer(values.real)]
    : benches.filter(({ name }) => values.only.length === 0 || values.only.includes(name));
  const { quick, json, svg, doc, dir, only, real } = values;
  if (doc !== undefined && only.length > 0) throw new RangeError("--doc wants all benches, so no --only");
  return {
    chosen,
    quick,
    json: json && resolve(json),
    svg: svg && resolve(svg),
    page: doc === undefined
      ? undefined
      : { path: resolve(doc), block: real === undefined ? "figures" : "real" },
    dir: dir && resolve(dir),
  };
}

/** Everything temporary lies below one directory, which goes with the process, a signal included. */
async function withTemporary(dir: string | undefined, work: () => Promise<number>): Promise<number> {
  const own = await Deno.makeTempDir({ prefix: "bxb-", dir });
  Deno.env.set("TMPDIR", own);
  const remove = () => {
    try {
      Deno.removeSync(own, { recursive: true });
    } catch {
      // A role that ends a moment later may still write; its home is then left to the system.
    }
  };
  for (const [signal, code] of [["SIGINT", 130], ["SIGTERM", 143]] as const) {
    Deno.addSignalListener(signal, () => {
      remove();
      Deno.exit(code);
    });
  }
  try {
    return await work();
  } finally {
    remove();
  }
}

if (import.meta.main) {
  let options: ReturnType<typeof parseOptions>;
  try {
    options = parseOptions(Deno.args);
  } catch (error) {
    console.error(`bench: ${describeError(error).split(". ")[0]}\n\n${help}`);
    Deno.exit(exitCodes.usage);
  }
  if (options === "help" || options === "about") {
    console.log(
      options === "help" ? help : benches.map(({ name, about }) => `${name}\n  ${about}`).join("\n\n"),
    );
    Deno.exit(exitCodes.done);
  }
  const given = options;
  Deno.exit(await withTemporary(given.dir, () => run(given)));
}
