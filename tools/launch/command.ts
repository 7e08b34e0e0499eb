// `deno task bx`: runs the owner's CLI as a child that can reach loop.sock, owner.sock and one audit directory, and nothing else; `backup`
// and `restore` as one that reaches a home and one other directory, and no socket. Passes on what the owner typed and the exit code.
// Loads no package: every command pays for this start.

import { join, resolve } from "node:path";
import { exitCodes, UsageError } from "../../core/errors.ts";
import { chooseHome, homePaths, pathFaults, resolveHome } from "../../core/home.ts";
import { backupArguments, backupWord } from "../backup/arguments.ts";
import { type OwnEnvironment, ownEnvironment, personEnvironment } from "./environment.ts";
import { denoArguments, plan } from "./plan.ts";
import { printFaults } from "./program.ts";
import { ownRoot } from "./root.ts";

export interface BxOptions {
  readonly root: string;
  readonly own: OwnEnvironment;
}

/** The child's arguments after the name of the Deno binary. Throws UsageError where the home is unfit. */
export function bxArguments(typed: readonly string[], { root, own }: BxOptions): string[] {
  const { home: flag, directory, rest } = takeDirectories(typed, own);
  const home = resolveHome(chooseHome({ flag, env: own }));
  const word = backupWord(rest);
  if (word !== undefined) {
    return backupArguments(word, rest, { root, home, typedIn: own.INIT_CWD ?? Deno.cwd() });
  }
  const faults = pathFaults(home);
  if (directory?.includes(",")) {
    faults.push({
      file: directory,
      text: "holds a comma, where a permission flag would split; move it elsewhere",
    });
  }
  if (faults.length > 0) throw new UsageError(faults);
  return [
    ...denoArguments(root),
    ...plan("bxctl", { paths: homePaths(home), auditDirectory: directory }),
    join(root, "tools", "bxctl", "main.ts"),
    "--home",
    home,
    // The child may read no environment: that this terminal cannot be redrawn is said to it.
    ...(own.TERM === "dumb" ? ["--plain"] : []),
    ...rest,
  ];
}

/** Runs one command line of the CLI in this terminal; resolves with its exit code. */
export async function runBx(typed: readonly string[], options: BxOptions): Promise<number> {
  const child = new Deno.Command(Deno.execPath(), {
    args: bxArguments(typed, options),
    clearEnv: true,
    env: personEnvironment(options.own),
    stdin: "inherit",
    stdout: "inherit",
    stderr: "inherit",
  }).spawn();
  // Ctrl-C reaches the child from the terminal itself, and what it means there is the child's to say.
  const ignore = () => {};
  const terminate = () => child.kill("SIGTERM");
  Deno.addSignalListener("SIGINT", ignore);
  Deno.addSignalListener("SIGTERM", terminate);
  const { code } = await child.status;
  Deno.removeSignalListener("SIGINT", ignore);
  Deno.removeSignalListener("SIGTERM", terminate);
  return code;
}

/** `--home` is taken out, `--dir` made absolute: both count from where the owner typed them, which the child does not know. */
export function takeDirectories(typed: readonly string[], own: OwnEnvironment) {
  let home: string | undefined;
  let directory: string | undefined;
  const rest: string[] = [];
  for (let at = 0; at < typed.length; at++) {
    if (typed[at] === "--") {
      rest.push(...typed.slice(at));
      break;
    }
    const [name, inline] = splitOption(typed[at]);
    const value = inline ?? typed[at + 1];
    if ((name !== "--home" && name !== "--dir") || value === undefined) {
      rest.push(typed[at]);
      continue;
    }
    if (inline === undefined) at++;
    if (name === "--home") home = value;
    else {
      directory = resolveHome(resolve(own.INIT_CWD ?? Deno.cwd(), value));
      rest.push("--dir", directory);
    }
  }
  return { home, directory, rest };
}

/** Whether this is a `doctor` for a person to read. */
function asksDoctor(words: readonly string[]): boolean {
  if (words.some((word) => ["--help", "-h", "--json"].includes(word))) return false;
  return words.find((word) => !word.startsWith("-")) === "doctor";
}

function splitOption(text: string): [string, string | undefined] {
  const at = text.indexOf("=");
  return at === -1 || !text.startsWith("--") ? [text, undefined] : [text.slice(0, at), text.slice(at + 1)];
}

if (import.meta.main) {
  try {
    const own = ownEnvironment();
    const { home, rest } = takeDirectories(Deno.args, own);
    if (asksDoctor(rest)) {
      // A home whose path alone is unfit is refused here, once.
      bxArguments(Deno.args, { root: ownRoot, own });
      // Loads the schemas of the files, which no other command pays for.
      const { homeCheck } = await import("./home_check.ts");
      const lines = await homeCheck(homePaths(resolveHome(chooseHome({ flag: home, env: own }))));
      for (const line of lines) console.log(line);
    }
    Deno.exit(await runBx(Deno.args, { root: ownRoot, own }));
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    printFaults(error.faults);
    Deno.exit(exitCodes.usage);
  }
}
