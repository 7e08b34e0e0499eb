// `bx backup DIR` and `bx restore DIR` as the launcher starts them: a program of their own with the flags of their rows in plan.ts. Loads no
// package: every `bx` command pays for what stands here.

import { basename, dirname, join, resolve } from "node:path";
import { parseArgs, type ParseArgsOptionsConfig } from "node:util";
import { type Fault, UsageError } from "../../core/errors.ts";
import { homePaths, pathFaults, resolveHome } from "../../core/home.ts";
import { denoArguments, plan } from "../launch/plan.ts";

export const backupWords = ["backup", "restore"] as const;
export type BackupWord = typeof backupWords[number];

export interface BackupFacts {
  readonly root: string;
  /** Absolute. */
  readonly home: string;
  /** Where a relative DIR counts from. */
  readonly typedIn: string;
}

/** Which of the two a command line asks for; `undefined` for any other, and for a request for help. */
export function backupWord(words: readonly string[]): BackupWord | undefined {
  if (words.some((word) => word === "--help" || word === "-h")) return undefined;
  const first = words.find((word) => !word.startsWith("-"));
  return backupWords.find((word) => word === first);
}

/** Everything after the name of the Deno binary. Throws UsageError. */
export function backupArguments(word: BackupWord, words: readonly string[], facts: BackupFacts): string[] {
  const { directory, withSecrets, withPermissions, json } = parse(word, words, facts);
  const { home, root } = facts;
  return [
    ...denoArguments(root),
    ...plan(word, {
      paths: homePaths(home),
      backupDirectory: directory,
      backUpAlso: [
        ...(withSecrets ? ["secrets" as const] : []),
        ...(withPermissions ? ["permissions" as const] : []),
      ],
    }),
    join(root, "tools", "backup", "main.ts"),
    word,
    ...["--home", home, "--directory", directory],
    ...(withSecrets ? ["--with-secrets"] : []),
    ...(withPermissions ? ["--with-permissions"] : []),
    ...(json ? ["--json"] : []),
  ];
}

function parse(word: BackupWord, words: readonly string[], { home, typedIn }: BackupFacts) {
  const usage = `as in: bx ${word} ${
    word === "backup" ? "DIR [--with-secrets] [--with-permissions]" : "DIR --home NEW"
  }`;
  const refuse = (text: string, file?: string): never => {
    throw new UsageError([{ ...(file === undefined ? {} : { file }), text } satisfies Fault]);
  };
  const options: ParseArgsOptionsConfig = {
    json: { type: "boolean" },
    ...(word === "backup"
      ? { "with-secrets": { type: "boolean" }, "with-permissions": { type: "boolean" } }
      : {}),
  };
  try {
    const { values: flags, positionals } = parseArgs({ args: [...words], options, allowPositionals: true });
    const [, typed, ...more] = positionals;
    if (typed === undefined || typed === "" || more.length > 0) {
      refuse(`bx ${word}: wanted one directory, found ${positionals.length - 1} (${usage})`);
    }
    const directory = resolved(resolve(typedIn, typed));
    const inside = directory === home || directory.startsWith(`${home}/`);
    if (directory.includes(",")) {
      refuse("holds a comma, where a permission flag would split; name another", directory);
    }
    if (inside) refuse(`lies in the home ${home}; a backup lies elsewhere`, directory);
    // A home too long for its sockets cannot be run, and can be backed up; a comma would split the flag of either.
    const faults = word === "restore" || home.includes(",") ? pathFaults(home) : [];
    if (faults.length > 0) throw new UsageError(faults);
    return {
      directory,
      withSecrets: flags["with-secrets"] === true,
      withPermissions: flags["with-permissions"] === true,
      json: flags.json === true,
    };
  } catch (error) {
    if (error instanceof UsageError || !(error instanceof TypeError)) throw error;
    return refuse(`bx ${word}: ${error.message.split(". ")[0]} (${usage})`);
  }
}

/** With every link on its way resolved, as a flag must name it; the last part need not exist yet. */
function resolved(path: string): string {
  const itself = resolveHome(path);
  return itself === path ? join(resolveHome(dirname(path)), basename(path)) : itself;
}
