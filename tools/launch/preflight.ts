// Everything that can be known to be wrong before anything starts: the home, the three files, what they must agree on, the secrets.
// Collects all faults at once. Reads only: starts nothing, creates nothing, changes nothing.

import { join } from "node:path";
import {
  type BrokerdConfig,
  consultTimeoutMsDefault,
  loadBrokerdConfig,
} from "../../core/config/brokerd_toml.ts";
import { crossFaults } from "../../core/config/cross.ts";
import { type Grant, loadGrants } from "../../core/config/grants_toml.ts";
import {
  brokerTimeoutMsDefault,
  isTimeZone,
  loadLoopdConfig,
  type LoopdConfig,
  type LoopdTomlOptions,
} from "../../core/config/loopd_toml.ts";
import { type LoadedToml, type TomlResult, tomlValue } from "../../core/config/toml_file.ts";
import { isSecretName } from "../../core/config/wanted.ts";
import type { Fault } from "../../core/errors.ts";
import { homeFaults, type HomePaths } from "../../core/home.ts";
import { loadSecret } from "../../core/secrets.ts";
import { directoryFaults } from "./directories.ts";
import { lockHolder } from "./lock.ts";

export interface PreflightOptions extends LoopdTomlOptions {
  /** The launcher's own zone. */
  readonly timeZone: string;
  readonly uid: number | null;
}

export interface Sound {
  readonly loopd: LoopdConfig;
  readonly brokerd: BrokerdConfig;
  /** Hashes of the files' bytes, for `audit/launches.jsonl`. */
  readonly hashes: { readonly loopd: string; readonly brokerd: string; readonly grants: string };
}

/** The configuration of a home in which both roles can be started, or all that stands in the way. */
export async function preflight(
  paths: HomePaths,
  options: PreflightOptions,
): Promise<Sound | { faults: Fault[] }> {
  const unfit = homeFaults(paths.home, { uid: options.uid });
  if (!isDirectory(paths.home)) return { faults: unfit };

  const faults = [...unfit, ...directoryFaults(paths)];
  if (lockHolder(paths) !== undefined) faults.push(runningFault(paths));
  const files = readFiles(paths, options);
  faults.push(...files.faults);
  if (files.loopd !== undefined) faults.push(...zoneFaults(files.loopd.value, options.timeZone));
  faults.push(...await secretFaults(paths, files.secretNames));
  return await soundOr(files, faults);
}

/** The three files alone, read anew. */
export async function loadFiles(
  paths: HomePaths,
  options: LoopdTomlOptions,
): Promise<Sound | { faults: Fault[] }> {
  const files = readFiles(paths, options);
  return await soundOr(files, files.faults);
}

interface Files {
  readonly loopd?: LoadedToml<LoopdConfig>;
  readonly brokerd?: LoadedToml<BrokerdConfig>;
  readonly grants?: LoadedToml<Grant[]>;
  /** Of each file, and of what two of them disagree on. */
  readonly faults: Fault[];
  /** Named in any of them, in one with faults, too: the owner hears of everything at once. */
  readonly secretNames: ReadonlySet<string>;
}

function readFiles(paths: HomePaths, { inferenceUrl }: LoopdTomlOptions): Files {
  const faults: Fault[] = [];
  const secretNames = new Set<string>();
  const sound = <T>(result: TomlResult<T>): LoadedToml<T> | undefined => {
    if ("value" in result) return result;
    faults.push(...result.faults);
  };
  const loopd = loadLoopdConfig(paths, { inferenceUrl });
  const brokerd = loadBrokerdConfig(paths);
  for (
    const name of [
      "value" in loopd ? loopd.value.inference?.secretName : tomlValue(loopd.document, "inference", "secret"),
      "value" in brokerd
        ? brokerd.value.consult?.secretName
        : tomlValue(brokerd.document, "consult", "secret"),
      "value" in brokerd ? brokerd.value.honcho?.secretName : tomlValue(brokerd.document, "honcho", "secret"),
    ]
  ) if (isSecretName(name)) secretNames.add(name);
  const files = { loopd: sound(loopd), brokerd: sound(brokerd), grants: sound(loadGrants(paths)) };
  faults.push(...crossFaults({ broker: brokerOf(loopd) }, { consult: consultOf(brokerd) }, paths));
  return { ...files, faults, secretNames };
}

function brokerOf(loopd: TomlResult<LoopdConfig>): { timeoutMs: number } {
  if ("value" in loopd) return loopd.value.broker;
  const timeoutMs = tomlValue(loopd.document, "broker", "timeout_ms");
  return { timeoutMs: typeof timeoutMs === "number" ? timeoutMs : brokerTimeoutMsDefault };
}

function consultOf(brokerd: TomlResult<BrokerdConfig>): { timeoutMs: number } | undefined {
  if ("value" in brokerd) return brokerd.value.consult;
  if (tomlValue(brokerd.document, "consult") === undefined) return undefined;
  const timeoutMs = tomlValue(brokerd.document, "consult", "timeout_ms");
  return { timeoutMs: typeof timeoutMs === "number" ? timeoutMs : consultTimeoutMsDefault };
}

async function soundOr(
  { loopd, brokerd, grants }: Files,
  faults: Fault[],
): Promise<Sound | { faults: Fault[] }> {
  if (faults.length > 0 || loopd === undefined || brokerd === undefined || grants === undefined) {
    return { faults };
  }
  return {
    loopd: loopd.value,
    brokerd: brokerd.value,
    hashes: {
      loopd: await sha256(loopd.bytes),
      brokerd: await sha256(brokerd.bytes),
      grants: await sha256(grants.bytes),
    },
  };
}

// The platform's own, for three small files: loading node:crypto would cost the launcher 20 ms of every start.
async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)).toHex();
}

export function runningFault(paths: HomePaths): Fault {
  const holder = lockHolder(paths);
  const text =
    `another launcher${holder ? ` (process ${holder})` : ""} runs the roles of this home already; ` +
    "use it, or stop it first";
  return { file: paths.home, text, runbook: "home" };
}

function zoneFaults(loopd: LoopdConfig, timeZone: string): Fault[] {
  if (loopd.clock.timeZone !== undefined || isTimeZone(timeZone)) return [];
  return [{
    key: "clock.time_zone",
    text: "this device names no time zone that is known; write [clock] time_zone into loopd.toml",
    runbook: "config-fault",
  }];
}

async function secretFaults(paths: HomePaths, names: Iterable<string>): Promise<Fault[]> {
  const faults: Fault[] = [];
  for (const name of names) {
    const loaded = await loadSecret(join(paths.secrets, name), {
      checkDirectories: [paths.home, paths.secrets],
    });
    if ("fault" in loaded) faults.push(loaded.fault);
  }
  return faults;
}

function isDirectory(path: string): boolean {
  try {
    return Deno.lstatSync(path).isDirectory;
  } catch {
    return false;
  }
}
