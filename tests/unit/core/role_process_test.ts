// A role's command line, seen from outside: what it refuses, with which exit code, and that nothing has begun by then.

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { namesIn } from "../../support/transcript.ts";
import { tempHome } from "../../support/temp_home.ts";

const loopd = new URL("../../../loopd/main.ts", import.meta.url).pathname;

async function run(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  const command = new Deno.Command(Deno.execPath(), {
    args: ["run", "-q", "-A", "--no-check", loopd, ...args],
    env: { NO_COLOR: "1" },
    stdin: "null",
  });
  const { code, stdout, stderr } = await command.output();
  const decoder = new TextDecoder();
  return { code, out: decoder.decode(stdout), err: decoder.decode(stderr) };
}

Deno.test("an unknown argument, a missing home and a relative one are usage: one line each, exit 2", async () => {
  const cases = [
    [["--hmoe", "/tmp"], '"--hmoe"'],
    [[], "--home must be an absolute directory"],
    [["--home"], "--home must be an absolute directory"],
    [["--home", "somewhere"], '"somewhere"'],
    [["--home", "--lifeline"], '"--lifeline"'],
    [["home", "/tmp"], '"home"'],
  ] as const;
  const ended = await Promise.all(cases.map(async ([args, wanted]) => ({ wanted, ...await run(...args) })));
  for (const { wanted, code, out, err } of ended) {
    assertEquals([code, out], [2, ""]);
    assertStringIncludes(err, wanted);
    assertEquals(err.trim().split("\n").length, 1, err);
  }
});

Deno.test("--help says what the role may reach, exit 0", async () => {
  const { code, out } = await run("--help");
  assertEquals(code, 0);
  assertStringIncludes(out, "may reach the inference server and brokerd, nothing else");
});

Deno.test("K1 a role with a faulty file exits 2, prints every fault, and leaves no socket", async () => {
  await using home = await tempHome({ loopdToml: '[slots]\nmian = 0\n[session]\nclass = "top"\n' });
  const { code, err } = await run("--home", home.paths.home);
  assertEquals(code, 2);
  assertStringIncludes(err, "mian");
  assertStringIncludes(err, "session.class");
  assertEquals(await namesIn(home.paths.run), []);
});

Deno.test("a role says in one line each that it is ready and that it stops, and ends with its lifeline", async () => {
  await using home = await tempHome();
  const process = new Deno.Command(Deno.execPath(), {
    args: ["run", "-q", "-A", "--no-check", loopd, "--home", home.paths.home, "--lifeline"],
    env: { NO_COLOR: "1" },
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const lines = process.stdout.pipeThrough(new TextDecoderStream()).getReader();
  const first = await lines.read();
  assertEquals(JSON.parse(first.value ?? ""), { role: "loopd", event: "ready" });
  assert((await Deno.lstat(home.paths.loopSocket)).isSocket);
  await process.stdin.close();
  const rest = await lines.read();
  assertEquals(JSON.parse(rest.value ?? ""), { role: "loopd", event: "stopping" });
  while (!(await lines.read()).done);
  assertEquals((await process.status).code, 0);
  await process.stderr.cancel();
  assertEquals(await namesIn(home.paths.run), []);
});
