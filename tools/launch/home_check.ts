// What `doctor` can say of a home in which nothing runs: its files, held as `deno task up` would hold them before it starts a role.
// Reads only, and asks nobody; whether the roles answer is said by the CLI.

import { describeFault } from "../../core/errors.ts";
import type { HomePaths } from "../../core/home.ts";
import { lockHolder } from "./lock.ts";
import { preflight } from "./preflight.ts";

/** Lines as doctor's own, or nothing where a launcher runs this home: what it started with was checked then. */
export async function homeCheck(paths: HomePaths): Promise<string[]> {
  if (lockHolder(paths) !== undefined) return [];
  // The ownership of the home is not compared: asking for our own user id is a right that this program does not have.
  const found = await preflight(paths, { timeZone: Temporal.Now.timeZoneId(), uid: null });
  const nothing = `nothing runs in ${paths.home}; its files were checked as deno task up would`;
  if ("faults" in found) {
    return [nothing, ...found.faults.map((fault) => `FAIL  files    ${describeFault(fault)}`)];
  }
  const { inference } = found.loopd;
  return [
    nothing,
    "ok    files    loopd.toml, brokerd.toml, grants.toml and the secrets that they name are sound",
    ...(inference === undefined
      ? [
        "      -> loopd.toml names no [inference] url: deno task chat brings a practice model, deno task up none",
      ]
      : []),
  ];
}
