// `deno task console`: starts the owner's console as a child that may listen on one port of this device, reach loop.sock and owner.sock, and
// read what the roles were granted and used. The child alone knows how it looks.

import { join } from "node:path";
import { parseArgs } from "node:util";
import { exitCodes, UsageError } from "../../core/errors.ts";
import { chooseHome, homeFaults, type HomePaths, homePaths, resolveHome } from "../../core/home.ts";
import { type OwnEnvironment, ownEnvironment, personEnvironment } from "./environment.ts";
import { denoArguments, plan } from "./plan.ts";
import { printFaults } from "./program.ts";
import { ownRoot } from "./root.ts";

/** One that no common service uses. */
const portDefault = 4870;
const portMax = 65_535;

const help = `The console: a page on this device that shows what runs, what was said, and what left.

  deno task console [--home DIR] [--port N] [--allow-decisions]

  --home DIR         the home; else $BOXMAKER_HOME, else $HOME/.boxmaker
  --port N           the port on 127.0.0.1; default: ${portDefault}; 0 takes any that is free
  --allow-decisions  approvals can be decided in it; without this it only shows
  --help             this text

It prints an address that works once, in one browser of this device.`;

export interface ConsoleOptions {
  readonly paths: HomePaths;
  readonly port: number;
  readonly allowDecisions: boolean;
  readonly timeZone: string;
  readonly root: string;
}

/** The child's arguments after the name of the Deno binary. */
export function consoleArguments({ paths, port, allowDecisions, timeZone, root }: ConsoleOptions): string[] {
  return [
    ...denoArguments(root),
    ...plan("console", { paths, consolePort: port }),
    join(root, "tools", "console", "main.ts"),
    "--home",
    paths.home,
    "--port",
    `${port}`,
    "--time-zone",
    timeZone,
    ...(allowDecisions ? ["--allow-decisions"] : []),
  ];
}

/** Runs the console in this terminal; resolves with its exit code. */
export async function runConsole(options: ConsoleOptions, own: OwnEnvironment): Promise<number> {
  const child = new Deno.Command(Deno.execPath(), {
    args: consoleArguments(options),
    clearEnv: true,
    env: personEnvironment(own),
    stdin: "inherit",
    stdout: "inherit",
    stderr: "inherit",
  }).spawn();
  // Ctrl-C reaches the child from the terminal itself.
  const ignore = () => {};
  const terminate = () => child.kill("SIGTERM");
  Deno.addSignalListener("SIGINT", ignore);
  Deno.addSignalListener("SIGTERM", terminate);
  const { code } = await child.status;
  Deno.removeSignalListener("SIGINT", ignore);
  Deno.removeSignalListener("SIGTERM", terminate);
  return code;
}

async function main(args: string[]): Promise<number> {
  const { values } = parseArgs({
    args,
    options: {
      home: { type: "string" },
      port: { type: "string" },
      "allow-decisions": { type: "boolean" },
      help: { type: "boolean", short: "h" },
    },
  });
  if (values.help) {
    console.log(help);
    return exitCodes.done;
  }
  const own = ownEnvironment();
  const home = resolveHome(chooseHome({ flag: values.home, env: own }));
  const faults = homeFaults(home);
  const port = values.port === undefined ? portDefault : portOf(values.port);
  if (port === undefined) {
    faults.push({ text: `--port ${JSON.stringify(values.port)} is no port; wanted 0 to ${portMax}` });
  }
  if (faults.length > 0 || port === undefined) throw new UsageError(faults);
  return await runConsole({
    paths: homePaths(home),
    port,
    allowDecisions: values["allow-decisions"] ?? false,
    timeZone: Temporal.Now.timeZoneId(),
    root: ownRoot,
  }, own);
}

function portOf(text: string): number | undefined {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : NaN;
  return port <= portMax ? port : undefined;
}

if (import.meta.main) {
  try {
    Deno.exit(await main(Deno.args));
  } catch (error) {
    if (error instanceof UsageError) printFaults(error.faults);
    else if (error instanceof TypeError && "code" in error && `${error.code}`.startsWith("ERR_PARSE_ARGS")) {
      console.error(`console: ${error.message.split(". ")[0]}\n\n${help}`);
    } else throw error;
    Deno.exit(exitCodes.usage);
  }
}
