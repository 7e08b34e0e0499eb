// K2: docs/runbook.md and the messages that point at it, held together both ways.

import { assert, assertEquals } from "@std/assert";
import { runbookEntries, runbookPointer } from "../../../core/runbook.ts";

const root = new URL("../../../", import.meta.url);
const page = await Deno.readTextFile(new URL("docs/runbook.md", root));
const headings = [...page.matchAll(/^## (.+)$/gm)].map((match) => match[1]);

Deno.test("K2 every entry that a message may name stands in docs/runbook.md, once, and nothing else does", () => {
  assertEquals([...headings].sort(), [...runbookEntries].sort());
});

Deno.test("K2 every entry of docs/runbook.md is reached from some message of the code", async () => {
  const named = await namedInCode();
  for (const entry of runbookEntries) assert(named.has(entry), `no message points at ${entry}`);
});

Deno.test("K2 a pointer names its page and its anchor", () => {
  assertEquals(runbookPointer("subagent-id"), "see docs/runbook.md#subagent-id");
});

// An entry is pointed at by its literal: the type of `runbook` and `runbookPointer` admits nothing else.
async function namedInCode(): Promise<Set<string>> {
  const named = new Set<string>();
  for (const folder of ["core", "loopd", "brokerd", "tools"]) {
    for await (const path of sources(new URL(`${folder}/`, root))) {
      if (path.href.endsWith("core/runbook.ts")) continue;
      const text = await Deno.readTextFile(path);
      for (const entry of runbookEntries) if (text.includes(`"${entry}"`)) named.add(entry);
    }
  }
  return named;
}

async function* sources(folder: URL): AsyncGenerator<URL> {
  for await (const entry of Deno.readDir(folder)) {
    if (entry.isDirectory) yield* sources(new URL(`${entry.name}/`, folder));
    else if (entry.name.endsWith(".ts")) yield new URL(entry.name, folder);
  }
}
