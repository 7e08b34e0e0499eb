// The role as a process: its arguments, its lifeline, its exit codes. What it does stands in runtime.ts.

import { UsageError } from "../core/errors.ts";
import { homePaths } from "../core/home.ts";
import { runRole } from "../core/role_process.ts";
import { loadLoopdConfig } from "../core/config/loopd_toml.ts";
import { loadSecret } from "../core/secrets.ts";
import { join } from "node:path";
import { startLoopd } from "./runtime.ts";

const help = `loopd: runs sessions; may reach the inference server and brokerd, nothing else.

It is started by the launcher (deno task up), which gives it its permissions.

  --home DIR             the home to serve
  --inference-url URL    used where loopd.toml names no [inference] url
  --time-zone ZONE       used where loopd.toml names no [clock] time_zone
  --lifeline             stop when standard input ends
`;

if (import.meta.main) {
  await runRole({
    role: "loopd",
    help,
    args: Deno.args,
    options: ["inference-url", "time-zone"],
    async start({ home, options, emit, fatal }) {
      const paths = homePaths(home);
      const config = loadLoopdConfig(paths, {
        inferenceUrl: options["inference-url"],
        timeZone: options["time-zone"],
      });
      if ("faults" in config) throw new UsageError(config.faults);
      const { inference } = config.value;
      // The directories were checked by the launcher: this role may read the one file only.
      const key = inference?.secretName === undefined
        ? undefined
        : await loadSecret(join(paths.secrets, inference.secretName), { checkDirectories: [] });
      if (key !== undefined && "fault" in key) throw new UsageError([key.fault]);
      return await startLoopd({
        paths,
        config: config.value,
        inferenceSecret: key?.value,
        onFatal: fatal,
        onEvent: emit,
      });
    },
  });
}
