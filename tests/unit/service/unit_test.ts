// The unit that `deno task service` prints: it starts what `deno task up` starts, survives odd paths, and systemd has nothing to say
// about it where it is installed.

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { ownEnvironment } from "../../../tools/launch/environment.ts";
import { makeHome } from "../../../tools/launch/init.ts";
import { ownRoot } from "../../../tools/launch/root.ts";
import { type UnitFacts, unitOf } from "../../../tools/service/unit.ts";

const upTask: string = JSON.parse(await Deno.readTextFile(`${ownRoot}/deno.json`)).tasks.up;

const facts: UnitFacts = {
  home: "/home/me/.boxmaker",
  root: "/home/me/boxmaker",
  deno: "/home/me/.deno/bin/deno",
  upTask,
  userHome: "/home/me",
  environment: { DENO_DIR: "/home/me/.cache/deno" },
};

/** The values of a key, in order. */
function valuesOf(text: string, key: string): string[] {
  return text.split("\n").filter((line) => line.startsWith(`${key}=`)).map((line) =>
    line.slice(key.length + 1)
  );
}

/** A command line as systemd would split it. */
function wordsOf(line: string): string[] {
  const words = line.match(/"(?:\\.|[^"\\])*"|\S+/g) ?? [];
  return words.map((word) =>
    word.replace(/^"(.*)"$/, "$1").replaceAll(/\\(["\\])/g, "$1").replaceAll("%%", "%").replaceAll("$$", "$")
  );
}

Deno.test("the unit starts what deno task up starts, is not started again after exit 2, and is stopped by a signal to the launcher alone", () => {
  const { name, text, commands } = unitOf(facts);
  assertEquals(name, "boxmaker.service");
  const [deno, ...words] = wordsOf(valuesOf(text, "ExecStart")[0]);
  const flags = upTask.split(" ").slice(1, -1);
  assertEquals([deno, ...words], [
    facts.deno,
    ...flags,
    ...["--config", "/home/me/boxmaker/deno.json", "/home/me/boxmaker/tools/launch/main.ts"],
    ...["--home", "/home/me/.boxmaker"],
  ]);
  assertEquals(valuesOf(text, "Restart"), ["on-failure"]);
  assertEquals(valuesOf(text, "RestartPreventExitStatus"), ["2"]);
  assertEquals(valuesOf(text, "KillMode"), ["mixed"]);
  assertEquals(valuesOf(text, "ReadWritePaths"), ["/home/me/.boxmaker -/home/me/.cache/deno"]);
  for (
    const key of ["NoNewPrivileges", "PrivateUsers", "PrivateTmp", "LockPersonality", "RestrictSUIDSGID"]
  ) {
    assertEquals([key, ...valuesOf(text, key)], [key, "yes"]);
  }
  for (const command of commands) assertStringIncludes(text, `#   ${command}\n`);
});

Deno.test("a user's manager cannot take capabilities away, so no setting asks for that; a path below /tmp is not hidden", () => {
  const { text } = unitOf(facts);
  for (const key of ["PrivateDevices", "ProtectKernelModules", "ProtectClock", "CapabilityBoundingSet"]) {
    assertEquals([key, ...valuesOf(text, key)], [key]);
  }
  assertEquals(valuesOf(unitOf({ ...facts, home: "/tmp/h" }).text, "PrivateTmp"), []);
  assertEquals(valuesOf(unitOf({ ...facts, home: "/tmpx/h" }).text, "PrivateTmp"), ["yes"]);
});

Deno.test("each home has a unit of its own, and an odd path stays what it is", () => {
  const names = ['/home/me/Work %$ "x" \\', "/srv/work", "/srv/other/work", "/srv/日本"].map((home) =>
    unitOf({ ...facts, home }).name
  );
  assertEquals(new Set(names).size, 4);
  for (const name of names) assertMatch(name, /^boxmaker-[a-z0-9-]+\.service$/);
  const home = '/home/me/Work %$ "x" \\';
  const { text } = unitOf({ ...facts, home });
  assertEquals(wordsOf(valuesOf(text, "ExecStart")[0]).at(-1), home);
  assertEquals(text.includes("% "), false);
});

async function service(home: string, ...more: string[]) {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      ...["run", "-q", "--no-prompt", "--frozen", "--config", `${ownRoot}/deno.json`, "--allow-read"],
      ...["--allow-write=/tmp", "--allow-run=systemd-analyze", "--allow-env"],
      ...[`${ownRoot}/tools/service/main.ts`, "--home", home, ...more],
    ],
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).output();
  return { code, out: new TextDecoder().decode(stdout), err: new TextDecoder().decode(stderr) };
}

Deno.test("the printed command line serves a home and ends with exit 0 at SIGTERM; with a fault in a file it is exit 2; systemd finds no fault", async () => {
  const place = await Deno.realPath(await Deno.makeTempDir({ prefix: "bx 100% -" }));
  try {
    const home = `${place}/h`;
    const none = await service(home);
    assertEquals(none.code, 2);
    assertStringIncludes(none.err, "this home does not exist");
    await makeHome(home);
    const { code, out, err } = await service(home, "--json");
    assertEquals(code, 0, err);
    const { unit, findings } = JSON.parse(out);
    assert(findings === "absent" || findings.length === 0, String(findings));

    const [deno, ...args] = wordsOf(valuesOf(unit, "ExecStart")[0]);
    const environment = Object.fromEntries(
      valuesOf(unit, "Environment").map((entry) => {
        const [word] = wordsOf(entry);
        return [word.slice(0, word.indexOf("=")), word.slice(word.indexOf("=") + 1)];
      }),
    );
    const start = () =>
      new Deno.Command(deno, {
        args,
        cwd: valuesOf(unit, "WorkingDirectory")[0],
        clearEnv: true,
        env: { HOME: ownEnvironment().HOME ?? place, ...environment },
        stdin: "null",
        stdout: "piped",
        stderr: "null",
      }).spawn();
    const child = start();
    let said = "";
    for await (const text of child.stdout.pipeThrough(new TextDecoderStream())) {
      if (!said.includes("ready: both roles serve") && (said + text).includes("ready: both roles serve")) {
        child.kill("SIGTERM");
      }
      said += text;
    }
    assertEquals([(await child.status).code, said.includes("stopped")], [0, true], said);

    await Deno.writeTextFile(`${home}/loopd.toml`, "[slotz]\n");
    const refused = start();
    await refused.stdout.cancel();
    assertEquals((await refused.status).code, 2);
  } finally {
    await Deno.remove(place, { recursive: true });
  }
});
