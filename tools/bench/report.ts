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
  return `${title.padEnd(titleWidth)} ${number(value).padStart(9)} ${unit.padEnd(9)}${more}`.trimEnd();
}

/** Three figures are what a measurement like these is good for. */
export function number(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

/** The same for a page of the documentation: each bench with what bounds it, its figures in a table, its plots. */
export function toMarkdown(
  results: readonly Result[],
  about: { machine: Machine; time: string; load: readonly (readonly number[])[]; images: string },
): string {
  const { processor, cores, system, deno } = about.machine;
  const load = about.load.map(([one]) => one.toFixed(1)).join(" ");
  const parts = [
    `Taken ${
      about.time.slice(0, 10)
    } on ${processor}, ${cores} cores, ${system}, Deno ${deno}; load during the run ${load}.`,
  ];
  for (const { bench, findings, failed } of results) {
    parts.push(`### ${bench.name}`, bench.about);
    if (failed !== undefined) parts.push("Could not be taken in this run.");
    if (findings === undefined) continue;
    parts.push(
      [
        "| | median | smallest | 95 % | samples | target |",
        "|---|---:|---:|---:|---:|---|",
        ...findings.figures.map(markdownRow),
      ].join("\n"),
      ...(findings.curves ?? []).map(({ id, title }) => `![${title}](${about.images}/${id}.svg)`),
    );
  }
  return parts.join("\n\n");
}

function markdownRow(figure: Figure): string {
  const { title, value, unit, spread, target, note } = figure;
  const wanted = target === undefined
    ? ""
    : `${"atMost" in target ? `≤ ${number(target.atMost)}` : `≥ ${number(target.atLeast)}`}: ${
      isMet(figure) ? "met" : "**missed**"
    }`;
  const cells = [
    title.trim().replaceAll("|", "\\|") + (note === undefined ? "" : ` (${note})`),
    `${number(value)} ${unit}`,
    spread === undefined ? "" : number(spread.min),
    spread === undefined ? "" : number(spread.p95),
    spread === undefined ? "" : String(spread.samples),
    wanted,
  ];
  return `| ${cells.join(" | ")} |`;
}

/** The page with what stands between the two marks of this name replaced. Throws where it has none. */
export function replaceBlock(page: string, name: string, text: string): string {
  const [begin, end] = [`<!-- ${name}: begin -->`, `<!-- ${name}: end -->`];
  const from = page.indexOf(begin);
  const to = page.indexOf(end);
  if (from === -1 || to < from) throw new RangeError(`the page has no ${begin} … ${end}`);
  return `${page.slice(0, from + begin.length)}\n${text}\n${page.slice(to)}`;
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
