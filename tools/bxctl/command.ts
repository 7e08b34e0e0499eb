// What a command of the CLI is: its words, arguments, options, example, and what it does. Also how a command fails. The table of all
// commands is in main.ts; nothing here speaks to a role.

import type { HomePaths } from "../../core/home.ts";
import { type RunbookEntry, runbookPointer } from "../../core/runbook.ts";
import { parseSessionId, type SessionId } from "../../core/ids.ts";
import { exitCodes } from "../../core/errors.ts";
import { type Painter, painter } from "./render.ts";
import type { Terminal } from "./terminal.ts";

export interface Argument {
  readonly name: string;
  readonly text: string;
  readonly optional?: boolean;
  /** Takes all that follow, joined by spaces. */
  readonly rest?: boolean;
  readonly choices?: readonly string[];
}

export interface Option {
  /** As in `--head <SEQ:HASH>`. */
  readonly flags: string;
  readonly text: string;
  readonly required?: boolean;
  readonly choices?: readonly string[];
}

export interface Command {
  /** `send`, or a group's word and its own: `audit verify`. */
  readonly words: string;
  readonly summary: string;
  readonly arguments?: readonly Argument[];
  readonly options?: readonly Option[];
  /** What stands after `bx`. */
  readonly example: string;
  /** Runs when its group is named alone. */
  readonly isDefault?: boolean;
  /** The exit code; none is 0. */
  run(context: Context, given: Given): Promise<number | void>;
}

/** What the owner gave on the command line. */
export class Given {
  constructor(
    private readonly argumentValues: ReadonlyMap<string, string>,
    private readonly optionValues: Readonly<Record<string, unknown>>,
  ) {}

  /** An argument that the command's table requires. */
  argument(name: string): string {
    const value = this.argumentValues.get(name);
    if (value === undefined) throw new CommandFailure(exitCodes.usage, `no ${name} was given`);
    return value;
  }

  optionalArgument(name: string): string | undefined {
    return this.argumentValues.get(name);
  }

  session(name = "id"): SessionId {
    return sessionOf(this.argument(name));
  }

  /** An option's value, or undefined where it was not given. */
  option(name: string): string | undefined {
    const value = this.optionValues[name];
    return typeof value === "string" ? value : undefined;
  }

  flag(name: string): boolean {
    return this.optionValues[name] === true;
  }
}

export function sessionOf(text: string): SessionId {
  try {
    return parseSessionId(text);
  } catch (error) {
    throw new CommandFailure(exitCodes.usage, error instanceof Error ? error.message : String(error));
  }
}

export class Context {
  readonly paint: Painter;

  constructor(readonly home: HomePaths, readonly json: boolean, readonly terminal: Terminal) {
    this.paint = painter(terminal.colour);
  }

  /** One line on standard output; must be safe for a terminal (render.ts). */
  print(line: string): void {
    this.terminal.write(`${line}\n`);
  }

  /** One line on standard error. */
  warn(line: string): void {
    this.terminal.writeError(`bx: ${line}\n`);
  }
}

/** A command that cannot be done: its text goes to standard error, safe for a terminal already, and the process exits with `exitCode`. */
export class CommandFailure extends Error {
  override readonly name = "CommandFailure";
  constructor(readonly exitCode: number, text: string, runbook?: RunbookEntry) {
    super(runbook === undefined ? text : `${text} (${runbookPointer(runbook)})`);
  }
}
