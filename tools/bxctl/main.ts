// `bx`: the owner's commands as one table, made into a command line by commander, and the exit code of each way to end. It holds no
// authority of its own: what it may reach is what tools/launch/command.ts grants it. Everything it does is in the table's files.

import {
  Argument as CommanderArgument,
  Command as CommanderCommand,
  CommanderError,
  Option as CommanderOption,
} from "commander";
import { describeError, exitCodes, UsageError } from "../../core/errors.ts";
import { chooseHome, homePaths, resolveHome } from "../../core/home.ts";
import { auditCommands } from "./audit.ts";
import { backupCommands } from "./backup.ts";
import { chatCommand } from "./chat.ts";
import { type Command, CommandFailure, Context, Given } from "./command.ts";
import { completionsCommand } from "./completions.ts";
import { grantCommands } from "./grants.ts";
import { visible } from "./render.ts";
import { sessionCommands } from "./sessions.ts";
import { statusCommands } from "./status.ts";
import { systemTerminal, type Terminal } from "./terminal.ts";

const listed: readonly Command[] = [
  chatCommand,
  ...sessionCommands,
  ...statusCommands,
  ...grantCommands,
  ...auditCommands,
  ...backupCommands,
];
/** Every command of the CLI, in the order of its help. */
export const commands: readonly Command[] = [...listed, completionsCommand(listed)];

const groupSummaries: Readonly<Record<string, string>> = {
  approvals: "List and decide the calls that wait for the owner",
  grants: "Ask what the grants would decide, or read them again",
  consult: "See what a consult would send",
  audit: "Read and verify the audit log",
};

/** What of the environment chooses the home, where no `--home` does. */
export interface Environment {
  readonly BOXMAKER_HOME?: string;
  readonly HOME?: string;
  readonly INIT_CWD?: string;
}

/** Runs one command line and returns its exit code. Never throws; what went wrong stands on standard error. */
export async function runCommandLine(
  words: readonly string[],
  { terminal, environment }: { terminal: Terminal; environment: Environment },
): Promise<number> {
  let exitCode: number = exitCodes.done;
  const program = buildProgram(terminal, async (command, given, { home, json }) => {
    const paths = homePaths(resolveHome(chooseHome({ flag: home, env: { ...environment } })));
    exitCode = await command.run(new Context(paths, json, terminal), given) ?? exitCodes.done;
  });
  try {
    await program.parseAsync([...words], { from: "user" });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError) return exitCodeOf(error);
    if (error instanceof Deno.errors.BrokenPipe) return exitCodes.done;
    const text = error instanceof CommandFailure || error instanceof UsageError
      ? error.message
      : `a fault of bx itself: ${describeError(error)}`;
    terminal.writeError(`bx: ${visible(text)}\n`);
    if (error instanceof CommandFailure) return error.exitCode;
    return error instanceof UsageError ? exitCodes.usage : exitCodes.failed;
  }
}

// commander prints help and faults itself. Help that was asked for is done; help shown because a word was missing is a usage error.
function exitCodeOf(error: CommanderError): number {
  return error.code === "commander.helpDisplayed" || (error.code === "commander.help" && error.exitCode === 0)
    ? exitCodes.done
    : exitCodes.usage;
}

type Action = (command: Command, given: Given, options: { home?: string; json: boolean }) => Promise<void>;

function buildProgram(terminal: Terminal, action: Action): CommanderCommand {
  const program = new CommanderCommand("bx")
    .description("The owner's command line of Boxmaker")
    .option("--home <dir>", "the home; default: $BOXMAKER_HOME, else ~/.boxmaker")
    .option("--json", "print JSON")
    .option("--plain", "no colour, and nothing on the screen is redrawn; as with TERM=dumb")
    .helpOption("-h, --help", "show help")
    .helpCommand("help [command]", "show help of a command")
    .configureHelp({ showGlobalOptions: true })
    .configureOutput({
      writeOut: (text) => terminal.write(text),
      writeErr: (text) => terminal.writeError(text),
      outputError: (text, write) => write(`bx: ${visible(text.replace(/^error: /, ""))}`),
      getOutHasColors: () => terminal.colour,
      getErrHasColors: () => false,
    })
    .exitOverride()
    .showHelpAfterError("(see bx --help)")
    .addHelpText("after", "\nExample:\n  bx chat\n");
  const groups = new Map<string, CommanderCommand>();
  for (const command of commands) {
    const [word, own] = command.words.split(" ");
    if (own === undefined) {
      addCommand(program, word, command, action);
      continue;
    }
    const group = groups.get(word) ??
      program.command(word).description(groupSummaries[word] ?? "").addHelpText(
        "after",
        `\nExample:\n  bx ${command.example}\n`,
      );
    groups.set(word, group);
    addCommand(group, own, command, action);
  }
  return program;
}

function addCommand(parent: CommanderCommand, word: string, command: Command, action: Action): void {
  const made = parent.command(word, { isDefault: command.isDefault === true })
    .description(command.summary)
    .allowExcessArguments(false)
    .addHelpText("after", `\nExample:\n  bx ${command.example}\n`)
    .showHelpAfterError(`(as in: bx ${command.example})`);
  for (const { name, text, optional, rest, choices } of command.arguments ?? []) {
    const shown = rest ? `${name}...` : name;
    const argument = new CommanderArgument(optional ? `[${shown}]` : `<${shown}>`, text);
    made.addArgument(choices === undefined ? argument : argument.choices(choices));
  }
  for (const { flags, text, required, choices } of command.options ?? []) {
    const option = new CommanderOption(flags, text);
    if (choices !== undefined) option.choices(choices);
    if (required) option.makeOptionMandatory();
    made.addOption(option);
  }
  made.action(async () => {
    const { home, json, plain: _, ...own } = made.optsWithGlobals();
    await action(command, new Given(argumentValues(command, made.processedArgs), own), {
      home,
      json: json === true,
    });
  });
}

function argumentValues(command: Command, values: readonly unknown[]): Map<string, string> {
  const given = new Map<string, string>();
  (command.arguments ?? []).forEach(({ name }, index) => {
    const value = values[index];
    if (Array.isArray(value) && value.length > 0) given.set(name, value.join(" "));
    else if (typeof value === "string") given.set(name, value);
  });
  return given;
}

/** A variable that this process may not read counts as absent: started by the launcher it is given `--home` and no environment. */
function readVariable(name: string): string | undefined {
  try {
    return Deno.env.get(name);
  } catch (error) {
    if (error instanceof Deno.errors.NotCapable) return undefined;
    throw error;
  }
}

if (import.meta.main) {
  const environment: Environment = {
    BOXMAKER_HOME: readVariable("BOXMAKER_HOME"),
    HOME: readVariable("HOME"),
    INIT_CWD: readVariable("INIT_CWD"),
  };
  const plain = Deno.args.includes("--plain") || readVariable("TERM") === "dumb";
  const terminal = systemTerminal({ plain });
  Deno.exit(await runCommandLine(Deno.args, { terminal, environment }));
}
