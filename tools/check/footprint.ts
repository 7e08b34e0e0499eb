// `deno task footprint`: how much code has to be right for what leaves the device: brokerd's own files, the files of core that it imports,
// and the packages that both import at run time, with what those packages bring along. Reads sources and the lock; counts, judges nothing.

import { dirname, join, normalize } from "node:path";
import { loadSources } from "./files.ts";
import { importsOf } from "./layers.ts";
import type { SourceFile } from "./scan.ts";

export interface Part {
  readonly files: number;
  /** All of them, comments and blank lines included. */
  readonly lines: number;
  /** Those that hold code. */
  readonly codeLines: number;
}

export interface Footprint {
  readonly brokerd: Part;
  readonly core: Part;
  /** `name version`, in order; what they depend on included. */
  readonly packages: readonly string[];
}

interface Lock {
  readonly npm?: Readonly<Record<string, { readonly dependencies?: readonly string[] }>>;
}

export function footprint(
  files: readonly SourceFile[],
  { imports, lock }: { imports: Readonly<Record<string, string>>; lock: Lock },
): Footprint {
  const byPath = new Map(files.map((file) => [file.path, file]));
  const reached = new Set<string>();
  const named = new Set<string>();
  const walk = (file: SourceFile) => {
    if (reached.has(file.path)) return;
    reached.add(file.path);
    for (const { specifier } of importsOf(file)) {
      const target = specifier.startsWith(".")
        ? normalize(join(dirname(file.path), specifier))
        : ownFile(specifier, imports);
      const next = target === undefined ? undefined : byPath.get(target);
      if (next !== undefined) walk(next);
      else if (!specifier.startsWith(".") && !specifier.startsWith("node:")) named.add(specifier);
    }
  };
  const entry = byPath.get("brokerd/main.ts");
  if (entry !== undefined) walk(entry);
  const part = (folder: string) =>
    partOf([...reached].filter((path) => path.startsWith(`${folder}/`)).map((path) => byPath.get(path)!));
  return { brokerd: part("brokerd"), core: part("core"), packages: packagesOf(named, { imports, lock }) };
}

/** A bare name that the import map leads to a file of ours. */
function ownFile(specifier: string, imports: Readonly<Record<string, string>>): string | undefined {
  const target = imports[specifier];
  return target?.startsWith("./") ? normalize(target) : undefined;
}

function partOf(files: readonly SourceFile[]): Part {
  const lines = files.flatMap(({ text }) => text.replace(/\n$/, "").split("\n"));
  const withCode = new Set(
    files.flatMap(({ path, tokens }) => tokens.map(({ line }) => `${path}:${line}`)),
  );
  return { files: files.length, lines: lines.length, codeLines: withCode.size };
}

function packagesOf(
  named: ReadonlySet<string>,
  { imports, lock }: { imports: Readonly<Record<string, string>>; lock: Lock },
): string[] {
  const found = new Set<string>();
  const add = (id: string) => {
    if (found.has(id)) return;
    found.add(id);
    for (const dependency of lock.npm?.[id]?.dependencies ?? []) {
      // A dependency stands in the lock by its name, with a version only where there are several.
      const known = Object.keys(lock.npm ?? {}).find((id) => id === dependency || nameOf(id) === dependency);
      if (known !== undefined) add(known);
    }
  };
  for (const specifier of named) {
    const key = imports[specifier] === undefined
      ? Object.keys(imports).find((key) => key.endsWith("/") && specifier.startsWith(key))
      : specifier;
    const target = key === undefined
      ? undefined
      : /^npm:\/?(@?[^@/]+(?:\/[^@/]+)?@[^/]+)/.exec(imports[key])?.[1];
    if (target !== undefined) add(target);
  }
  return [...found].map((id) => `${nameOf(id)} ${id.slice(nameOf(id).length + 1)}`).sort();
}

function nameOf(id: string): string {
  return id.slice(0, id.indexOf("@", 1));
}

/** The lines that docs/threats.md carries. */
export function describeFootprint({ brokerd, core, packages }: Footprint): string[] {
  const count = (number: number) => number.toLocaleString("en-GB");
  const part = (name: string, { files, lines, codeLines }: Part) =>
    `${name}: ${files} files, ${count(lines)} lines, ${count(codeLines)} of them with code`;
  return [
    part("brokerd", brokerd),
    part("core, as far as brokerd imports it", core),
    `packages at run time: ${packages.join(", ")}`,
  ];
}

export async function loadFootprint(root: string): Promise<Footprint> {
  const [{ imports }, lock] = await Promise.all(
    ["deno.json", "deno.lock"].map(async (name) => JSON.parse(await Deno.readTextFile(`${root}/${name}`))),
  );
  return footprint(await loadSources(root), { imports, lock });
}

if (import.meta.main) {
  for (const line of describeFootprint(await loadFootprint(Deno.args[0] ?? "."))) console.log(line);
}
