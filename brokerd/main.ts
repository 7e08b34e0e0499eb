// The role as a process: its arguments, what it loads before it starts, its lifeline. What it does stands in start.ts.
// It reads brokerd.toml, grants.toml and the secrets they name, once; of any fault it starts nothing.

import { join } from "node:path";
import { loadBrokerdConfig } from "../core/config/brokerd_toml.ts";
import { loadGrants } from "../core/config/grants_toml.ts";
import { type Fault, UsageError } from "../core/errors.ts";
import { type HomePaths, homePaths } from "../core/home.ts";
import { runRole } from "../core/role_process.ts";
import { loadSecret } from "../core/secrets.ts";
import { type BrokerdOptions, startBrokerd } from "./start.ts";

const help = `brokerd: decides, records and sends what leaves this device; thinks nothing.

It is started by the launcher (deno task up), which gives it its permissions.

  --home DIR             the home to serve
  --lifeline             stop when standard input ends
`;

/** Everything the owner wrote for brokerd, or every fault in it at once (C11, K1). */
export async function loadBrokerd(
  paths: HomePaths,
): Promise<Pick<BrokerdOptions, "paths" | "config" | "grants" | "secret" | "honchoSecret">> {
  const config = loadBrokerdConfig(paths);
  const grants = loadGrants(paths);
  const faults: Fault[] = [config, grants].flatMap((loaded) => "faults" in loaded ? loaded.faults : []);
  const load = async (secretName: string | undefined): Promise<string | undefined> => {
    if (secretName === undefined) return undefined;
    const loaded = await loadSecret(join(paths.secrets, secretName), { checkDirectories: [paths.secrets] });
    if ("value" in loaded) return loaded.value;
    faults.push(loaded.fault);
  };
  const secret = "value" in config ? await load(config.value.consult?.secretName) : undefined;
  const honchoSecret = "value" in config ? await load(config.value.honcho?.secretName) : undefined;
  if (faults.length > 0 || "faults" in config || "faults" in grants) throw new UsageError(faults);
  return { paths, config: config.value, grants, secret, honchoSecret };
}

if (import.meta.main) {
  await runRole({
    role: "brokerd",
    help,
    args: Deno.args,
    async start({ home, emit, fatal }) {
      const running = await startBrokerd({ ...await loadBrokerd(homePaths(home)), onBug: fatal });
      if (running.denyAll !== undefined) emit({ event: "deny-all", text: running.denyAll });
      return running;
    },
  });
}
