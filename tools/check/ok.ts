// `deno task ok`: format, lint, type check, layers, tests, tests in a browser, each shown with its name and its time. All of them run even when one
// fails, so that one run tells everything. `--report DIR` leaves NAME.junit.xml and steps.json there; nothing else is written.

/** A test that waits for ever must not make CI wait for ever: a step past this is ended and counts as failed. */
const stepMsMax = 20 * 60_000;

interface Step {
  readonly name: string;
  readonly arguments: readonly string[];
}

export interface StepResult {
  readonly name: string;
  readonly exitCode: number;
  readonly seconds: number;
}

function stepsOf(report: string | undefined): Step[] {
  const junit = (name: string) => report === undefined ? [] : [`--junit-path=${report}/${name}.junit.xml`];
  return [
    { name: "fmt", arguments: ["fmt", "--check", "-q"] },
    { name: "lint", arguments: ["lint", "-q"] },
    { name: "check", arguments: ["check", "-q", "--frozen"] },
    { name: "layers", arguments: ["task", "-q", "layers"] },
    { name: "test", arguments: ["task", "-q", "test", ...junit("test")] },
    { name: "browser", arguments: ["task", "-q", "test-browser", ...junit("browser")] },
  ];
}

async function run(step: Step): Promise<StepResult> {
  console.log(`== ${step.name}`);
  const start = performance.now();
  const child = new Deno.Command(Deno.execPath(), {
    args: [...step.arguments],
    stdin: "null",
    stdout: "inherit",
    stderr: "inherit",
  }).spawn();
  const timer = setTimeout(() => {
    console.error(`${step.name} took over ${stepMsMax / 60_000} min and is ended`);
    child.kill("SIGTERM");
  }, stepMsMax);
  const { code } = await child.status;
  clearTimeout(timer);
  return { name: step.name, exitCode: code, seconds: (performance.now() - start) / 1000 };
}

if (import.meta.main) {
  const at = Deno.args.indexOf("--report");
  const report = at === -1 ? undefined : Deno.args[at + 1];
  if (Deno.args.length > 0 && (at !== 0 || report === undefined || Deno.args.length > 2)) {
    console.error(`ok: got ${JSON.stringify(Deno.args.join(" "))}, wanted no arguments or --report DIR`);
    Deno.exit(2);
  }
  const results: StepResult[] = [];
  for (const step of stepsOf(report)) results.push(await run(step));
  console.log("==");
  for (const { name, exitCode, seconds } of results) {
    console.log(`${exitCode === 0 ? "ok    " : "FAILED"} ${name.padEnd(7)} ${seconds.toFixed(1)} s`);
  }
  if (report !== undefined) await Deno.writeTextFile(`${report}/steps.json`, JSON.stringify(results));
  if (results.some(({ exitCode }) => exitCode !== 0)) Deno.exit(1);
}
