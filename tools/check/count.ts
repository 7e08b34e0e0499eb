// The last line of .ci/run: `N passed, N failed`, counted from the junit files that `ok --report DIR` left. A test run that
// failed without a failed test (a module that did not load) counts as one failure. Reads DIR only, writes nothing.

import type { StepResult } from "./ok.ts";

export interface Counts {
  readonly passed: number;
  readonly failed: number;
}

/** Tests as `deno test` itself counts them: a step (`test > step`) belongs to its test, an ignored test to neither side. */
export function countTests(junit: string): Counts {
  let passed = 0;
  let failed = 0;
  for (const suite of junit.split("<testsuite ").slice(1)) {
    const cases = suite.split("<testcase ").slice(1);
    const names = new Set(cases.map(nameOf));
    for (const text of cases) {
      if (isStep(nameOf(text), names) || /<skipped\s*\/?>/.test(text)) continue;
      if (/<(?:failure|error)[\s>]/.test(text)) failed++;
      else passed++;
    }
  }
  return { passed, failed };
}

function nameOf(testcase: string): string {
  return /^name="([^"]*)"/.exec(testcase)?.[1] ?? "";
}

// A test may have ` > ` in its own name: a step's name begins with the name of a test that is there.
function isStep(name: string, names: ReadonlySet<string>): boolean {
  const separator = " &gt; ";
  for (let at = name.indexOf(separator); at !== -1; at = name.indexOf(separator, at + 1)) {
    if (names.has(name.slice(0, at))) return true;
  }
  return false;
}

/** Steps of `ok` that run tests. */
const testSteps = ["test", "browser"];

async function load(path: string): Promise<string | undefined> {
  try {
    return await Deno.readTextFile(path);
  } catch {
    return undefined;
  }
}

if (import.meta.main) {
  const [report, testsMin] = [Deno.args[0], Number(Deno.args[1])];
  if (report === undefined || !Number.isSafeInteger(testsMin)) {
    console.error("count: wanted DIR and the least number of tests");
    Deno.exit(2);
  }
  const steps = await load(`${report}/steps.json`);
  const results: StepResult[] = steps === undefined ? [] : JSON.parse(steps);
  const broken = results.filter(({ exitCode }) => exitCode !== 0).map(({ name }) => name);
  const counts = { passed: 0, failed: 0 };
  let failed = steps === undefined ? 1 : 0;
  for (const name of testSteps) {
    const junit = await load(`${report}/${name}.junit.xml`);
    const counted = junit === undefined ? { passed: 0, failed: 0 } : countTests(junit);
    counts.passed += counted.passed;
    counts.failed += counted.failed;
    failed += counted.failed === 0 && broken.includes(name) ? 1 : counted.failed;
  }
  const tooFew = counts.passed + counts.failed < testsMin;

  if (steps === undefined) console.log("the checks did not come to their end");
  else if (broken.length > 0) console.log(`failed steps: ${broken.join(", ")}`);
  if (tooFew) console.log(`${counts.passed + counts.failed} tests ran, wanted at least ${testsMin}`);
  console.log(`${counts.passed} passed, ${failed} failed`);
  if (failed > 0 || tooFew || broken.length > 0) Deno.exit(1);
}
