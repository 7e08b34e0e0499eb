// What brokerd refuses to start with, and what it starts with beside it (C3, C4, C11, K1), as the process's own loader says it.

import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { loadBrokerd } from "../../../brokerd/main.ts";
import { startBrokerd } from "../../../brokerd/start.ts";
import { UsageError } from "../../../core/errors.ts";
import { allowPrivate, brokerRig } from "../../support/broker_rig.ts";
import { tempHome, type TempHomeFiles } from "../../support/temp_home.ts";

const consult = (more = "") =>
  `[consult]\nurl = "https://api.example.com/v1/chat/completions"\nmodel = "m"\nsecret = "consult"\n${more}`;
const secrets = { consult: "key\n" };

async function faultsOf(
  files: TempHomeFiles,
  change?: (secretPath: string) => Promise<void>,
): Promise<string[]> {
  await using home = await tempHome(files);
  await change?.(`${home.paths.secrets}/consult`);
  try {
    await loadBrokerd(home.paths);
    return [];
  } catch (error) {
    assert(error instanceof UsageError);
    return error.message.replaceAll(home.paths.home, "").split("\n");
  }
}

Deno.test("C3 a temperature of 0.61 is refused, 0.6 is accepted and is the default, and 0.25 goes into the body", async () => {
  const refused = await faultsOf({ brokerdToml: consult("temperature = 0.61\n"), secrets });
  assertEquals(refused.length, 1);
  assertStringIncludes(refused[0], "consult.temperature");
  assertEquals(await faultsOf({ brokerdToml: consult("temperature = 0.6\n"), secrets }), []);
  assertEquals(await faultsOf({ brokerdToml: consult(), secrets }), []);

  await using rig = await brokerRig({ grants: allowPrivate, consult: "temperature = 0.25" });
  await rig.call("chat-a", 1);
  assertStringIncludes(new TextDecoder().decode(rig.endpoint.requests[0].body), '"temperature":0.25,');
});

Deno.test("C11 a secret that is missing, loose, a link or no single line keeps brokerd from starting and names its runbook entry", async () => {
  const cases: ((path: string) => Promise<void>)[] = [
    (path) => Deno.remove(path),
    (path) => Deno.chmod(path, 0o640),
    (path) => Deno.chmod(path, 0o604),
    async (path) => {
      await Deno.rename(path, `${path}.real`);
      await Deno.symlink(`${path}.real`, path);
    },
    (path) => Deno.writeTextFile(path, "two\nlines\n"),
    (path) => Deno.writeTextFile(path, "control\u0007\n"),
    (path) => Deno.writeTextFile(path, ""),
    (path) => Deno.chmod(path.replace(/\/consult$/, ""), 0o777),
  ];
  for (const [at, change] of cases.entries()) {
    const [fault, ...more] = await faultsOf({ brokerdToml: consult(), secrets }, change);
    assertEquals([at, more], [at, []]);
    assertStringIncludes(fault, "consult-secret-unreadable");
    assert(!fault.includes("two\nlines"));
  }
  for (const mode of [0o600, 0o400]) {
    assertEquals(await faultsOf({ brokerdToml: consult(), secrets }, (path) => Deno.chmod(path, mode)), []);
  }
});

Deno.test("K1 all faults of both files are told at once", async () => {
  const faults = await faultsOf({
    brokerdToml: consult("modle = 1\n"),
    grantsToml: '[[grant]]\ntool = "consult"\nmax_taint = "private"\nuntrustd = true\n',
  });
  assertEquals(faults.length, 2);
  assertStringIncludes(faults[0], "consult.modle");
  assertStringIncludes(faults[1], "untrustd");
});

Deno.test("C4 without a [consult] no secret is wanted", async () => {
  assertEquals(await faultsOf({ grantsToml: allowPrivate }), []);
});

Deno.test("a second brokerd on the same home is refused while the first lives, and its socket stays the first's", async () => {
  await using rig = await brokerRig({ grants: allowPrivate });
  const loaded = await loadBrokerd(rig.paths);
  await assertRejects(() => startBrokerd(loaded), UsageError, "another brokerd");
  assertEquals((await rig.call("chat-a", 1)).status, "ok");
});
