// `deno task up`: both roles of one home, until a signal ends them. One line for each event on stdout; every fault of the home, its
// files and its secrets at once on stderr, and then nothing is started.

import { parseArgs } from "node:util";
import { describeFault, exitCodes, type Fault, UsageError } from "../../core/errors.ts";
import { chooseHome, homePaths, resolveHome } from "../../core/home.ts";
import { ownEnvironment } from "./environment.ts";
import type { LaunchEvent } from "./supervise.ts";
import { up } from "./up.ts";

const help = `Starts both roles of a home, keeps them running, and stops them at Ctrl-C.

  deno task up [--home DIR] [--json]

  --home DIR  the home; else $BOXMAKER_HOME, else $HOME/.boxmaker
  --json      one JSON object a line in place of text
  --help      this text

Exit codes: 0 stopped, 1 failed, 2 something the owner wrote is wrong (all of it is printed, nothing is started).`;

if (import.meta.main) Deno.exit(await main(Deno.args));

async function main(args: string[]): Promise<number> {
  const options = readOptions(args);
  if (options === undefined) return exitCodes.usage;
  if (options.help) {
    console.log(help);
    return exitCodes.done;
  }
  const own = ownEnvironment();
  let home: string;
  try {
    home = resolveHome(chooseHome({ flag: options.home, env: own }));
  } catch (error) {
    if (error instanceof UsageError) return refuse(error.faults, options.json);
    throw error;
  }
  const print = options.json
    ? (event: LaunchEvent) => console.log(JSON.stringify({ time: new Date().toISOString(), ...event }))
    : (event: LaunchEvent) => printLine(describeEvent(event));
  const supervisor = await up({ paths: homePaths(home), own, onEvent: print });
  if ("faults" in supervisor) return refuse(supervisor.faults, options.json);
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    Deno.addSignalListener(signal, () => void supervisor.stop());
  }
  return await supervisor.ended;
}

function readOptions(args: string[]): { home?: string; json: boolean; help: boolean } | undefined {
  try {
    const { values } = parseArgs({
      args,
      options: { home: { type: "string" }, json: { type: "boolean" }, help: { type: "boolean", short: "h" } },
    });
    return { home: values.home, json: values.json ?? false, help: values.help ?? false };
  } catch (error) {
    console.error(
      `up: ${error instanceof Error ? error.message.split(". ")[0] : "wrong arguments"}\n\n${help}`,
    );
    return undefined;
  }
}

function refuse(faults: readonly Fault[], json: boolean): number {
  for (const fault of faults) {
    console.error(describeFault(fault));
    if (json) console.log(JSON.stringify({ event: "fault", ...fault }));
  }
  return exitCodes.usage;
}

function printLine(text: string): void {
  console.log(`${new Date().toLocaleTimeString("en-GB")} ${text}`);
}

/** One event as a person reads it. */
function describeEvent(event: LaunchEvent): string {
  switch (event.event) {
    case "started":
      return `${event.role} started, process ${event.pid}`;
    case "role": {
      const { event: name, text, ...more } = event.said;
      const rest = Object.keys(more).length === 0 ? "" : ` ${JSON.stringify(more)}`;
      return `${event.role} ${name ?? ""}${text === undefined ? rest : `: ${text}`}`;
    }
    case "line":
      return `${event.role}: ${event.text}`;
    case "exited":
      return `${event.role} ended with code ${event.code} after ${event.livedMs / 1_000} s` +
        (event.backInMs === undefined ? "" : `, back in ${event.backInMs / 1_000} s`);
    case "ready":
      return "ready: both roles serve";
    case "stopping":
      return "stopping both roles";
    case "stopped":
      return "stopped";
  }
}
