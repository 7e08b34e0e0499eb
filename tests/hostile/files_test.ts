// Files that are not what they should be: a secret in every unfit form before a real brokerd under its real flags, and one that is
// exchanged between the look and the opening. The nearest fit form stands beside each.

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { loadSecret } from "../../core/secrets.ts";
import { loadBrokerdConfig } from "../../core/config/brokerd_toml.ts";
import { ownEnvironment, roleEnvironment } from "../../tools/launch/environment.ts";
import { roleArguments } from "../../tools/launch/plan.ts";
import { ownRoot } from "../../tools/launch/root.ts";
import { tempHome } from "../support/temp_home.ts";
import { watch } from "./roles.ts";

const planted = "sk-PLANTED-0123456789";
const endsWithinMs = 5_000;

interface Spoilt {
  readonly name: string;
  readonly spoil: (path: string, directory: string) => Promise<unknown>;
  readonly says: string;
}

const moved = async (path: string) => {
  await Deno.rename(path, `${path}-moved`);
  return `${path}-moved`;
};
const written = (text: string) => (path: string) => Deno.writeTextFile(path, text);

const spoilt: Spoilt[] = [
  {
    name: "a link to a sound secret",
    spoil: async (path) => Deno.symlink(await moved(path), path),
    says: "is a symbolic link",
  },
  {
    name: "a link to a device",
    spoil: async (path) => (await moved(path), Deno.symlink("/dev/zero", path)),
    says: "is a symbolic link",
  },
  {
    name: "a pipe",
    spoil: async (path) => (await moved(path), new Deno.Command("mkfifo", { args: [path] }).output()),
    says: "is not a regular file",
  },
  {
    name: "a directory",
    spoil: async (path) => (await moved(path), Deno.mkdir(path)),
    says: "is not a regular file",
  },
  { name: "readable by the group", spoil: (path) => Deno.chmod(path, 0o640), says: "mode is 0640" },
  { name: "readable by all", spoil: (path) => Deno.chmod(path, 0o604), says: "mode is 0604" },
  {
    name: "a directory that others may write",
    spoil: (_, directory) => Deno.chmod(directory, 0o770),
    says: "others may write this directory",
  },
  { name: "a line end inside", spoil: written(`${planted}\nX-Injected: 1\n`), says: "is not one line" },
  { name: "a carriage return", spoil: written(`${planted}\r\n`), says: "is not one line" },
  { name: "a control character", spoil: written(`${planted}\x1b[2J`), says: "is not one line" },
  { name: "a zero byte", spoil: written(`${planted}\0`), says: "is not one line" },
  { name: "letters beyond ASCII", spoil: written(`${planted}ü`), says: "is not one line" },
  { name: "nothing", spoil: written(""), says: "is not one line" },
  { name: "forty megabytes", spoil: written("x".repeat(40e6)), says: "is not one line" },
];

Deno.test("C11 B9 brokerd with an unfit secret ends with 2 at once, shows nothing of it, and leaves no socket and no log", async (t) => {
  for (const { name, spoil, says } of spoilt) {
    await t.step(name, async () => {
      await using home = await homeWithSecret();
      await spoil(`${home.paths.secrets}/consult`, home.paths.secrets);
      const began = performance.now();
      const { code, stdout, stderr } = await start(home.paths).ended;
      assertEquals([code, stdout], [2, ""]);
      assert(performance.now() - began < endsWithinMs);
      assertStringIncludes(stderr, says);
      assertStringIncludes(stderr, "docs/runbook.md#consult-secret-unreadable");
      assertEquals(stderr.trimEnd().split("\n").length, 1);
      assertEquals(stderr.includes("PLANTED") || /[^\x20-\x7e\n]/.test(stderr), false);
      for (const directory of [home.paths.audit, home.paths.run]) {
        assertEquals([...Deno.readDirSync(directory)], []);
      }
    });
  }
  await t.step("a sound one", async () => {
    await using home = await homeWithSecret();
    const brokerd = start(home.paths);
    await brokerd.line((line) => line.includes("ready"));
    await brokerd.closeInput();
    assertEquals((await brokerd.ended).code, 0);
  });
});

Deno.test("C11 a secret that is exchanged between the look and the opening is refused, one that stays is accepted", async () => {
  const exchanges: [string, (path: string) => void][] = [
    ["another file", (path) => {
      Deno.writeTextFileSync(`${path}-other`, "other", { mode: 0o600 });
      Deno.renameSync(`${path}-other`, path);
    }],
    ["a link to another file", (path) => {
      Deno.writeTextFileSync(`${path}-other`, "other", { mode: 0o600 });
      Deno.removeSync(path);
      Deno.symlinkSync(`${path}-other`, path);
    }],
    ["nothing", () => {}],
  ];
  for (const [name, exchange] of exchanges) {
    await using home = await homeWithSecret();
    const path = `${home.paths.secrets}/consult`;
    const { lstat } = Deno;
    Deno.lstat = async (looked) => {
      const stat = await lstat(looked);
      if (looked === path) exchange(path);
      return stat;
    };
    try {
      const result = await loadSecret(path, { checkDirectories: [home.paths.secrets] });
      if (name === "nothing") assertEquals(result, { value: planted });
      else {
        assert("fault" in result, `${name} was accepted`);
        assertStringIncludes(result.fault.text, "was exchanged while it was opened");
      }
    } finally {
      Deno.lstat = lstat;
    }
  }
});

function homeWithSecret() {
  return tempHome({
    brokerdToml: '[consult]\nurl = "https://api.example.com/v1"\nmodel = "m"\nsecret = "consult"\n',
    secrets: { consult: `${planted}\n` },
  });
}

function start(paths: Parameters<typeof loadBrokerdConfig>[0]) {
  const config = loadBrokerdConfig(paths);
  if ("faults" in config) throw new Error("the test's own brokerd.toml is not sound");
  return watch({
    args: roleArguments("brokerd", { root: ownRoot, paths, brokerd: config.value }),
    env: roleEnvironment(ownEnvironment(), `${paths.permissions}/brokerd.jsonl`),
  });
}
