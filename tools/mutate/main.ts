// `deno task mutate`: does the suite notice when brokerd or core is wrong? Applies each deliberate fault of faults.ts to a copy of the
// checkout, one at a time, and runs the tests that are to fail. Prints `N of N caught`; exit 1 where one survives, no longer fits the code,
// or breaks the program instead of its behaviour. Never touches the checkout.

import { parseArgs } from "node:util";
import { exitCodes } from "../../core/errors.ts";
import { type Fault, faults } from "./faults.ts";
import { copyCheckout, type Scratch } from "./scratch.ts";

/** A fault may leave a test waiting for ever: it has this long, and several times what the sound test took on this machine. */
const testMsMin = 20_000;
const timesSound = 4;
const soundMsMax = 300_000;
const jobsMax = 8;

type Verdict = "caught" | "caught by the clock" | "SURVIVED" | "DOES NOT LOAD" | "DOES NOT FIT";

const help = `Applies deliberate faults to a copy of the checkout and counts those that the tests notice.

  deno task mutate [--only TEXT] [--jobs N] [--json]

  --only TEXT  the faults whose name or file holds this text
  --jobs N     faults at work at once (default 2)
  --json       one JSON object a line

Exit codes: 0 all caught, 1 not all, 2 usage.`;

const checkout = new URL("../..", import.meta.url).pathname.replace(/\/$/, "");

/** Ctrl-C ends the running tests and removes the copies. */
const stop = new AbortController();

interface Ran {
  readonly passed: boolean;
  readonly late: boolean;
  /** The tests' modules loaded, and some test began. */
  readonly began: boolean;
  readonly output: string;
}

async function runTests(root: string, tests: readonly string[], msMax: number): Promise<Ran> {
  const child = new Deno.Command(Deno.execPath(), {
    // Without a type check: what is to notice is a test, not the compiler.
    args: ["test", "-A", "--frozen", "-q", "--no-check", "--fail-fast", ...tests],
    cwd: root,
    env: { NO_COLOR: "1" },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
    signal: stop.signal,
  }).spawn();
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    child.kill("SIGKILL");
  }, msMax);
  const { success, stdout, stderr } = await child.output();
  clearTimeout(timer);
  const decoder = new TextDecoder();
  const output = decoder.decode(stdout) + decoder.decode(stderr);
  return { passed: success, late, began: /^running [1-9]\d* tests? from/m.test(output), output };
}

async function loads(root: string, file: string): Promise<boolean> {
  const { success } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-q", "--frozen", "--no-check", "--allow-read", file],
    cwd: root,
    stdin: "null",
    stdout: "null",
    stderr: "null",
  }).output();
  return success;
}

async function judge(scratch: Scratch, fault: Fault, msMax: number): Promise<Verdict> {
  try {
    return await scratch.withReplaced(fault, async () => {
      if (!await loads(scratch.root, fault.file)) return "DOES NOT LOAD";
      const { passed, late, began } = await runTests(scratch.root, fault.tests, msMax);
      if (late) return "caught by the clock";
      if (passed) return "SURVIVED";
      return began ? "caught" : "DOES NOT LOAD";
    });
  } catch (error) {
    if (error instanceof Error && error.message.includes("wanted once")) return "DOES NOT FIT";
    throw error;
  }
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      only: { type: "string" },
      jobs: { type: "string", default: "2" },
      json: { type: "boolean" },
      help: { type: "boolean", short: "h" },
    },
  });
  const jobs = Number(values.jobs);
  if (values.help || !Number.isInteger(jobs) || jobs < 1 || jobs > jobsMax) {
    console.log(help);
    return values.help ? exitCodes.done : exitCodes.usage;
  }
  const { only = "" } = values;
  const chosen = faults.filter(({ name, file }) => name.includes(only) || file.includes(only));
  const began = performance.now();
  for (const signal of ["SIGINT", "SIGTERM"] as const) Deno.addSignalListener(signal, () => stop.abort());

  await using scratches = new AsyncDisposableStack();
  const copies: Scratch[] = [];
  for (let job = 0; job < jobs; job++) copies.push(scratches.use(await copyCheckout(checkout)));

  // A test that fails without any fault would seem to catch them all.
  const soundMs = new Map<string, number>();
  const unsound: string[] = [];
  await eachOf(new Set(chosen.flatMap(({ tests }) => tests)), copies, async (test, { root }) => {
    const start = performance.now();
    const { passed, output } = await runTests(root, [test], soundMsMax);
    soundMs.set(test, performance.now() - start);
    if (!passed) unsound.push(`${output}\n${test} fails without any fault; nothing can be said`);
  });
  if (stop.signal.aborted) return exitCodes.failed;
  if (unsound.length > 0) {
    console.error(unsound.join("\n"));
    return exitCodes.failed;
  }

  let caught = 0;
  await eachOf(chosen, copies, async (fault, scratch) => {
    const { name, file, tests } = fault;
    const soundTogetherMs = tests.reduce((sum, test) => sum + (soundMs.get(test) ?? 0), 0);
    const verdict = await judge(scratch, fault, testMsMin + timesSound * soundTogetherMs);
    if (stop.signal.aborted) return;
    if (verdict.startsWith("caught")) caught++;
    console.log(values.json ? JSON.stringify({ name, file, verdict }) : `${verdict}: ${name} (${file})`);
  });
  const seconds = Math.round((performance.now() - began) / 1_000);
  console.log(
    values.json
      ? JSON.stringify({ caught, of: chosen.length, seconds })
      : `${caught} of ${chosen.length} caught in ${seconds} s`,
  );
  return caught === chosen.length ? exitCodes.done : exitCodes.failed;
}

/** Each copy takes the next item as soon as it is free, until all are done or it is stopped. */
async function eachOf<T>(
  items: Iterable<T>,
  copies: readonly Scratch[],
  act: (item: T, scratch: Scratch) => Promise<void>,
): Promise<void> {
  const waiting = [...items];
  await Promise.all(copies.map(async (scratch) => {
    for (let item = waiting.shift(); item !== undefined; item = waiting.shift()) {
      if (stop.signal.aborted) return;
      await act(item, scratch);
    }
  }));
}

if (import.meta.main) Deno.exit(await main());
