// The real roles of a private home, under the launcher's own supervision and flags, from ready to gone.

import { UsageError } from "../../core/errors.ts";
import type { HomePaths } from "../../core/home.ts";
import type { OwnEnvironment } from "../launch/environment.ts";
import { type LaunchRecord, launchRecordSchema } from "../launch/launch_log.ts";
import type { LaunchEvent } from "../launch/supervise.ts";
import { up } from "../launch/up.ts";

export interface RunningRoles extends AsyncDisposable {
  /** Process id of each role at its first start. */
  readonly pids: Readonly<Record<string, number>>;
  /** What the launcher recorded of each start: the exact flags. */
  readonly launches: readonly LaunchRecord[];
}

/** Both roles serve well within a second; a slow disk and a busy processor are allowed for. */
const startMsMax = 60_000;

/** Starts both roles and waits until they serve. Throws UsageError for a fault of the home, and where they do not come up. */
export async function startRoles(
  paths: HomePaths,
  { own, signal }: { own: OwnEnvironment; signal: AbortSignal },
): Promise<RunningRoles> {
  const pids: Record<string, number> = {};
  const said: string[] = [];
  const onEvent = (event: LaunchEvent) => {
    if (event.event === "started") pids[event.role] ??= event.pid;
    if (event.event === "exited") said.push(`${event.role} ended with code ${event.code}`);
    if (event.event === "line") said.push(`${event.role}: ${event.text.slice(0, 200)}`);
  };
  signal.throwIfAborted();
  const supervisor = await up({ paths, own, onEvent });
  if ("faults" in supervisor) throw new UsageError(supervisor.faults);
  const stopped = Promise.withResolvers<never>();
  const onAbort = () => stopped.reject(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  const late = (why: string) => stopped.reject(new Error(`the roles ${why} (${said.slice(-4).join("; ")})`));
  const timer = setTimeout(() => late(`did not come up within ${startMsMax / 1000} s`), startMsMax);
  supervisor.ended.then(() => late("ended before they served"));
  // Whoever still waits hears of it; nobody has to.
  stopped.promise.catch(() => {});
  try {
    if (signal.aborted) onAbort();
    await Promise.race([supervisor.ready, stopped.promise]);
  } catch (error) {
    await supervisor.stop();
    throw error;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
  }
  const lines = (await Deno.readTextFile(paths.launches)).trimEnd().split("\n");
  return {
    pids,
    launches: lines.map((line) => launchRecordSchema.parse(JSON.parse(line))),
    async [Symbol.asyncDispose]() {
      await supervisor.stop();
    },
  };
}
