// `deno task up`: both roles of one home, until a signal ends them. One line for each event on stdout; every fault of the home, its
// files and its secrets at once on stderr, and then nothing is started.

import { UsageError } from "../../core/errors.ts";
import { homePaths, resolveHome } from "../../core/home.ts";
import { type Given, runProgram } from "./program.ts";
import type { LaunchEvent } from "./supervise.ts";
import { up } from "./up.ts";

const help = `Starts both roles of a home, keeps them running, and stops them at Ctrl-C.

  deno task up [--home DIR] [--json]

  --home DIR  the home; else $BOXMAKER_HOME, else $HOME/.boxmaker
  --json      one JSON object a line in place of text
  --help      this text

Exit codes: 0 stopped, 1 failed, 2 something the owner wrote is wrong (all of it is printed, nothing is started).`;

async function run({ home, json, own }: Given): Promise<number> {
  const onEvent = json
    ? (event: LaunchEvent) => console.log(JSON.stringify({ time: new Date().toISOString(), ...event }))
    : (event: LaunchEvent) => printLine(describeEvent(event));
  const supervisor = await up({ paths: homePaths(resolveHome(home)), own, onEvent });
  if ("faults" in supervisor) throw new UsageError(supervisor.faults);
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    Deno.addSignalListener(signal, () => void supervisor.stop());
  }
  return await supervisor.ended;
}

function printLine(text: string): void {
  console.log(`${Temporal.Now.plainTimeISO().toString({ smallestUnit: "second" })} ${text}`);
}

/** One event as a person reads it. */
function describeEvent(event: LaunchEvent): string {
  switch (event.event) {
    case "started":
      return `${event.role} started, process ${event.pid}`;
    case "role": {
      const { event: name, text, role: _, ...more } = event.said;
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
    case "notice":
      return event.text;
    case "stopping":
      return "stopping both roles";
    case "stopped":
      return "stopped";
  }
}

if (import.meta.main) await runProgram({ name: "up", help, run });
