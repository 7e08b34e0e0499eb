// The last line that CI reads tells the truth of a run: passed, failed, cut short, too few.

import { assertEquals } from "@std/assert";

const program = new URL("../../../tools/check/count.ts", import.meta.url).pathname;

const passing = '<testcase name="a" line="1"></testcase>';
const failing = '<testcase name="b"><failure message="x">y</failure></testcase>';

async function count(files: { junit?: string; steps?: unknown }, testsMin: number) {
  const directory = await Deno.makeTempDir();
  try {
    if (files.junit !== undefined) {
      const text =
        `<testsuites tests="9"><testsuite name="t" tests="9">${files.junit}</testsuite></testsuites>`;
      await Deno.writeTextFile(`${directory}/test.junit.xml`, text);
    }
    if (files.steps !== undefined) {
      await Deno.writeTextFile(`${directory}/steps.json`, JSON.stringify(files.steps));
    }
    const { code, stdout } = await new Deno.Command(Deno.execPath(), {
      args: [
        "run",
        "-q",
        "--no-lock",
        "--no-config",
        `--allow-read=${directory}`,
        program,
        directory,
        `${testsMin}`,
      ],
    }).output();
    return { code, lines: new TextDecoder().decode(stdout).trimEnd().split("\n") };
  } finally {
    await Deno.remove(directory, { recursive: true });
  }
}

const steps = (exitCode: number, name = "test") => [{ name, exitCode, seconds: 1 }];

Deno.test("a run that passed counts its tests and exits 0", async () => {
  assertEquals(await count({ junit: passing + passing, steps: steps(0) }, 2), {
    code: 0,
    lines: ["2 passed, 0 failed"],
  });
});

Deno.test("a run below its least number of tests exits 1 and says so", async () => {
  assertEquals(await count({ junit: passing, steps: steps(0) }, 2), {
    code: 1,
    lines: ["1 tests ran, wanted at least 2", "1 passed, 0 failed"],
  });
});

Deno.test("a failed test is counted, its steps and ignored tests are not", async () => {
  const junit = passing + failing + '<testcase name="c"><skipped/></testcase>' +
    '<testcase name="b &gt; step"><failure message="x">y</failure></testcase><testcase name="5 &gt; 4"></testcase>';
  assertEquals(await count({ junit, steps: steps(1) }, 1), {
    code: 1,
    lines: ["failed steps: test", "2 passed, 1 failed"],
  });
});

Deno.test("a module that did not load is one failure although no test failed", async () => {
  assertEquals((await count({ junit: passing, steps: steps(1) }, 1)).lines.at(-1), "1 passed, 1 failed");
  assertEquals((await count({ steps: steps(1) }, 0)).lines.at(-1), "0 passed, 1 failed");
  assertEquals((await count({}, 0)).lines, ["the checks did not come to their end", "0 passed, 1 failed"]);
});

Deno.test("a failed format check leaves the counts true and exits 1", async () => {
  assertEquals(await count({ junit: passing, steps: steps(1, "fmt") }, 1), {
    code: 1,
    lines: ["failed steps: fmt", "1 passed, 0 failed"],
  });
});
