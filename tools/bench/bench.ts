// What a bench is, and what it finds: figures and curves. The statistics are here too, so that every bench takes them the same way.

export interface Around {
  /** Fewer rounds and smaller sizes, for a look. */
  readonly quick: boolean;
  /** One line for a person who waits. */
  progress(text: string): void;
}

export interface Bench {
  readonly name: string;
  /** One paragraph: what is measured, how, and what bounds it. */
  readonly about: string;
  run(around: Around): Promise<Findings>;
}

export interface Findings {
  readonly figures: readonly Figure[];
  readonly curves?: readonly Curve[];
}

export type Unit = "ms" | "MB" | "bytes" | "tokens" | "requests" | "/s" | "times";

export interface Figure {
  /** `bench.thing`, for whoever reads the JSON. */
  readonly id: string;
  readonly title: string;
  /** The median where it was sampled. */
  readonly value: number;
  readonly unit: Unit;
  readonly spread?: Spread;
  readonly target?: { readonly atMost: number } | { readonly atLeast: number };
  /** What a reader must know to read it right. */
  readonly note?: string;
}

export interface Spread {
  readonly samples: number;
  readonly min: number;
  readonly p95: number;
}

export interface Curve {
  readonly id: string;
  readonly title: string;
  readonly xLabel: string;
  readonly yLabel: string;
  readonly series: readonly {
    readonly name: string;
    readonly points: readonly (readonly [number, number])[];
  }[];
}

export function median(samples: readonly number[]): number {
  return quantile(samples, 0.5);
}

export function quantile(samples: readonly number[], share: number): number {
  if (samples.length === 0) throw new Error("a bench took no sample");
  const sorted = samples.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
}

/** A figure of the median of samples. */
export function sampled(
  id: string,
  title: string,
  samples: readonly number[],
  more: { unit?: Unit; target?: Figure["target"]; note?: string } = {},
): Figure {
  return {
    id,
    title,
    value: median(samples),
    unit: more.unit ?? "ms",
    spread: { samples: samples.length, min: Math.min(...samples), p95: quantile(samples, 0.95) },
    target: more.target,
    note: more.note,
  };
}

/** A figure of one number over another, both taken in the same run. */
export function ratio(
  id: string,
  title: string,
  of: { value: number; over: number },
  more: { target?: Figure["target"]; note?: string } = {},
): Figure {
  return { id, title, value: of.value / of.over, unit: "times", ...more };
}

export function isMet({ value, target }: Figure): boolean | undefined {
  if (target === undefined) return undefined;
  return "atMost" in target ? value <= target.atMost : value >= target.atLeast;
}
