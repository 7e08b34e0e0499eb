// `bx completions SHELL`: a completion script made from the command table, so that it never lags behind it. It completes words and
// options; ids it leaves to the owner, since asking a role on every key would not do.

import type { Command } from "./command.ts";

const shells = ["bash", "zsh", "fish"] as const;
type Shell = typeof shells[number];

/** Completes `listed` and itself. */
export function completionsCommand(listed: readonly Command[]): Command {
  const command: Command = {
    words: "completions",
    summary: "Print a completion script for a shell: bash, zsh or fish",
    arguments: [{ name: "shell", text: "which shell", choices: shells }],
    example: "completions bash > ~/.local/share/bash-completion/completions/bx",
    async run(context, given) {
      const shell = shells.find((one) => one === given.argument("shell")) ?? "bash";
      context.print(scripts[shell](wordTree([...listed, command])));
    },
  };
  return command;
}

interface Word {
  readonly name: string;
  readonly summary: string;
  /** The second words of a group. */
  readonly words: readonly {
    readonly name: string;
    readonly summary: string;
    readonly options: readonly string[];
  }[];
  readonly options: readonly string[];
}

const globalOptions = ["--home", "--json", "--plain", "--help"];

function wordTree(commands: readonly Command[]): Word[] {
  const names = [...new Set(commands.map(({ words }) => words.split(" ")[0]))];
  return names.map((name) => {
    const own = commands.find(({ words }) => words === name);
    const group = commands.filter(({ words }) => words.startsWith(`${name} `));
    return {
      name,
      summary: own?.summary ?? `${group.map(({ words }) => words.split(" ")[1]).join(", ")}`,
      options: own === undefined ? [] : optionNames(own),
      words: group.map((command) => ({
        name: command.words.split(" ")[1],
        summary: command.summary,
        options: optionNames(command),
      })),
    };
  });
}

function optionNames(command: Command): string[] {
  return (command.options ?? []).map(({ flags }) => flags.split(" ")[0]);
}

const scripts: Readonly<Record<Shell, (words: readonly Word[]) => string>> = { bash, zsh, fish };

function bash(words: readonly Word[]): string {
  const cases = words.flatMap((word) => [
    `    ${word.name}) found="${[...word.words.map(({ name }) => name), ...word.options].join(" ")}" ;;`,
    ...word.words.map((second) =>
      `    "${word.name} ${second.name}") found="${second.options.join(" ")}" ;;`
    ),
  ]);
  return [
    "# bash completion for bx",
    "_bx() {",
    '  local current="${COMP_WORDS[COMP_CWORD]}" said="" word found',
    '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
    '    case "$word" in -*) ;; *) said="${said:+$said }$word" ;; esac',
    "  done",
    '  case "$said" in',
    `    "") found="${words.map(({ name }) => name).join(" ")}" ;;`,
    ...cases,
    '    *) found="" ;;',
    "  esac",
    `  COMPREPLY=($(compgen -W "$found ${globalOptions.join(" ")}" -- "$current"))`,
    "}",
    "complete -F _bx bx",
  ].join("\n");
}

function zsh(words: readonly Word[]): string {
  return ["#compdef bx", "autoload -U +X bashcompinit && bashcompinit", bash(words)].join("\n");
}

function fish(words: readonly Word[]): string {
  const quote = (text: string) => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
  const lines = ["# fish completion for bx", "complete -c bx -f"];
  for (const option of globalOptions) lines.push(`complete -c bx -l ${option.slice(2)}`);
  for (const word of words) {
    lines.push(`complete -c bx -n __fish_use_subcommand -a ${word.name} -d ${quote(word.summary)}`);
    for (const option of word.options) {
      lines.push(`complete -c bx -n '__fish_seen_subcommand_from ${word.name}' -l ${option.slice(2)}`);
    }
    for (const second of word.words) {
      const seen = `'__fish_seen_subcommand_from ${word.name}'`;
      lines.push(`complete -c bx -n ${seen} -a ${second.name} -d ${quote(second.summary)}`);
      for (const option of second.options) lines.push(`complete -c bx -n ${seen} -l ${option.slice(2)}`);
    }
  }
  return lines.join("\n");
}
