// A home of its own in a temporary directory: mode 0700, short enough for its sockets, removed at the end whatever happened.
// Holds what the caller hands in; it looks at no other home.

import { type HomePaths, homePaths, pathFaults } from "../../core/home.ts";
import { UsageError } from "../../core/errors.ts";
import { makeHome } from "../launch/init.ts";

export interface PrivateHomeFiles {
  readonly loopdToml: string;
  readonly brokerdToml: string;
  readonly grantsToml: string;
  readonly secrets: Readonly<Record<string, string>>;
}

export interface PrivateHome extends AsyncDisposable {
  readonly paths: HomePaths;
}

/** `prefix` begins the directory's name. With `keep` the directory stays when it is disposed of. */
export async function makePrivateHome(
  files: PrivateHomeFiles,
  { prefix, keep = false }: { prefix: string; keep?: boolean },
): Promise<PrivateHome> {
  const home = await makeShortDirectory(prefix);
  const paths = homePaths(home);
  const remove = () => Deno.remove(home, { recursive: true });
  try {
    const texts = [
      [paths.loopdToml, files.loopdToml],
      [paths.brokerdToml, files.brokerdToml],
      [paths.grantsToml, files.grantsToml],
    ];
    for (const [path, text] of texts) await Deno.writeTextFile(path, text, { createNew: true, mode: 0o600 });
    // It keeps what is there already, and makes the rest.
    const made = await makeHome(home);
    if ("faults" in made) throw new UsageError(made.faults);
    for (const [name, value] of Object.entries(files.secrets)) {
      await Deno.writeTextFile(`${paths.secrets}/${name}`, value, { createNew: true, mode: 0o600 });
    }
  } catch (error) {
    await remove();
    throw error;
  }
  return { paths, [Symbol.asyncDispose]: () => keep ? Promise.resolve() : remove() };
}

/** Below the temporary directory of this device; where that is too deep for a socket's path, below /tmp. */
async function makeShortDirectory(prefix: string): Promise<string> {
  for (const dir of [undefined, "/tmp"]) {
    const home = await Deno.realPath(await Deno.makeTempDir({ prefix, dir }));
    const faults = pathFaults(home);
    if (faults.length === 0) return home;
    await Deno.remove(home);
    if (dir !== undefined) throw new UsageError(faults);
  }
  throw new Error("unreachable: the second directory is returned or refused");
}
