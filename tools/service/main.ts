// `deno task service`: prints the systemd user unit of a home, and has systemd itself look at it where it is installed. It installs
// nothing: the unit's first lines are the commands that do.

import { join } from "node:path";
import { exitCodes, type Fault, UsageError } from "../../core/errors.ts";
import { homeFaults, resolveHome } from "../../core/home.ts";
import { isJsonObject, parseJsonObject } from "../../core/json.ts";
import { personEnvironment } from "../launch/environment.ts";
import { type Given, runProgram } from "../launch/program.ts";
import { ownRoot } from "../launch/root.ts";
import { type Unit, unitOf } from "./unit.ts";

const help = `Prints a systemd user unit that runs both roles of a home from boot on, and how to install it.

  deno task -q service [--home DIR] > ~/.config/systemd/user/boxmaker.service

  --home DIR  the home; else $BOXMAKER_HOME, else $HOME/.boxmaker
  --json      one object: {name, unit, commands, findings}
  --help      this text

Where systemd-analyze is installed it checks the unit; what it finds is said on standard error, and is exit 1.`;

/** Of a binary that npx fetched: its place may be cleaned away. */
const npxCache = "/_npx/";

async function run({ home, json, own }: Given): Promise<number> {
  const resolved = resolveHome(home);
  const faults: Fault[] = homeFaults(resolved);
  for (const path of [resolved, ownRoot]) {
    // deno-lint-ignore no-control-regex -- they are what is looked for
    if (!/[\x00-\x1f]/.test(path)) continue;
    faults.push({ text: `${JSON.stringify(path)} holds a control character, which no unit can name` });
  }
  if (faults.length > 0) throw new UsageError(faults);
  const { DENO_DIR, ...more } = personEnvironment(own);
  const unit = unitOf({
    home: resolved,
    root: ownRoot,
    deno: Deno.execPath(),
    upTask: await upTask(),
    userHome: own.HOME === undefined ? undefined : resolveHome(own.HOME),
    environment: { DENO_DIR, ...kept(more) },
  });
  const findings = await verify(unit);
  if (json) {
    console.log(JSON.stringify({ name: unit.name, unit: unit.text, commands: unit.commands, findings }));
  } else console.log(unit.text.trimEnd());
  if (Deno.execPath().includes(npxCache)) {
    console.error(
      `service: ${Deno.execPath()} lies in npx's cache, which may be cleaned; install Deno: npm install -g deno`,
    );
  }
  if (findings === "absent") {
    console.error("service: systemd-analyze is not here, so the unit was not checked");
  } else for (const finding of findings) console.error(`service: systemd-analyze: ${finding}`);
  return findings === "absent" || findings.length === 0 ? exitCodes.done : exitCodes.failed;
}

/** What a person's terminal is like is no concern of a service; the registry of the packages is. */
function kept(environment: Readonly<Record<string, string>>): Record<string, string> {
  const names = ["DENO_NO_UPDATE_CHECK", "DENO_CERT", "NPM_CONFIG_REGISTRY"];
  return Object.fromEntries(Object.entries(environment).filter(([name]) => names.includes(name)));
}

async function upTask(): Promise<string> {
  const { tasks } = parseJsonObject(await Deno.readTextFile(join(ownRoot, "deno.json"))) ?? {};
  return isJsonObject(tasks) ? String(tasks.up) : "";
}

/** What systemd says about the unit; nothing where it has no fault. It looks at files only, and wants a runtime directory of its own. */
async function verify(unit: Unit): Promise<readonly string[] | "absent"> {
  const directory = await Deno.makeTempDir({ dir: "/tmp", prefix: "bx-unit-" });
  try {
    const path = join(directory, unit.name);
    await Deno.writeTextFile(path, unit.text);
    const { code, stderr } = await new Deno.Command("systemd-analyze", {
      args: ["--user", "--man=no", "verify", path],
      clearEnv: true,
      env: { XDG_RUNTIME_DIR: directory },
      stdin: "null",
      stdout: "null",
      stderr: "piped",
    }).output();
    const said = new TextDecoder().decode(stderr).split("\n").filter((line) => line !== "");
    return code === 0 || said.length > 0
      ? said.map((line) => line.replace(path, unit.name))
      : [`exit ${code}`];
  } catch (error) {
    const absent = error instanceof Deno.errors.NotFound || error instanceof Deno.errors.NotCapable;
    if (absent) return "absent";
    throw error;
  } finally {
    await Deno.remove(directory, { recursive: true });
  }
}

if (import.meta.main) await runProgram({ name: "service", help, run });
