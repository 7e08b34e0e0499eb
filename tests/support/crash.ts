// What kill -9 leaves of sessions: their files as they were at one moment, put back while nobody runs. An orderly stop writes more than a
// crash would; what it wrote is overwritten.

import { join } from "node:path";
import type { LoopdRig } from "./loopd_rig.ts";

/** File paths under a home's `sessions/` and `memory/`, with their bytes. */
export type Snapshot = ReadonlyMap<string, Uint8Array>;

export async function takeSnapshot({ paths }: Pick<LoopdRig, "paths">): Promise<Snapshot> {
  const files = new Map<string, Uint8Array>();
  for (const directory of [paths.sessions, paths.memory]) {
    for await (const path of filesUnder(directory)) files.set(path, await Deno.readFile(path));
  }
  return files;
}

/** Makes the home's sessions and memory what they were, and nothing else. */
export async function restoreSnapshot({ paths }: Pick<LoopdRig, "paths">, snapshot: Snapshot): Promise<void> {
  for (const directory of [paths.sessions, paths.memory]) {
    await Deno.remove(directory, { recursive: true });
    await Deno.mkdir(directory, { mode: 0o700 });
  }
  for (const [path, bytes] of snapshot) {
    await Deno.mkdir(join(path, ".."), { recursive: true });
    await Deno.writeFile(path, bytes, { mode: 0o600 });
  }
}

/** Ends loopd as kill -9 would at this moment, and starts it again. */
export async function crash(rig: LoopdRig): Promise<void> {
  const snapshot = await takeSnapshot(rig);
  await rig.restart(() => restoreSnapshot(rig, snapshot));
}

async function* filesUnder(directory: string): AsyncGenerator<string> {
  for await (const entry of Deno.readDir(directory)) {
    const path = join(directory, entry.name);
    if (entry.isDirectory) yield* filesUnder(path);
    else yield path;
  }
}
