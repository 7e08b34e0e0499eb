// brokerd with its audit log on no disk: the role's own start, handed files that take each byte and keep none. The program lies in a
// temporary directory, because tools import no role. Every check, record, hash and answer is as in brokerd; what is missing is write and fsync.

import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { ownRoot } from "../launch/root.ts";

export interface DisklessBroker extends AsyncDisposable {
  /** Stands in for brokerd/main.ts. */
  readonly entry: string;
}

export async function makeDisklessBroker(): Promise<DisklessBroker> {
  const directory = await Deno.makeTempDir({ prefix: "bx-bench-role-" });
  const entry = join(directory, "brokerd.ts");
  const from = (path: string) => pathToFileURL(join(ownRoot, path)).href;
  await Deno.writeTextFile(
    entry,
    `import { homePaths } from "${from("core/home.ts")}";
import { runRole } from "${from("core/role_process.ts")}";
import { loadBrokerd } from "${from("brokerd/main.ts")}";
import { startBrokerd } from "${from("brokerd/start.ts")}";

// A draft is made, since it is renamed; what is written to it goes nowhere.
function openFile(path, options) {
  const file = Deno.openSync(path, options);
  return { writeSync: (bytes) => bytes.length, syncData: () => Promise.resolve(), close: () => file.close() };
}

await runRole({
  role: "brokerd",
  help: "",
  args: Deno.args,
  start: async ({ home, fatal }) =>
    await startBrokerd({ ...await loadBrokerd(homePaths(home)), onBug: fatal, audit: { openFile } }),
});
`,
  );
  return { entry, [Symbol.asyncDispose]: () => Deno.remove(directory, { recursive: true }) };
}
