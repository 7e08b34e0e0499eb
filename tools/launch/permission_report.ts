// What one launch was granted, what it used of that, and what it tried beyond: the flags of a launch record held against the checks that
// Deno wrote down. Pure; the files are read in permissions.ts.

import { dirname, resolve } from "node:path";
import { hostAndPort } from "../../core/config/address.ts";
import { parseJsonObject } from "../../core/json.ts";

/** One check as Deno's permission audit records it; granted and denied ones look the same. */
export interface PermissionCheck {
  readonly permission: string;
  readonly value: string;
}

export interface PermissionRow {
  readonly permission: string;
  /** The path, socket or host. */
  readonly value: string;
  /** Checks that fell under it. */
  readonly count: number;
}

export interface PermissionReport {
  /** In the order of the flags. A count of 0 is a finding: granted and never used. */
  readonly granted: readonly PermissionRow[];
  /** Attempts that no flag allows. */
  readonly denied: readonly PermissionRow[];
}

/** Distinct denied values that are listed; the rest is one row with the value `…`. */
const deniedRowsMax = 200;

export class PermissionTally {
  readonly #granted: { permission: string; value: string; count: number }[];
  readonly #denied = new Map<string, { permission: string; value: string; count: number }>();
  readonly #directory: string;

  /** `argv` as in the launch record. */
  constructor(argv: readonly string[]) {
    this.#granted = grantedRows(argv);
    // A role runs in the checkout, so a relative path counts from there.
    this.#directory = dirname(argv[argv.indexOf("--config") + 1] ?? "/");
  }

  /** One line of Deno's; what is no check is passed over. */
  addLine(line: string): void {
    const check = parseJsonObject(line);
    if (typeof check?.permission !== "string") return;
    this.add({ permission: check.permission, value: typeof check.value === "string" ? check.value : "" });
  }

  /** What another tally of the same flags came to. */
  addCounts({ granted, denied }: PermissionReport): void {
    for (const { permission, value, count } of granted) {
      const row = this.#granted.find((own) => own.permission === permission && own.value === value);
      if (row !== undefined) row.count += count;
    }
    for (const { permission, value, count } of denied) this.#deny(permission, value, count);
  }

  add(check: PermissionCheck): void {
    const value = this.#normalised(check);
    const allowing = this.#granted.filter((row) => row.permission === check.permission && covers(row, value));
    // The narrowest: a socket's own grant, not the directory it may lie in.
    allowing.sort((a, b) => b.value.length - a.value.length);
    if (allowing.length > 0) {
      allowing[0].count++;
      return;
    }
    this.#deny(check.permission, value, 1);
  }

  #deny(permission: string, value: string, count: number): void {
    const shown = this.#denied.has(`${permission} ${value}`) || this.#denied.size < deniedRowsMax
      ? value
      : "…";
    const key = `${permission} ${shown}`;
    const row = this.#denied.get(key) ?? { permission, value: shown, count: 0 };
    row.count += count;
    this.#denied.set(key, row);
  }

  report(): PermissionReport {
    return { granted: this.#granted, denied: [...this.#denied.values()] };
  }

  #normalised({ permission, value }: PermissionCheck): string {
    if (permission === "read" || permission === "write") return resolve(this.#directory, value);
    // fetch is recorded with the whole address, node:http with host and port.
    if (permission === "net" && /^https?:\/\//.test(value) && URL.canParse(value)) return hostAndPort(value);
    return value;
  }
}

/** Rows of the same permission and value as one. */
export function sumRows(rows: readonly PermissionRow[]): PermissionRow[] {
  const sums = new Map<string, PermissionRow>();
  for (const row of rows) {
    const key = `${row.permission} ${row.value}`;
    sums.set(key, { ...row, count: row.count + (sums.get(key)?.count ?? 0) });
  }
  return [...sums.values()];
}

function grantedRows(argv: readonly string[]): { permission: string; value: string; count: number }[] {
  return argv.flatMap((word) => {
    const match = /^--allow-([a-z]+)=(.*)$/.exec(word);
    return match === null
      ? []
      : match[2].split(",").map((value) => ({ permission: match[1], value, count: 0 }));
  });
}

function covers(row: { permission: string; value: string }, value: string): boolean {
  if (row.permission === "net") return row.value === value;
  return row.value === value || value.startsWith(row.value + "/");
}
