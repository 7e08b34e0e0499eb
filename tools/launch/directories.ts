// The directories of a home, as the launcher makes and checks them. Apart from preflight, so that a program which only makes them loads no
// schema.

import type { Fault } from "../../core/errors.ts";
import { type HomePaths, octal } from "../../core/home.ts";

/** In the order in which they are made, each 0700. */
export function homeDirectories(paths: HomePaths): string[] {
  return [paths.secrets, paths.memory, paths.sessions, paths.audit, paths.run, paths.permissions];
}

/** A link inside an allowed path would be followed out of it, and a directory that others may write is no wall. */
export function directoryFaults(paths: HomePaths): Fault[] {
  return [...homeDirectories(paths), paths.trace].flatMap((directory): Fault[] => {
    let stat: Deno.FileInfo;
    try {
      stat = Deno.lstatSync(directory);
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return [];
      return [{ file: directory, text: "cannot be looked at; check its owner and mode", runbook: "home" }];
    }
    if (!stat.isDirectory) {
      return [{ file: directory, text: "is not a directory (a link to one is not enough)", runbook: "home" }];
    }
    if (stat.mode === null || (stat.mode & 0o022) === 0) return [];
    const text = `others may write this directory (mode ${octal(stat.mode)}); run: chmod 700 ${directory}`;
    return [{ file: directory, text, runbook: "home" }];
  });
}
