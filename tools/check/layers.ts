// The import table of docs/design.md, held: who may import whom, not even a type across roles, no cycles, packages by their
// bare names only. It reads import statements, nothing else.

import { type Finding, follows, type SourceFile, type Token } from "./scan.ts";

/** Which parts a part may import from, itself included. Tests may import everything. */
const mayImport: Readonly<Record<string, readonly string[]>> = {
  core: ["core"],
  loopd: ["loopd", "core"],
  brokerd: ["brokerd", "core"],
  tools: ["tools", "core"],
  tests: ["tests", "core", "loopd", "brokerd", "tools"],
};

/** The practice servers are for those who practise: nothing an owner runs for real may lean on them. */
const mayImportStubs = [
  "tools/stubs/",
  "tools/demo/",
  "tools/device_check/",
  "tools/bench/",
  "tools/soak/",
  "tools/fuzz/",
];

/** Packages that only tests may name. */
const testPackages = ["@std/assert", "fast-check", "playwright-core"];

export interface Import {
  readonly specifier: string;
  readonly line: number;
}

/** `packages`: the keys of deno.json's import map. */
export function checkLayers(files: readonly SourceFile[], packages: readonly string[]): Finding[] {
  const findings: Finding[] = [];
  const edges = new Map<string, { path: string; line: number }[]>();
  const known = new Set(files.map((file) => file.path));
  for (const file of files) {
    const targets: { path: string; line: number }[] = [];
    edges.set(file.path, targets);
    for (const { specifier, line } of importsOf(file)) {
      const target = isRelative(specifier) ? resolve(file.path, specifier) : undefined;
      const refusal = target === undefined
        ? refusePackage(file.path, specifier, packages)
        : refuseFile(file.path, specifier, target, known);
      if (refusal !== undefined) findings.push({ path: file.path, line, text: refusal });
      if (target !== undefined && known.has(target)) targets.push({ path: target, line });
    }
    findings.push(...computedImports(file));
  }
  return [...findings, ...findCycles(edges)];
}

/** Every specifier of a file: `import … from`, `export … from`, `import "…"`, `import("…")`, `import("…").Type`. */
export function importsOf(file: SourceFile): Import[] {
  const imports: Import[] = [];
  const { tokens } = file;
  for (let at = 0; at < tokens.length; at++) {
    const token = tokens[at];
    if (token.kind !== "word" || isMember(tokens, at)) continue;
    if (token.text === "from" && tokens[at + 1]?.kind === "text") {
      // `from` also names variables and keys; before a string it is only ever an import's or an export's.
      const before = tokens[at - 1]?.text;
      if (before === "}" || before === "*" || tokens[at - 1]?.kind === "word") {
        imports.push({ specifier: tokens[at + 1].text, line: tokens[at + 1].line });
      }
    }
    if (token.text !== "import") continue;
    const next = tokens[at + 1];
    const named = follows(tokens, at + 1, "(") ? tokens[at + 2] : next;
    if (named?.kind === "text") imports.push({ specifier: named.text, line: named.line });
  }
  return imports;
}

function computedImports(file: SourceFile): Finding[] {
  if (partOf(file.path) === "tests") return [];
  const { tokens } = file;
  return tokens.flatMap((token, at) =>
    token.kind === "word" && token.text === "import" && !isMember(tokens, at) &&
      follows(tokens, at + 1, "(") &&
      tokens[at + 2]?.kind !== "text"
      ? [{ path: file.path, line: token.line, text: "import() of a computed name, wanted a fixed string" }]
      : []
  );
}

function isMember(tokens: readonly Token[], at: number): boolean {
  return tokens[at - 1]?.text === "." && tokens[at - 2]?.text !== ".";
}

function isRelative(specifier: string): boolean {
  return specifier.startsWith("./") || specifier.startsWith("../");
}

function refusePackage(path: string, specifier: string, packages: readonly string[]): string | undefined {
  if (specifier.startsWith("node:")) return undefined;
  const named = packages.some((name) =>
    specifier === name || (name.endsWith("/") && specifier.startsWith(name))
  );
  if (!named) {
    return `imports ${
      JSON.stringify(specifier)
    }, wanted a bare name of deno.json's import map, node:, or a relative path`;
  }
  if (partOf(path) !== "tests" && testPackages.includes(specifier)) {
    return `imports ${specifier}, wanted in tests only`;
  }
  return undefined;
}

function refuseFile(path: string, specifier: string, target: string, known: Set<string>): string | undefined {
  const from = partOf(path);
  const to = partOf(target);
  if (!(mayImport[from] ?? []).includes(to)) {
    return `${from} imports ${target}, wanted only ${(mayImport[from] ?? []).join(" or ")}`;
  }
  if (
    from === "tools" && target.startsWith("tools/stubs/") &&
    !mayImportStubs.some((start) => path.startsWith(start))
  ) {
    return `imports ${target}, wanted only from ${mayImportStubs.join(", ")}`;
  }
  if (/\.tsx?$/.test(target) && !known.has(target)) return `imports ${specifier}, which does not exist`;
  return undefined;
}

function partOf(path: string): string {
  return path.split("/", 1)[0];
}

/** Path below the root; a `..` past the root stays, so that it matches no part. */
function resolve(path: string, specifier: string): string {
  const parts = path.split("/").slice(0, -1);
  for (const part of specifier.split("/")) {
    if (part === ".." && parts.length > 0 && parts.at(-1) !== "..") parts.pop();
    else if (part !== ".") parts.push(part);
  }
  return parts.join("/");
}

// Each cycle once, at the import that closes it on the way of a depth-first walk in path order.
function findCycles(edges: ReadonlyMap<string, readonly { path: string; line: number }[]>): Finding[] {
  const findings: Finding[] = [];
  const done = new Set<string>();
  const trail: string[] = [];
  const walk = (path: string) => {
    trail.push(path);
    for (const { path: target, line } of edges.get(path) ?? []) {
      const start = trail.indexOf(target);
      if (start !== -1) {
        const cycle = [...trail.slice(start), target].join(" -> ");
        findings.push({ path, line, text: `import cycle ${cycle}, wanted none` });
      } else if (!done.has(target)) walk(target);
    }
    trail.pop();
    done.add(path);
  };
  for (const path of edges.keys()) if (!done.has(path)) walk(path);
  return findings;
}
