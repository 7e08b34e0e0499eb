// The kinds of error and the fate of each (docs/style.md): usage, protocol, upstream, bug. `denied` is an ordinary answer, not an error.
// Texts say what could not be done, to what, the value, the wanted form; never a secret, never a peer's raw bytes.

import { type RunbookEntry, runbookPointer } from "./runbook.ts";

/** One thing the owner wrote wrong: where it stands, and what is wanted there. */
export interface Fault {
  /** Path of the file as the owner knows it. */
  readonly file?: string;
  /** Line in that file, from 1. */
  readonly line?: number;
  /** TOML key path such as `slots.main` or `grant[1].tool`. */
  readonly key?: string;
  readonly text: string;
  readonly runbook?: RunbookEntry;
}

/** `FILE:LINE: KEY: text; see docs/runbook.md#…` with what is known. */
export function describeFault(fault: Fault): string {
  const place = [fault.file === undefined ? undefined : withLine(fault.file, fault.line), fault.key];
  const pointer = fault.runbook === undefined ? "" : ` (${runbookPointer(fault.runbook)})`;
  return [...place.filter((part) => part !== undefined), fault.text + pointer].join(": ");
}

function withLine(file: string, line: number | undefined): string {
  return line === undefined ? file : `${file}:${line}`;
}

/** The owner wrote it wrong. All faults at once; the process prints them and exits 2, and nobody restarts it. */
export class UsageError extends Error {
  override readonly name = "UsageError";
  constructor(readonly faults: readonly Fault[]) {
    super(faults.map(describeFault).join("\n"));
  }
}

/** A peer sent what does not fit. Refused on that connection; the role lives. */
export class ProtocolError extends Error {
  override readonly name = "ProtocolError";
  /** `code` is the machine word of the answer, `httpStatus` the status it travels with. */
  constructor(
    readonly code: string,
    readonly httpStatus: 400 | 404 | 405 | 409 | 413 | 415 | 500 | 503,
    text: string,
  ) {
    super(text);
  }
}

/** Our own assumption is false: logged with the assumption, then the role exits and the launcher restarts it. */
export class BugError extends Error {
  override readonly name = "BugError";
  constructor(assumption: string, options?: ErrorOptions) {
    super(`assumption is false: ${assumption}`, options);
  }
}

/** The disk did not take what had to be durable. Whatever rested on it did not happen. */
export class StorageError extends Error {
  override readonly name = "StorageError";
  constructor(path: string, options: { cause: unknown }) {
    super(`could not write ${path}: ${describeError(options.cause)}`, options);
  }
}

/** An error of the operating system or of SQLite, as against one of ours: no space, no permission, an I/O fault. */
export function isStorageError(error: unknown): boolean {
  if (error instanceof StorageError) return true;
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "string" && (/^E[A-Z]+$/.test(code) || code.startsWith("ERR_SQLITE"));
}

export function assertOurs(condition: boolean, assumption: string): asserts condition {
  if (!condition) throw new BugError(assumption);
}

/** What to print of anything caught. */
export function describeError(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Exit codes, which are interface. `audit verify` adds 10, 11, 12 and 20. */
export const exitCodes = {
  done: 0,
  failed: 1,
  usage: 2,
  notRunning: 3,
  auditAltered: 10,
  auditCutShort: 11,
  auditTornTail: 12,
  auditCouldNotRun: 20,
} as const;
