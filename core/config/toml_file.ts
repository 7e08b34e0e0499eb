// Loads one of the owner's TOML files: bounded read, parse, strict schema, and every fault at once with its line (K1).
// Never prints a source line, a value that could be a secret, or the parser's own message, which quotes the text.

import { parse } from "@std/toml";
import { z } from "zod";
import type { Fault } from "../errors.ts";
import { isJsonObject } from "../json.ts";
import { configFileBytesMax } from "../limits.ts";
import { keyLines, keyPath, repeatedOn } from "./toml_lines.ts";
import { describeFound } from "./wanted.ts";

export interface LoadedToml<T> {
  readonly value: T;
  /** The file's, for whoever records their hash; none where the file is absent. */
  readonly bytes: Uint8Array<ArrayBuffer>;
}
export interface FaultyToml {
  readonly faults: Fault[];
  /** What was parsed, where the text is TOML at all: unchecked, for a look at what else the owner named in it (`tomlValue`). */
  readonly document?: unknown;
}
export type TomlResult<T> = LoadedToml<T> | FaultyToml;

export interface TomlOptions {
  /** An absent file counts as an empty one. For files whose absence grants nothing. */
  readonly absentIsEmpty?: boolean;
}

/** What `schema` makes of the file, or everything that is wrong with it. */
export function loadToml<T>(path: string, schema: z.ZodType<T>, options: TomlOptions = {}): TomlResult<T> {
  const read = readBounded(path, options);
  if ("faults" in read) return read;
  let source: string;
  try {
    source = new TextDecoder("utf-8", { fatal: true }).decode(read.bytes);
  } catch {
    return { faults: [{ file: path, text: "is not UTF-8 text; save it as UTF-8", runbook: "config-fault" }] };
  }
  let document: unknown;
  try {
    document = parse(source);
  } catch (error) {
    return { faults: [syntaxFault(path, source, error)] };
  }
  const result = schema.safeParse(document, { reportInput: true });
  if (!result.success) return { faults: schemaFaults(path, source, schema, result.error.issues), document };
  return { value: result.data, bytes: read.bytes };
}

/** The value that the keys lead to in a parsed document, unchecked. */
export function tomlValue(document: unknown, ...keys: string[]): unknown {
  return keys.reduce<unknown>((table, key) => isJsonObject(table) ? table[key] : undefined, document);
}

function readBounded(
  path: string,
  { absentIsEmpty }: TomlOptions,
): { bytes: Uint8Array<ArrayBuffer> } | { faults: Fault[] } {
  const fault = (text: string) => ({ faults: [{ file: path, text, runbook: "config-fault" as const }] });
  try {
    using file = Deno.openSync(path, { read: true });
    if (!file.statSync().isFile) return fault("is not a regular file; wanted a TOML file");
    const buffer = new Uint8Array(configFileBytesMax + 1);
    let length = 0;
    while (length < buffer.length) {
      const count = file.readSync(buffer.subarray(length));
      if (count === null) break;
      length += count;
    }
    if (length > configFileBytesMax) return fault(`is larger than ${configFileBytesMax} bytes`);
    return { bytes: buffer.subarray(0, length) };
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) {
      if (absentIsEmpty === true) return { bytes: new Uint8Array() };
      return fault("does not exist; `deno task init` writes one and leaves the other files as they are");
    }
    return fault(
      `cannot be read (${error instanceof Error ? error.name : "unknown error"}); check its owner and mode`,
    );
  }
}

/** Line and column alone: both TOML parsers that may stand behind the import put source text into their messages. */
function syntaxFault(path: string, source: string, error: unknown): Fault {
  const place = tomlErrorPlace(error);
  const repeated = place && repeatedOn(source, place.line);
  if (repeated !== undefined) {
    const { key, isTable, firstLine } = repeated;
    const text = isTable
      ? `the table [${key}] stands twice, first on line ${firstLine}; write all its keys under one of them`
      : `this key stands twice, first on line ${firstLine}; keep one of them`;
    return { file: path, line: place?.line, text, runbook: "config-fault" };
  }
  const column = place === undefined ? "" : ` at column ${place.column}`;
  return {
    file: path,
    line: place?.line,
    text: `is not valid TOML${column}; a text stands in quotes, a key stands once, a table as [name]`,
    runbook: "config-fault",
  };
}

function tomlErrorPlace(error: unknown): { line: number; column: number } | undefined {
  if (!(error instanceof Error)) return undefined;
  if (
    "line" in error && "column" in error && typeof error.line === "number" && typeof error.column === "number"
  ) {
    return { line: error.line, column: error.column };
  }
  const match = /line (\d+), column (\d+)/.exec(error.message);
  return match === null ? undefined : { line: Number(match[1]), column: Number(match[2]) };
}

type Issue = z.core.$ZodIssue;

/** In the order in which they stand in the file. */
function schemaFaults(path: string, source: string, schema: z.ZodType, issues: readonly Issue[]): Fault[] {
  const lines = keyLines(source);
  const fault = (parts: readonly PropertyKey[], text: string): Fault => ({
    file: path,
    line: nearestLine(lines, parts),
    key: keyPath(parts) || undefined,
    text,
    runbook: "config-fault",
  });
  const faults = issues.flatMap((issue) => {
    if (issue.code !== "unrecognized_keys") return [fault(issue.path, issueText(issue))];
    const known = knownKeys(schema, issue.path);
    return issue.keys.map((key) => fault([...issue.path, key], unknownKeyText(key, known)));
  });
  return faults.sort((a, b) => (a.line ?? 0) - (b.line ?? 0));
}

/** Of the key itself, or of the table it is missing from. */
function nearestLine(lines: Map<string, number>, parts: readonly PropertyKey[]): number | undefined {
  for (let length = parts.length; length > 0; length--) {
    const line = lines.get(keyPath(parts.slice(0, length)));
    if (line !== undefined) return line;
  }
  return undefined;
}

function issueText(issue: Issue): string {
  if (issue.code !== "invalid_type") return issue.message;
  const wanted = { object: "a table", array: "an array" }[String(issue.expected)] ?? String(issue.expected);
  return issue.input === undefined
    ? `wanted ${wanted}`
    : `wanted ${wanted}; found ${describeFound(issue.input)}`;
}

function unknownKeyText(key: string, known: readonly string[]): string {
  const [near] = known
    .map((candidate) => ({ candidate, distance: editDistance(key, candidate) }))
    .filter(({ candidate, distance }) => distance <= Math.max(1, Math.floor(candidate.length / 4)))
    .sort((a, b) => a.distance - b.distance)
    .map(({ candidate }) => candidate);
  const suggestion = near === undefined ? "" : `; did you mean ${near}?`;
  return `unknown key; known keys are ${known.join(", ")}${suggestion}`;
}

/** The keys of the table that the path leads to. */
function knownKeys(schema: z.ZodType, path: readonly PropertyKey[]): string[] {
  let at: unknown = schema;
  for (const part of path) {
    const inner = bare(at);
    if (inner instanceof z.ZodArray) at = inner.element;
    else if (inner instanceof z.ZodObject) at = inner.shape[String(part)];
    else return [];
  }
  const table = bare(at);
  return table instanceof z.ZodObject ? Object.keys(table.shape) : [];
}

/** The schema of a table or an array under whatever makes it optional, default or mapped. */
function bare(schema: unknown): unknown {
  for (;;) {
    if (
      schema instanceof z.ZodOptional || schema instanceof z.ZodDefault || schema instanceof z.ZodPrefault
    ) {
      schema = schema.unwrap();
    } else if (schema instanceof z.ZodPipe) schema = schema.in;
    else return schema;
  }
}

/** Letters to add, drop, change or swap with a neighbour. */
function editDistance(a: string, b: string): number {
  if (Math.abs(a.length - b.length) > 3) return Infinity;
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const change = last[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1);
      row[j] = Math.min(last[j] + 1, row[j - 1] + 1, change);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        row[j] = Math.min(row[j], beforeLast[j - 2] + 1);
      }
    }
    beforeLast = last;
    last = row;
  }
  return last[b.length];
}

/** The fault of a key that two files disagree on, or that only a look outside the file can find. */
export function keyFault(path: string, key: string, text: string): Fault {
  let line: number | undefined;
  try {
    line = keyLines(Deno.readTextFileSync(path)).get(key);
  } catch {
    line = undefined;
  }
  return { file: path, line, key, text, runbook: "config-fault" };
}
