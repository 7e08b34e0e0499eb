// The documents that the owner asked for exist, say what the code does, and name no address that a test would reach.

import { assert, assertEquals, assertStringIncludes } from "@std/assert";

const root = new URL("../../../", import.meta.url);
const read = (path: string) => Deno.readTextFile(new URL(path, root));

const pages = [
  "README.md",
  "CHANGELOG.md",
  ...[
    "design",
    "decisions",
    "egress",
    "runbook",
    "protocol",
    "style",
    "threats",
    "guide",
    "operations",
    "performance",
  ].map((
    name,
  ) => `docs/${name}.md`),
];

Deno.test("K3 the owner's four documents exist, and every relative link of every page leads to a file", async () => {
  for (const page of pages) {
    const text = await read(page);
    for (const [, target] of text.matchAll(/\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)/g)) {
      const file = await Deno.stat(new URL(target, new URL(page, root))).catch(() => undefined);
      assert(file !== undefined, `${page} links to ${target}, which is not there`);
    }
  }
});

Deno.test("K3 every file that docs/design.md names in the way of a consult and of a subagent exists", async () => {
  const design = await read("docs/design.md");
  const named = [...design.matchAll(/`((?:core|loopd|brokerd|tools)\/[\w/]+\.ts)`/g)].map((match) =>
    match[1]
  );
  assert(named.length >= 10, `only ${named.length} files named`);
  for (const path of named) {
    assert(await Deno.stat(new URL(path, root)).then(() => true, () => false), `${path} is not there`);
  }
});

Deno.test("K5 the owner's two open rows stand open in docs/decisions.md", async () => {
  const decisions = await read("docs/decisions.md");
  const open = decisions.slice(decisions.indexOf("## Open"), decisions.indexOf("## D1"));
  assertStringIncludes(open, "Cloud-led sessions");
  assertStringIncludes(open, "Session-scoped approvals");
  assertEquals([...open.matchAll(/: not built\.|not built\./g)].length, 2);
});

Deno.test("C12 docs/egress.md has the consult's row: run time, brokerd, the configured URL, the allowlisted body", async () => {
  const row = (await read("docs/egress.md")).split("\n").find((line) => line.includes("[consult] url"));
  assert(row !== undefined);
  for (const part of ["run time", "brokerd", "configured consult URL", "model", "temperature", "messages"]) {
    assertStringIncludes(row, part);
  }
});

Deno.test("C13 no code, default or test names a host beyond this device but those that exist for examples or stand there to be refused", async () => {
  const named = new Set<string>();
  for (const folder of ["core", "loopd", "brokerd", "tools", "tests"]) {
    for await (const path of sources(new URL(`${folder}/`, root))) {
      const text = await Deno.readTextFile(path);
      for (const [, host] of text.matchAll(/https?:\/\/(\[[0-9a-f:]+\]|[\w.-]*\.[a-z0-9]+)/gi)) {
        named.add(host.toLowerCase());
      }
    }
  }
  const elsewhere = [...named].filter((host) =>
    !/^127\.|^\[::1\]$|\.example\.(com|net|org)$|\.(invalid|example|test)$/.test(host)
  );
  // Private and documentation addresses that configuration tests refuse, the import that a probe is denied, an XML namespace.
  const refused = ["0.0.0.0", "192.0.2.1", "192.168.1.5", "[2001:db8::1]", "deno.land", "www.w3.org"];
  assertEquals(elsewhere.filter((host) => !refused.includes(host)), []);
});

async function* sources(folder: URL): AsyncGenerator<URL> {
  for await (const entry of Deno.readDir(folder)) {
    if (entry.isDirectory) yield* sources(new URL(`${entry.name}/`, folder));
    else if (/\.tsx?$/.test(entry.name)) yield new URL(entry.name, folder);
  }
}
