// What was found, for people as a table and for programs as JSON. It judges nothing but a figure against its own target.

import type { Bench, Figure, Findings } from "./bench.ts";
import { isMet } from "./bench.ts";

export interface Result {
  readonly bench: Bench;
  readonly findings: Findings | undefined;
  /** Why it could not be taken. */
  readonly failed?: string;
  readonly tookMs: number;
}

export interface Machine {
  readonly processor: string;
  readonly cores: number;
  readonly system: string;
  readonly deno: string;
}

export async function machine(): Promise<Machine> {
  const cpus = await Deno.readTextFile("/proc/cpuinfo").catch(() => "");
  return {
    processor: /^model name\s*:\s*(.+)$/m.exec(cpus)?.[1] ?? Deno.build.arch,
    cores: navigator.hardwareConcurrency,
    system: `${Deno.build.os} ${Deno.osRelease()}`,
    deno: Deno.version.deno,
  };
}

const titleWidth = 58;

export function tell({ bench, findings, failed, tookMs }: Result): string {
  const lines = [`${bench.name} (${(tookMs / 1_000).toFixed(1)} s)`];
  if (failed !== undefined) lines.push(`  could not be taken: ${failed}`);
  for (const figure of findings?.figures ?? []) lines.push(`  ${row(figure)}`);
  return lines.join("\n");
}

function row(figure: Figure): string {
  const { title, value, unit, spread, target, note } = figure;
  const met = isMet(figure);
  const verdict = target === undefined
    ? ""
    : `${met ? "met" : "MISSED"}: ${"atMost" in target ? "at most" : "at least"} ${
      number("atMost" in target ? target.atMost : target.atLeast)
    }`;
  const more = [
    spread === undefined ? "" : `min ${number(spread.min)}, p95 ${number(spread.p95)}, n ${spread.samples}`,
    verdict,
    note ?? "",
  ].filter((part) => part !== "").join("; ");
  return `${title.padEnd(titleWidth)} ${number(value).padStart(9)} ${unit.padEnd(6)}${more}`.trimEnd();
}

/** Three figures are what a measurement like these is good for. */
export function number(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

export function toJson(
  results: readonly Result[],
  about: { machine: Machine; quick: boolean; time: string; load: readonly (readonly number[])[] },
): string {
  const benches = results.map(({ bench, findings, failed, tookMs }) => ({
    name: bench.name,
    about: bench.about,
    tookMs: Math.round(tookMs),
    ...(failed === undefined ? {} : { failed }),
    figures: (findings?.figures ?? []).map((figure) => ({ ...figure, met: isMet(figure) })),
    curves: findings?.curves ?? [],
  }));
  return JSON.stringify({ ...about, benches }, null, 2) + "\n";
}
