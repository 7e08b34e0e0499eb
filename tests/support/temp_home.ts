// A private home for one test: short enough for its sockets, removed afterwards.

import { type HomePaths, homePaths } from "../../core/home.ts";

export interface TempHome extends AsyncDisposable {
  readonly paths: HomePaths;
}

export interface TempHomeFiles {
  readonly loopdToml?: string;
  readonly brokerdToml?: string;
  readonly grantsToml?: string;
  readonly secrets?: Readonly<Record<string, string>>;
}

export async function tempHome(files: TempHomeFiles = {}): Promise<TempHome> {
  const paths = homePaths(await Deno.realPath(await Deno.makeTempDir({ prefix: "bx-" })));
  await Deno.chmod(paths.home, 0o700);
  for (
    const directory of [
      paths.memory,
      paths.sessions,
      paths.audit,
      paths.run,
      paths.secrets,
      paths.permissions,
    ]
  ) {
    await Deno.mkdir(directory, { mode: 0o700 });
  }
  await Deno.writeTextFile(paths.loopdToml, files.loopdToml ?? "", { mode: 0o600 });
  await Deno.writeTextFile(paths.brokerdToml, files.brokerdToml ?? "", { mode: 0o600 });
  await Deno.writeTextFile(paths.grantsToml, files.grantsToml ?? "", { mode: 0o600 });
  for (const [name, value] of Object.entries(files.secrets ?? {})) {
    await Deno.writeTextFile(`${paths.secrets}/${name}`, value, { mode: 0o600 });
  }
  return {
    paths,
    [Symbol.asyncDispose]: () => Deno.remove(paths.home, { recursive: true }),
  };
}
