// `bx backup` and `bx restore` as the help and the completions know them. The launcher starts both as a program of their own
// (tools/backup), since this one may read no session and write nothing; run from here they can only say so.

import { exitCodes } from "../../core/errors.ts";
import { type Command, CommandFailure } from "./command.ts";

const elsewhere = () => {
  throw new CommandFailure(exitCodes.usage, "this command is run by the launcher: deno task bx …");
};

export const backupCommands: readonly Command[] = [
  {
    words: "backup",
    summary: "Copy the home into a new directory, consistently, also while the roles run",
    arguments: [{ name: "dir", text: "a directory that does not exist yet" }],
    options: [
      { flags: "--with-secrets", text: "the secrets, too: whoever has the copy has the keys" },
      { flags: "--with-permissions", text: "the permission-audit files, too" },
    ],
    example: "backup ~/backups/boxmaker-2026-12-01",
    run: elsewhere,
  },
  {
    words: "restore",
    summary: "Make a new home of a backup, after holding every file against its manifest",
    arguments: [{ name: "dir", text: "what bx backup made" }],
    example: "restore ~/backups/boxmaker-2026-12-01 --home ~/.boxmaker-restored",
    run: elsewhere,
  },
];
