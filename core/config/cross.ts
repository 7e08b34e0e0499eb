// What two of the owner's files must agree on, each being sound by itself.

import type { Fault } from "../errors.ts";
import type { HomePaths } from "../home.ts";
import type { ConsultConfig } from "./brokerd_toml.ts";
import type { LoopdConfig } from "./loopd_toml.ts";
import { keyFault } from "./toml_file.ts";

/**
 * C9: loopd must be willing to wait as long as a consult may take. The fault stands at loopd's key where the file can be read (the
 * launcher); `paths` is absent where only one of the two files is (a role).
 */
export function crossFaults(
  loopd: Pick<LoopdConfig, "broker">,
  brokerd: { readonly consult: Pick<ConsultConfig, "timeoutMs"> | undefined },
  paths?: HomePaths,
): Fault[] {
  if (brokerd.consult === undefined) return [];
  const text = brokerTimeoutProblem(loopd.broker.timeoutMs, brokerd.consult.timeoutMs);
  if (text === undefined) return [];
  const fault = paths === undefined
    ? { key: "broker.timeout_ms", text }
    : keyFault(paths.loopdToml, "broker.timeout_ms", text);
  return [{ ...fault, runbook: "broker-timeout" }];
}

/** Why loopd's wait is too short, or `undefined`; loopd says the same when it meets brokerd. */
export function brokerTimeoutProblem(brokerTimeoutMs: number, consultTimeoutMs: number): string | undefined {
  if (brokerTimeoutMs >= consultTimeoutMs) return undefined;
  return `[broker] timeout_ms = ${brokerTimeoutMs} in loopd.toml is below [consult] timeout_ms = ${consultTimeoutMs} in ` +
    `brokerd.toml; loopd would give up on a consult that is still running. Make the first at least ${consultTimeoutMs}`;
}
