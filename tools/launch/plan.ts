// The topology: which process may touch which files, sockets and hosts. A reader learns from the one table below who may talk to whom;
// everything a process is not given here, it cannot do. Pure: computes Deno's flags from facts and looks at nothing.

import { join } from "node:path";
import { hostAndPort } from "../../core/config/address.ts";
import type { BrokerdConfig } from "../../core/config/brokerd_toml.ts";
import type { LoopdConfig } from "../../core/config/loopd_toml.ts";
import type { HomePaths } from "../../core/home.ts";

export type Role = "loopd" | "brokerd";
/** Roles run for ever; the others are programs that the launcher starts for a person. */
export type Process = Role | "bxctl" | "console" | "practice" | "backup" | "restore" | "export-trace";

export interface PlanFacts {
  readonly paths: HomePaths;
  readonly loopd?: LoopdConfig;
  readonly brokerd?: BrokerdConfig;
  /** What `bx audit --dir` names in place of the home's own audit directory; absolute. */
  readonly auditDirectory?: string;
  /** Where the console listens on 127.0.0.1; 0 takes any free port. */
  readonly consolePort?: number;
  /** What `bx backup DIR` and `bx restore DIR` name; absolute. */
  readonly backupDirectory?: string;
  /** Parts of a home that a backup holds only where the owner asks for them. */
  readonly backUpAlso?: readonly ("secrets" | "permissions")[];
  /** Where `export-trace` sends spans, and the file in `secrets/` that holds the collector's key. */
  readonly collectorUrl?: string;
  readonly collectorSecret?: string;
}

/** What a process may do. No process is given environment, system, run or ffi. */
export interface Powers {
  /** Paths read; a directory stands for all below it. */
  readonly read: readonly string[];
  /** Paths written. */
  readonly write: readonly string[];
  /** Unix sockets listened on. */
  readonly listen: readonly string[];
  /** Unix sockets connected to. Deno wants the same grants for both: net, read and write on the path. */
  readonly connect: readonly string[];
  /** `host:port`, and nothing else on any network. */
  readonly hosts: readonly string[];
}

export function powers(process: Process, facts: PlanFacts): Powers {
  const { paths, loopd, brokerd, auditDirectory, backupDirectory = "/", backUpAlso = [], consolePort = 0 } =
    facts;
  switch (process) {
    case "loopd": // Thinks, holds no authority: never owner.sock, never a secret but its server's own.
      return {
        read: [
          paths.loopdToml,
          paths.memory,
          paths.sessions,
          paths.index,
          ...secretFile(paths, loopd?.inference),
          ...traceDirectory(paths, loopd),
        ],
        write: [paths.memory, paths.sessions, ...databaseFiles(paths.index), ...traceDirectory(paths, loopd)],
        listen: [paths.loopSocket],
        connect: [paths.brokerSocket],
        hosts: hostsOf(loopd?.inference),
      };
    case "brokerd": // Holds authority, does not think: never the inference server, a session or the memory.
      return {
        read: [paths.brokerdToml, paths.grantsToml, ...secretDirectory(paths, brokerd), paths.audit],
        write: [paths.audit],
        listen: [paths.brokerSocket, paths.ownerSocket],
        connect: [],
        hosts: hostsOf(brokerd?.consult, brokerd?.honcho),
      };
    case "bxctl": // The owner's hand: asks both roles, reads the audit log, changes no file.
      return {
        read: [auditDirectory ?? paths.audit],
        write: [],
        listen: [],
        connect: [paths.loopSocket, paths.ownerSocket],
        hosts: [],
      };
    case "backup": { // Copies a home out while the roles work: reaches nobody, and no secret unless the owner says so.
      const directories = [backupDirectory, `${backupDirectory}.partial`];
      return {
        read: [
          ...[
            paths.loopdToml,
            paths.brokerdToml,
            paths.grantsToml,
            paths.memory,
            paths.sessions,
            paths.audit,
          ],
          ...backUpAlso.map((name) => paths[name]),
          ...directories,
        ],
        write: directories,
        listen: [],
        connect: [],
        hosts: [],
      };
    }
    case "restore": { // Makes a home that is not there yet.
      const homes = [paths.home, `${paths.home}.restoring`];
      return { read: [backupDirectory, ...homes], write: homes, listen: [], connect: [], hosts: [] };
    }
    case "console": // The owner's eyes: one port of this device, both roles, and what they were granted and used. It changes no file.
      return {
        read: [paths.launches, paths.permissions],
        write: [],
        listen: [],
        connect: [paths.loopSocket, paths.ownerSocket],
        hosts: [`127.0.0.1:${consolePort}`],
      };
    case "export-trace": { // Sends spans, which hold no text, to one host, and remembers how far it came.
      const { collectorUrl, collectorSecret } = facts;
      return {
        read: [paths.trace, ...secretFile(paths, { secretName: collectorSecret })],
        write: ["exported.json", "exported.json.next"].map((name) => join(paths.trace, name)),
        listen: [],
        connect: [],
        hosts: hostsOf(collectorUrl === undefined ? undefined : { url: collectorUrl }),
      };
    }
    case "practice": // The practice model: listens on a free port of this device, and connects to none.
      return { read: [], write: [], listen: [], connect: [], hosts: ["127.0.0.1:0"] };
  }
}

/** The permission flags of a process, as Deno takes them. */
export function plan(process: Process, facts: PlanFacts): string[] {
  const { read, write, listen, connect, hosts } = powers(process, facts);
  const sockets = [...listen, ...connect];
  return [
    ...flag("--allow-read", [...read, ...sockets]),
    ...flag("--allow-write", [...write, ...sockets]),
    ...flag("--allow-net", [...hosts, ...sockets.map((path) => `unix:${path}`)]),
  ];
}

export interface RunFacts extends PlanFacts {
  /** Where `deno.json` and the programs lie. */
  readonly root: string;
  /** The program, in place of the one under `root`. */
  readonly entry?: string;
  /** Stands in for an absent `[inference] url` (the practice model). */
  readonly inferenceUrl?: string;
  /** The launcher's time zone, which a cleared environment does not carry. */
  readonly timeZone?: string;
}

/**
 * The part of V8's memory that new objects go through, in MB. Left to itself it grows with the traffic and is never given back: 1,000 turns
 * then cost 54 MB, and 27 with this, for the same time (docs/performance.md).
 */
const youngMemory = "--v8-flags=--max-semi-space-size=4";

/** Everything after the name of the Deno binary: what /proc shows and `audit/launches.jsonl` keeps. */
export function roleArguments(role: Role, facts: RunFacts): string[] {
  return [
    ...denoArguments(facts.root, ["--cached-only", youngMemory]),
    ...plan(role, facts),
    facts.entry ?? join(facts.root, role, "main.ts"),
    "--home",
    facts.paths.home,
    "--lifeline",
    ...(role === "loopd" ? loopdArguments(facts) : []),
  ];
}

/** Only what loopd.toml leaves open: a key in the file always wins. */
function loopdArguments({ loopd, inferenceUrl, timeZone }: RunFacts): string[] {
  return [
    ...(inferenceUrl === undefined ? [] : ["--inference-url", inferenceUrl]),
    ...(timeZone === undefined || loopd?.clock.timeZone !== undefined ? [] : ["--time-zone", timeZone]),
  ];
}

/**
 * `--no-prompt`: a refusal is an error, not a question. `--cached-only`: `import()` of a package or an address is the one way out that
 * no network grant confines. `--frozen`: a run never rewrites the lock.
 */
export function denoArguments(root: string, more: readonly string[] = []): string[] {
  return ["run", "-q", "--no-prompt", ...more, "--frozen", "--config", join(root, "deno.json")];
}

function flag(name: string, values: readonly string[]): string[] {
  return values.length === 0 ? [] : [`${name}=${values.join(",")}`];
}

function hostsOf(...servers: readonly ({ readonly url: string } | undefined)[]): string[] {
  return [...new Set(servers.flatMap((server) => server === undefined ? [] : [hostAndPort(server.url)]))];
}

function secretFile(paths: HomePaths, server: { readonly secretName?: string } | undefined): string[] {
  return server?.secretName === undefined ? [] : [join(paths.secrets, server.secretName)];
}

/** For spans, where the owner asks for them. */
function traceDirectory(paths: HomePaths, loopd: LoopdConfig | undefined): string[] {
  return loopd?.trace.enabled === true ? [paths.trace] : [];
}

/** The store, for a brokerd that is to read any secret; its loader looks at the directory, too. */
function secretDirectory(paths: HomePaths, brokerd: BrokerdConfig | undefined): string[] {
  const names = [brokerd?.consult?.secretName, brokerd?.honcho?.secretName];
  return names.some((name) => name !== undefined) ? [paths.secrets] : [];
}

/** The file, and those that SQLite keeps beside it and a rebuild removes. */
function databaseFiles(path: string): string[] {
  return [path, `${path}-wal`, `${path}-shm`, `${path}-journal`];
}
