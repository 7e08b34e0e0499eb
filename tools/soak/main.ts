// `deno task soak`: kills the roles at hundreds of drawn points, lets them come back, and looks whether anything was lost or done twice.
// Real processes in private temporary homes; the model and the cloud are practice servers in this process. A home with a finding is kept.

import { parseArgs } from "node:util";
import { describeError, exitCodes } from "../../core/errors.ts";
import { endOnSignals } from "../demo/interrupt.ts";
import type { Violation } from "./checks.ts";
import {
  describePoint,
  drawPoints,
  type Measure,
  type Mode,
  modes,
  type Point,
  pointSchema,
} from "./points.ts";
import { measure, playPoint, type RunOutcome } from "./run.ts";
import { openStage } from "./stage.ts";

const runsDefault = 500;
const jobsDefault = 2;
const jobsMax = 16;
const progressRuns = 10;
/** Runs with a finding, after which a soak ends: what is wrong is known by then. */
const failedRunsMax = 20;

const help =
  `Kills loopd, brokerd or both at drawn points of a turn with a child, a grandchild and consults, restarts them, and checks that
nothing was lost and nothing done twice.

  deno task soak [--runs N] [--seed N] [--modes L,B,LB] [--jobs N] [--point JSON] [--twice] [--json]

  --runs N    how many points (${runsDefault})
  --seed N    draws the same points again; printed at the start
  --modes M   who is killed: L loopd, B brokerd, LB both
  --jobs N    so many runs at a time (${jobsDefault})
  --point P   this one point, as a failed run has told it
  --twice     a second kill, while they come back
  --json      the last line of the output is one JSON object
  --help      this text

Exit codes: 0 every run holds, 1 one does not, 2 usage.`;

interface SoakOptions {
  readonly runs: number;
  readonly seed: number;
  readonly modes: readonly Mode[];
  readonly jobs: number;
  readonly point: Point | undefined;
  readonly twice: boolean;
  readonly json: boolean;
}

interface Failure {
  readonly point: Point;
  readonly violations: readonly Violation[];
  readonly home?: string;
}

async function main(options: SoakOptions, signal: AbortSignal): Promise<number> {
  const { seed, json } = options;
  const runs = options.point === undefined ? options.runs : 1;
  const began = performance.now();
  const secondsSoFar = () => Math.round((performance.now() - began) / 100) / 10;
  const measured = await measureOnce(signal);
  const { steps, modelRequests, consults, turnMs } = measured;
  console.log(
    `seed ${seed}: an undisturbed turn takes ${Math.round(turnMs)} ms, ${modelRequests} model requests, ` +
      `${consults} consults; loopd changes the disk ${steps.loopd} times, brokerd ${steps.brokerd} times`,
  );
  const failures: Failure[] = [];
  let played = 0;
  let inTheTurn = 0;
  const points = drawPoints({ ...options, measure: measured });
  let drawn = 0;
  const play = async () => {
    await using stage = await openStage();
    while (drawn < runs && failures.length < failedRunsMax && !signal.aborted) {
      drawn++;
      const point = options.point ?? points.next().value;
      const outcome = await playPoint(stage, point, signal);
      played++;
      if (outcome.reached) inTheTurn++;
      if (outcome.violations.length > 0) {
        tellFailure(point, outcome);
        failures.push({ point, violations: outcome.violations, home: outcome.home });
      }
      if (played % progressRuns === 0) {
        console.log(`${played} of ${runs}, ${failures.length} failed, ${secondsSoFar()} s`);
      }
    }
  };
  const jobs = await Promise.allSettled(Array.from({ length: Math.min(options.jobs, runs) }, play));
  signal.throwIfAborted();
  for (const job of jobs) if (job.status === "rejected") throw job.reason;

  const held = played - failures.length;
  const seconds = secondsSoFar();
  tellKinds(failures);
  console.log(
    `${held} of ${played} (seed ${seed}; ${inTheTurn} kills inside the turn, ${
      played - inTheTurn
    } after it; ${seconds} s)`,
  );
  const ok = failures.length === 0 && played > 0;
  if (json) console.log(JSON.stringify({ ok, seed, runs: played, held, inTheTurn, seconds, failures }));
  return ok ? exitCodes.done : exitCodes.failed;
}

async function measureOnce(signal: AbortSignal): Promise<Measure> {
  await using stage = await openStage();
  return await measure(stage, signal);
}

function tellFailure(point: Point, { violations, heldAt, elapsedMs, home }: RunOutcome): void {
  console.log(
    [
      `FAILED: ${describePoint(point)}${heldAt === undefined ? "" : ` (${heldAt})`}, ${elapsedMs} ms`,
      ...violations.map(({ check, text }) => `  not so: ${check}: ${text}`),
      `  the home is kept: ${home}`,
      `  again: deno task soak --point '${JSON.stringify(point)}'`,
    ].join("\n"),
  );
}

function tellKinds(failures: readonly Failure[]): void {
  const kinds = Map.groupBy(
    failures.flatMap(({ point: { run }, violations }) => violations.map(({ check }) => ({ run, check }))),
    ({ check }) => check,
  );
  for (const [check, found] of kinds) {
    const runs = [...new Set(found.map(({ run }) => run))];
    console.log(`not so in ${runs.length} runs (the first is ${runs[0]}): ${check}`);
  }
}

function parseOptions(args: string[]): SoakOptions | "help" | { fault: string } {
  try {
    const { values } = parseArgs({
      args,
      options: {
        runs: { type: "string" },
        seed: { type: "string" },
        modes: { type: "string" },
        jobs: { type: "string" },
        point: { type: "string" },
        twice: { type: "boolean" },
        json: { type: "boolean" },
        help: { type: "boolean", short: "h" },
      },
    });
    if (values.help) return "help";
    const wanted = values.modes?.split(",") ?? modes;
    const unknown = wanted.find((mode) => !modes.some((known) => known === mode));
    if (unknown !== undefined) return { fault: `--modes names ${JSON.stringify(unknown)}, wanted L, B, LB` };
    return {
      runs: wholeNumber("runs", values.runs) ?? runsDefault,
      seed: wholeNumber("seed", values.seed) ?? crypto.getRandomValues(new Uint32Array(1))[0],
      modes: modes.filter((mode) => wanted.includes(mode)),
      jobs: Math.min(Math.max(1, wholeNumber("jobs", values.jobs) ?? jobsDefault), jobsMax),
      point: values.point === undefined ? undefined : pointSchema.parse(JSON.parse(values.point)),
      twice: values.twice ?? false,
      json: values.json ?? false,
    };
  } catch (error) {
    return { fault: describeError(error).split(". ")[0] };
  }
}

function wholeNumber(name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (!/^\d{1,10}$/.test(text)) {
    throw new Error(`--${name} is ${JSON.stringify(text)}, wanted a whole number`);
  }
  return Number(text);
}

if (import.meta.main) {
  const options = parseOptions(Deno.args);
  if (options === "help") {
    console.log(help);
    Deno.exit(exitCodes.done);
  }
  if ("fault" in options) {
    console.error(`soak: ${options.fault}\n\n${help}`);
    Deno.exit(exitCodes.usage);
  }
  Deno.exit(await endOnSignals("soak", (signal) => main(options, signal)));
}
