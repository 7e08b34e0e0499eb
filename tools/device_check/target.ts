// Which model's server is checked: the practice model's, the one that an address names, or the one in the owner's loopd.toml. Of the owner's
// home it reads that file and the one secret that its [inference] names; it writes nothing there.

import { join } from "node:path";
import { addressProblem, addressProblemText, isLoopback } from "../../core/config/address.ts";
import { type InferenceConfig, loadLoopdConfig } from "../../core/config/loopd_toml.ts";
import { type Fault, UsageError } from "../../core/errors.ts";
import { type HomePaths, homePaths, resolveHome } from "../../core/home.ts";
import { loadSecret } from "../../core/secrets.ts";
import type { ServerAddress } from "./server_view.ts";

export interface Target extends ServerAddress {
  /** As loopd is to be told of it; its own address, key and defaults aside. */
  readonly inference: Partial<InferenceConfig>;
  readonly slots: { readonly main: number; readonly background: number };
}

const defaultSlots = { main: 0, background: 2 };

/** A server that needs no key and no configuration. Throws UsageError. */
export function targetAt(url: string): Target {
  const problem = addressProblem(url, { elsewhere: "http-or-https", query: false });
  if (problem !== undefined) {
    throw new UsageError([{
      text: `--url: wanted an address such as http://127.0.0.1:8080; ${addressProblemText(problem, url)}`,
    }]);
  }
  if (!isLoopback(new URL(url).hostname)) {
    throw new UsageError([{
      text:
        "--url: this host is not this device; write it into loopd.toml with remote = true, and give --home in place of --url",
    }]);
  }
  return { url: url.replace(/\/+$/, ""), bearer: undefined, inference: {}, slots: defaultSlots };
}

/** The server of the owner's loopd.toml. Throws UsageError with every fault of that file and its secret. */
export async function ownersTarget(home: string): Promise<Target> {
  const paths = homePaths(resolveHome(home));
  const loaded = loadLoopdConfig(paths);
  if ("faults" in loaded) throw new UsageError(loaded.faults);
  const { inference, slots } = loaded.value;
  if (inference === undefined) {
    throw new UsageError([{
      file: paths.loopdToml,
      key: "inference.url",
      text: "names no model server to check; write one, or give --url URL, or --stub for the practice model",
    }]);
  }
  const { url, secretName } = inference;
  const bearer = secretName === undefined ? undefined : await readSecret(paths, secretName);
  return { url, bearer, inference, slots };
}

async function readSecret(paths: HomePaths, secretName: string): Promise<string> {
  const loaded = await loadSecret(join(paths.secrets, secretName), {
    checkDirectories: [paths.home, paths.secrets],
  });
  if ("value" in loaded) return loaded.value;
  const faults: Fault[] = [loaded.fault];
  throw new UsageError(faults);
}
