// One launcher for each home: an advisory lock on `run/launch.lock`, which ends with its holder even under kill -9.
// Looking creates nothing. The file holds the holder's process id, for people; the lock alone decides.

import { join } from "node:path";
import type { HomePaths } from "../../core/home.ts";

export interface HomeLock {
  release(): void;
}

/** The process id of the launcher that runs this home, empty where it has not written it yet; `undefined` where none runs. */
export function lockHolder(paths: HomePaths): string | undefined {
  try {
    using file = Deno.openSync(lockPath(paths), { read: true });
    if (file.tryLockSync(false)) return undefined;
    return Deno.readTextFileSync(lockPath(paths)).slice(0, 16).trim();
  } catch {
    // No file, no holder; one that may not be read lies in a home that is refused for that.
    return undefined;
  }
}

/** Takes the lock, or `undefined` where another launcher was quicker. Wants `run/` to exist. */
export function takeHomeLock(paths: HomePaths): HomeLock | undefined {
  const file = Deno.openSync(lockPath(paths), { read: true, write: true, create: true, mode: 0o600 });
  if (!file.tryLockSync(true)) {
    file.close();
    return undefined;
  }
  file.truncateSync(0);
  file.writeSync(new TextEncoder().encode(`${Deno.pid}\n`));
  return { release: () => file.close() };
}

function lockPath(paths: HomePaths): string {
  return join(paths.run, "launch.lock");
}
