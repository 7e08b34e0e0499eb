// Our own words for what a schema refuses where it brings none: what was wanted, and what was found. Handed to `safeParse` as its `error`.
// Shows a found text only where a choice was wanted, quoted and cut; never a longer one, and never the validator's own sentence.

import type { z } from "zod";

/** A found choice is shown up to this length, and so many choices are named. */
const shownCharactersMax = 40;
const namedMax = 20;

/** What stands after the key's name: `wanted "add" or "remove"; found "change"`. */
export function describeMisfit(issue: z.core.$ZodRawIssue): string {
  switch (issue.code) {
    case "invalid_type":
      return wantedFound(names[String(issue.expected)] ?? String(issue.expected), issue.input);
    case "invalid_value":
      return wantedFound(oneOf(issue.values), issue.input, true);
    case "too_small":
      return `wanted at least ${bound(issue.origin, issue.minimum)}${foundSize(issue.input)}`;
    case "too_big":
      return `wanted at most ${bound(issue.origin, issue.maximum)}${foundSize(issue.input)}`;
    case "unrecognized_keys":
      return `unknown key ${(issue.keys as string[]).slice(0, namedMax).map(quoted).join(", ")}`;
    case "invalid_union":
      return Array.isArray(issue.options)
        ? `wanted ${oneOf(issue.options)}`
        : `wanted another form; found ${kindOf(issue.input)}`;
    default:
      return `has not the wanted form; found ${kindOf(issue.input)}`;
  }
}

const names: Readonly<Record<string, string>> = {
  string: "a text",
  number: "a number",
  int: "an integer",
  boolean: "true or false",
  array: "a list",
  object: "an object",
  record: "an object",
  null: "null",
};

function wantedFound(wanted: string, input: unknown, showText = false): string {
  if (input === undefined) return `missing; wanted ${wanted}`;
  return `wanted ${wanted}; found ${showText && typeof input === "string" ? quoted(input) : kindOf(input)}`;
}

function oneOf(values: unknown): string {
  const options = Array.isArray(values) ? values : [values];
  return options.slice(0, namedMax).map((value) =>
    typeof value === "string" ? JSON.stringify(value) : String(value)
  ).join(" or ");
}

function bound(origin: unknown, size: unknown): string {
  if (origin === "string") return `${size} character${size === 1 ? "" : "s"}`;
  if (origin === "array") return `${size} entr${size === 1 ? "y" : "ies"}`;
  return String(size);
}

function foundSize(input: unknown): string {
  if (typeof input === "string" || Array.isArray(input)) return `; found ${input.length}`;
  return typeof input === "number" ? `; found ${input}` : "";
}

function quoted(text: string): string {
  return JSON.stringify(text.slice(0, shownCharactersMax));
}

/** Numbers and the like as they are; of texts, lists and objects the kind alone. */
function kindOf(value: unknown): string {
  if (typeof value === "string") return "a text";
  if (Array.isArray(value)) return "a list";
  if (typeof value === "object" && value !== null) return "an object";
  return String(value);
}
