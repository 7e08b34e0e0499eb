// What the launcher's programs share as programs: three options, the help text, and how what the owner wrote wrong is said.
// Which home is meant is decided here once; what is done in it is each program's own.

import { parseArgs } from "node:util";
import { describeFault, exitCodes, type Fault, UsageError } from "../../core/errors.ts";
import { chooseHome } from "../../core/home.ts";
import { type OwnEnvironment, ownEnvironment } from "./environment.ts";

export interface Given {
  /** Absolute; its links are not yet resolved. */
  readonly home: string;
  /** `--home` was given: what a next command needs as well. */
  readonly homeWasNamed: boolean;
  readonly json: boolean;
  readonly own: OwnEnvironment;
}

export interface Program {
  readonly name: string;
  readonly help: string;
  /** The exit code. A UsageError is printed, fault by fault, and is exit 2. */
  run(given: Given): Promise<number>;
}

/** Runs the program with this process's arguments and ends the process. */
export async function runProgram(program: Program): Promise<never> {
  Deno.exit(await exitCodeOf(program, Deno.args));
}

async function exitCodeOf({ name, help, run }: Program, args: string[]): Promise<number> {
  let json = false;
  try {
    const { values } = parseArgs({
      args,
      options: { home: { type: "string" }, json: { type: "boolean" }, help: { type: "boolean", short: "h" } },
    });
    if (values.help) {
      console.log(help);
      return exitCodes.done;
    }
    json = values.json ?? false;
    const own = ownEnvironment();
    const home = chooseHome({ flag: values.home, env: own });
    return await run({ home, homeWasNamed: values.home !== undefined, json, own });
  } catch (error) {
    if (error instanceof UsageError) printFaults(error.faults, json);
    else if (isArgumentError(error)) console.error(`${name}: ${error.message.split(". ")[0]}\n\n${help}`);
    else throw error;
    return exitCodes.usage;
  }
}

export function printFaults(faults: readonly Fault[], json = false): void {
  for (const fault of faults) {
    console.error(describeFault(fault));
    if (json) console.log(JSON.stringify({ event: "fault", ...fault }));
  }
}

/** What node:util's parseArgs throws at an option it does not know or a value that is missing. */
function isArgumentError(error: unknown): error is Error {
  return error instanceof TypeError && "code" in error && String(error.code).startsWith("ERR_PARSE_ARGS");
}
