// Where everything of one owner lives: the paths under the home, which home is meant, and what makes a home unfit.
// Names paths and looks at the home directory itself; never creates, changes or reads a file in it.

import { isAbsolute, join, resolve } from "node:path";
import { type Fault, UsageError } from "./errors.ts";
import { socketPathBytesMax } from "./limits.ts";

export interface HomePaths {
  readonly home: string;
  readonly loopdToml: string;
  readonly brokerdToml: string;
  readonly grantsToml: string;
  /** Directory; one file per secret. */
  readonly secrets: string;
  readonly memory: string;
  readonly identity: string;
  readonly notes: string;
  readonly sessions: string;
  /** Directory of brokerd's log and of `launches`. */
  readonly audit: string;
  readonly launches: string;
  readonly run: string;
  readonly brokerSocket: string;
  readonly loopSocket: string;
  readonly ownerSocket: string;
  /** The full-text index, a SQLite database. */
  readonly index: string;
  /** Directory of the permission-audit files, one per process. */
  readonly permissions: string;
  /** Directory of the files of spans, where `[trace]` asks for them. */
  readonly trace: string;
}

export function homePaths(home: string): HomePaths {
  const at = (...parts: string[]) => join(home, ...parts);
  return {
    home,
    loopdToml: at("loopd.toml"),
    brokerdToml: at("brokerd.toml"),
    grantsToml: at("grants.toml"),
    secrets: at("secrets"),
    memory: at("memory"),
    identity: at("memory", "identity.md"),
    notes: at("memory", "notes.md"),
    sessions: at("sessions"),
    audit: at("audit"),
    launches: at("audit", "launches.jsonl"),
    run: at("run"),
    brokerSocket: at("run", "broker.sock"),
    loopSocket: at("run", "loop.sock"),
    ownerSocket: at("run", "owner.sock"),
    index: at("index.sqlite"),
    permissions: at("permissions"),
    trace: at("trace"),
  };
}

export interface HomeChoice {
  /** `--home DIR` as the owner wrote it. */
  readonly flag?: string;
  /** The environment, or the part of it that decides: BOXMAKER_HOME, HOME, INIT_CWD. */
  readonly env: { readonly [name: string]: string | undefined };
}

/**
 * `--home`, else `$BOXMAKER_HOME`, else `$HOME/.boxmaker`; absolute. A relative one counts from where the owner typed it, which
 * `deno task` passes on as INIT_CWD. Throws UsageError where nothing says which home is meant.
 */
export function chooseHome({ flag, env }: HomeChoice): string {
  const chosen = flag || env.BOXMAKER_HOME || (env.HOME ? join(env.HOME, ".boxmaker") : undefined);
  if (chosen === undefined) {
    throw new UsageError([{
      text: "no home is named: give --home DIR, or set BOXMAKER_HOME or HOME",
      runbook: "home",
    }]);
  }
  if (isAbsolute(chosen)) return resolve(chosen);
  return resolve(env.INIT_CWD || Deno.cwd(), chosen);
}

/**
 * The home with every symlink on its way resolved, as permission flags must name it: Deno follows a link inside an allowed path, so a
 * flag that named the link would allow whatever it points at later. A home that does not exist comes back as it is.
 */
export function resolveHome(home: string): string {
  try {
    return Deno.realPathSync(home);
  } catch {
    return home;
  }
}

export interface HomeFaultOptions {
  /** Our own user id; where it is absent (roles may not ask for it) ownership is not compared. */
  readonly uid?: number | null;
}

/** What makes this home unfit. Wants a home already resolved (`resolveHome`). */
export function homeFaults(home: string, options: HomeFaultOptions = {}): Fault[] {
  const faults = pathFaults(home);
  // A home that could not be made there either needs another path first.
  if (faults.length > 0 && !exists(home)) return faults;
  return [...faults, ...directoryFaults(home, options)];
}

/** Faults of the path alone, for a home that need not exist yet. */
export function pathFaults(home: string): Fault[] {
  const faults: Fault[] = [];
  if (home.includes(",")) {
    faults.push({
      file: home,
      text: "the home's path holds a comma, where a permission flag would split; choose a path without one",
      runbook: "home",
    });
  }
  const { brokerSocket, loopSocket, ownerSocket } = homePaths(home);
  const longest = [brokerSocket, loopSocket, ownerSocket]
    .map((path) => ({ path, bytes: new TextEncoder().encode(path).length }))
    .reduce((a, b) => a.bytes >= b.bytes ? a : b);
  if (longest.bytes > socketPathBytesMax) {
    faults.push({
      file: home,
      text: `the home's path is too long: its socket ${longest.path} takes ${longest.bytes} bytes, at most ` +
        `${socketPathBytesMax} fit; choose a home at least ${
          longest.bytes - socketPathBytesMax
        } bytes shorter`,
      runbook: "home",
    });
  }
  return faults;
}

function exists(path: string): boolean {
  try {
    Deno.lstatSync(path);
    return true;
  } catch {
    return false;
  }
}

function directoryFaults(home: string, { uid }: HomeFaultOptions): Fault[] {
  let stat: Deno.FileInfo;
  try {
    stat = Deno.lstatSync(home);
  } catch (error) {
    const text = error instanceof Deno.errors.NotFound
      ? `this home does not exist; make it with: deno task init --home ${home}`
      : `this home cannot be looked at (${error instanceof Error ? error.name : "unknown error"})`;
    return [{ file: home, text, runbook: "home" }];
  }
  if (!stat.isDirectory) {
    return [{ file: home, text: "is not a directory; a home is one", runbook: "home" }];
  }
  const faults: Fault[] = [];
  const real = resolveHome(home);
  if (real !== home) {
    faults.push({
      file: home,
      text: `leads through a symbolic link to ${real}; use that path`,
      runbook: "home",
    });
  }
  if (stat.mode !== null && (stat.mode & 0o077) !== 0) {
    faults.push({
      file: home,
      text: `others may enter this home (mode ${octal(stat.mode)}); run: chmod 700 ${home}`,
      runbook: "home",
    });
  }
  if (uid !== undefined && uid !== null && stat.uid !== null && stat.uid !== uid) {
    faults.push({
      file: home,
      text: `belongs to user ${stat.uid}, and this runs as user ${uid}; a home belongs to its user`,
      runbook: "home",
    });
  }
  return faults;
}

/** Permission bits as chmod takes them. */
export function octal(mode: number): string {
  return (mode & 0o7777).toString(8).padStart(4, "0");
}
