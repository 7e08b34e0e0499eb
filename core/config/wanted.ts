// The leaves of the configuration schemas. Each says what it wants and what it found in one sentence; a found text is shown only where
// the leaf is a choice, so that a key pasted into the wrong place is never printed.

import { z } from "zod";
import { addressProblem, addressProblemText, type AddressRule } from "./address.ts";

/** A found choice is shown up to this length. */
const shownCharactersMax = 40;

interface LeafOptions {
  /** The wanted form, as it stands after "wanted". */
  readonly wanted: string;
  /** Show a found string; only for leaves that no secret is ever put into. */
  readonly showText?: boolean;
}

/** A leaf that accepts what `accepts` accepts, or says why not. */
export function leaf<T>(accepts: (value: unknown) => boolean, options: LeafOptions): z.ZodType<T> {
  return z.custom<T>(accepts, { error: (issue) => refusal(issue.input, options) });
}

export function integer(min: number, max: number, unit = ""): z.ZodType<number> {
  return leaf<number>(
    (value) => Number.isInteger(value) && (value as number) >= min && (value as number) <= max,
    { wanted: `an integer from ${min} to ${max}${unit === "" ? "" : ` (${unit})`}` },
  );
}

/** A number from `min` to `max`; with `aboveMin` the least itself is refused. */
export function fraction(
  min: number,
  max: number,
  options: { unit?: string; aboveMin?: boolean } = {},
): z.ZodType<number> {
  const unit = options.unit === undefined ? "" : ` (${options.unit})`;
  const range = options.aboveMin === true ? `above ${min}, at most ${max}` : `from ${min} to ${max}`;
  return leaf<number>(
    (value) =>
      typeof value === "number" && value <= max && (options.aboveMin === true ? value > min : value >= min),
    { wanted: `a number ${range}${unit}` },
  );
}

export function boolean(): z.ZodType<boolean> {
  return leaf<boolean>((value) => typeof value === "boolean", { wanted: "true or false" });
}

export function choice<const T extends string>(options: readonly T[]): z.ZodType<T> {
  return leaf<T>((value) => options.some((option) => option === value), {
    wanted: options.map((option) => JSON.stringify(option)).join(" or "),
    showText: true,
  });
}

export function text(charactersMax: number): z.ZodType<string> {
  return leaf<string>(
    (value) => typeof value === "string" && value.trim() !== "" && value.length <= charactersMax,
    { wanted: `a text of 1 to ${charactersMax} characters that is not all blank` },
  );
}

/** The name of a file in `secrets/`. What was found is never shown: people paste the key itself here. */
export function secretName(): z.ZodType<string> {
  return leaf<string>((value) => typeof value === "string" && /^[a-z0-9_-]{1,64}$/.test(value), {
    wanted:
      "the name of a file in secrets/ (1 to 64 characters of a-z, 0-9, _ and -), never the secret itself",
  });
}

export function isSecretName(value: unknown): value is string {
  return typeof value === "string" && /^[a-z0-9_-]{1,64}$/.test(value);
}

/** An address, kept as the owner wrote it. */
export function address(rule: AddressRule, wanted: string): z.ZodType<string> {
  return z.custom<string>((value) => addressProblem(value, rule) === undefined, {
    error: (issue) => {
      if (issue.input === undefined) return `missing; wanted ${wanted}`;
      const problem = addressProblem(issue.input, rule) ?? "not-a-url";
      return `wanted ${wanted}; ${addressProblemText(problem, issue.input)}`;
    },
  });
}

function refusal(input: unknown, { wanted, showText }: LeafOptions): string {
  if (input === undefined) return `missing; wanted ${wanted}`;
  return `wanted ${wanted}; found ${describeFound(input, showText === true)}`;
}

/** What kind of TOML value this is; the value itself for numbers and booleans, and for strings on request. */
export function describeFound(value: unknown, showText = false): string {
  switch (typeof value) {
    case "string":
      return showText ? JSON.stringify(value.slice(0, shownCharactersMax)) : "a string";
    case "number":
    case "bigint":
    case "boolean":
      return String(value);
  }
  if (Array.isArray(value)) return "an array";
  if (value instanceof Date) return "a date or time";
  return "a table";
}
