// The programs that the soak's roles run: each role's own main.ts, word for word, with the gate opened before it. They lie in a temporary
// directory, so that the product needs no seam for being killed. Writes nothing else.

import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { RoleName } from "../../core/protocol/common.ts";
import { ownRoot } from "../launch/root.ts";

export interface Entries extends AsyncDisposable {
  readonly loopd: string;
  readonly brokerd: string;
}

/** The directory that each role may read in its home, where its order lies. */
export const orderDirectories = { loopd: "memory", brokerd: "audit" } as const;

export async function makeEntries(): Promise<Entries> {
  const directory = await Deno.makeTempDir({ prefix: "bx-soak-roles-" });
  const make = async (role: RoleName) => {
    const path = join(directory, `${role}.ts`);
    await Deno.writeTextFile(path, await entryText(role));
    return path;
  };
  return {
    loopd: await make("loopd"),
    brokerd: await make("brokerd"),
    [Symbol.asyncDispose]: () => Deno.remove(directory, { recursive: true }),
  };
}

// Imports run before the text that follows them, and what they import does nothing by itself: so the gate stands before the role's first act.
async function entryText(role: RoleName): Promise<string> {
  const base = pathToFileURL(join(ownRoot, role, "main.ts"));
  const text = (await Deno.readTextFile(base)).replaceAll(
    /from "(\.{1,2}\/[^"]+)"/g,
    (_, specifier) => `from "${new URL(specifier, base).href}"`,
  );
  const gate = new URL("./gate.ts", import.meta.url).href;
  return `import { openGate } from "${gate}";\nopenGate("${orderDirectories[role]}");\n${text}`;
}
