// A home in a temporary directory for the configuration tests: written from texts, removed afterwards.

import { type HomePaths, homePaths } from "../../../core/home.ts";

export interface HomeFiles {
  readonly loopd?: string;
  readonly brokerd?: string;
  readonly grants?: string;
  readonly secrets?: { readonly [name: string]: string };
}

/** Runs `body` in a home that holds exactly these files, secrets with mode 0600. */
export async function withHome(
  files: HomeFiles,
  body: (paths: HomePaths) => void | Promise<void>,
): Promise<void> {
  const home = await Deno.realPath(await Deno.makeTempDir({ prefix: "boxmaker-" }));
  try {
    const paths = homePaths(home);
    if (files.loopd !== undefined) await Deno.writeTextFile(paths.loopdToml, files.loopd);
    if (files.brokerd !== undefined) await Deno.writeTextFile(paths.brokerdToml, files.brokerd);
    if (files.grants !== undefined) await Deno.writeTextFile(paths.grantsToml, files.grants);
    await Deno.mkdir(paths.secrets, { mode: 0o700 });
    for (const [name, text] of Object.entries(files.secrets ?? {})) {
      await Deno.writeTextFile(`${paths.secrets}/${name}`, text, { mode: 0o600 });
    }
    await body(paths);
  } finally {
    await Deno.remove(home, { recursive: true });
  }
}
