// The environment that the launcher's children get: cleared, then exactly these variables. A proxy variable would be obeyed by `fetch`
// past every network grant, and OTEL_* would send console text over TCP (docs/threats.md); none of them gets through.

import { join, resolve } from "node:path";

export interface OwnEnvironment {
  readonly [name: string]: string | undefined;
}

/** The variables that the launcher's programs look at, and no others. */
export const ownVariables = [
  "BOXMAKER_HOME",
  "HOME",
  "INIT_CWD",
  "DENO_DIR",
  "XDG_CACHE_HOME",
  "DENO_CERT",
  "NPM_CONFIG_REGISTRY",
  "NO_COLOR",
  "TERM",
  "TZ",
] as const;

export function ownEnvironment(): OwnEnvironment {
  return Object.fromEntries(ownVariables.map((name) => [name, Deno.env.get(name)]));
}

export function roleEnvironment(own: OwnEnvironment, permissionFile: string): Record<string, string> {
  return { ...packageEnvironment(own), NO_COLOR: "1", DENO_AUDIT_PERMISSIONS: permissionFile };
}

/** For a program that a person looks at. */
export function personEnvironment(own: OwnEnvironment): Record<string, string> {
  return { ...packageEnvironment(own), ...present(own, ["NO_COLOR", "TERM", "TZ"]) };
}

/** Where packages lie. The registry is part of their place in the cache, so a child must be told of another one, too. */
function packageEnvironment(own: OwnEnvironment): Record<string, string> {
  return {
    DENO_DIR: denoDirectory(own),
    DENO_NO_UPDATE_CHECK: "1",
    ...present(own, ["DENO_CERT", "NPM_CONFIG_REGISTRY"]),
  };
}

/** As Deno itself would find it; a child without HOME could not. */
export function denoDirectory(own: OwnEnvironment): string {
  if (own.DENO_DIR) return resolve(own.DENO_DIR);
  if (own.XDG_CACHE_HOME && Deno.build.os !== "darwin") return join(own.XDG_CACHE_HOME, "deno");
  return join(own.HOME ?? "/", ...(Deno.build.os === "darwin" ? ["Library", "Caches"] : [".cache"]), "deno");
}

function present(own: OwnEnvironment, names: readonly string[]): Record<string, string> {
  const entries = names.map((name) => [name, own[name]] as const);
  return Object.fromEntries(entries.filter((entry): entry is [string, string] => Boolean(entry[1])));
}
