// A loopd configuration as loopd itself would read it, from the text of a loopd.toml: tests depend on no shape but the owner's.

import { loadLoopdConfig, type LoopdConfig } from "../../core/config/loopd_toml.ts";
import { homePaths } from "../../core/home.ts";

export function loopdConfig(toml: string): LoopdConfig {
  const home = Deno.makeTempDirSync({ prefix: "bx-" });
  try {
    const paths = homePaths(home);
    Deno.writeTextFileSync(paths.loopdToml, toml);
    const config = loadLoopdConfig(paths);
    if ("faults" in config) throw new Error(JSON.stringify(config.faults));
    return config.value;
  } finally {
    Deno.removeSync(home, { recursive: true });
  }
}

/** `[inference]` with this url, and more keys of that table. */
export function inferenceConfig(url: string, keys = ""): NonNullable<LoopdConfig["inference"]> {
  const { inference } = loopdConfig(`[inference]\nurl = "${url}"\n${keys}\n`);
  if (inference === undefined) throw new Error("the url names no inference server");
  return inference;
}
