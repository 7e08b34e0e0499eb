// Starts both roles, keeps them running and stops them. Each holds one end of a pipe on its stdin: it ends with the launcher, whatever
// ends the launcher. What a role does, and with which flags (plan.ts), is not decided here.

import { type Clock, delay, timestamp } from "../../core/clock.ts";
import { describeError, exitCodes } from "../../core/errors.ts";
import type { HomePaths } from "../../core/home.ts";
import { parseJsonObject } from "../../core/json.ts";
import { roleNames } from "../../core/protocol/common.ts";
import { type OwnEnvironment, roleEnvironment } from "./environment.ts";
import { appendLaunch, permissionFile, rotatePermissionFiles } from "./launch_log.ts";
import { type Role, roleArguments } from "./plan.ts";
import type { Sound } from "./preflight.ts";

export type LaunchEvent =
  | { readonly event: "started"; readonly role: Role; readonly pid: number }
  /** A JSON line of the role's own; `said` is the parsed object. */
  | { readonly event: "role"; readonly role: Role; readonly said: { readonly [key: string]: unknown } }
  /** Any other line of its stdout. */
  | { readonly event: "line"; readonly role: Role; readonly text: string }
  | {
    readonly event: "exited";
    readonly role: Role;
    readonly code: number;
    readonly livedMs: number;
    /** Absent where it is not started again. */
    readonly backInMs?: number;
  }
  /** Both roles serve, for the first time. */
  | { readonly event: "ready" }
  /** What the owner should know, and nothing is wrong. */
  | { readonly event: "notice"; readonly text: string }
  | { readonly event: "stopping" }
  | { readonly event: "stopped" };

export interface SuperviseOptions {
  readonly paths: HomePaths;
  readonly root: string;
  readonly own: OwnEnvironment;
  readonly timeZone: string;
  readonly inferenceUrl?: string;
  /** Programs in place of `<root>/<role>/main.ts`. */
  readonly entries?: { readonly [role in Role]?: string };
  readonly clock: Clock;
  readonly onEvent: (event: LaunchEvent) => void;
  /** What the files say at each start of a role: a role that comes back has read them anew. */
  readonly load: () => Promise<Sound>;
  /** Called for each process with its permission-audit file and arguments; what it returns is called when the process has ended. */
  readonly watchPermissionFile?: (path: string, argv: readonly string[]) => () => void;
}

export interface Supervisor {
  /** Resolves when both roles have said that they serve; never, where they do not come to it. */
  readonly ready: Promise<void>;
  /** The launcher's exit code, once both roles are gone. */
  readonly ended: Promise<number>;
  /** Ends both roles and resolves with `ended`. */
  stop(): Promise<number>;
}

/** A role that lived this long is back at once. */
const livedWellMs = 1_000;
const restartDelayMsMin = 250;
const restartDelayMsMax = 30_000;
/** After its stdin was closed. */
const terminateAfterMs = 3_000;
const killAfterMs = 5_000;
/** One line of a role's stdout; the rest of a longer one is dropped. */
const lineCharactersMax = 65_536;

export function supervise(options: SuperviseOptions): Supervisor {
  const stopping = new AbortController();
  const ready = Promise.withResolvers<void>();
  const waiting = new Set<Role>(roleNames);
  let exitCode: number = exitCodes.done;

  function onReady(role: Role): void {
    if (!waiting.delete(role) || waiting.size > 0) return;
    options.onEvent({ event: "ready" });
    ready.resolve();
  }

  function stop(code: number): void {
    if (stopping.signal.aborted) return;
    exitCode = code;
    options.onEvent({ event: "stopping" });
    stopping.abort();
  }

  /** Runs one role until the launcher stops: start, wait for its end, decide whether and when it comes back. */
  async function keep(role: Role): Promise<void> {
    let restartDelayMs = restartDelayMsMin;
    while (!stopping.signal.aborted) {
      const start = options.clock.monotonic();
      const code = await runOnce(role, options, stopping.signal, () => onReady(role));
      const livedMs = Math.round(options.clock.monotonic() - start);
      if (stopping.signal.aborted) return options.onEvent({ event: "exited", role, code, livedMs });
      if (code === exitCodes.usage) {
        // The owner wrote something wrong: starting it again would not make it right.
        options.onEvent({ event: "exited", role, code, livedMs });
        return stop(exitCodes.usage);
      }
      if (livedMs >= livedWellMs) restartDelayMs = restartDelayMsMin;
      const backInMs = livedMs >= livedWellMs ? 0 : restartDelayMs;
      options.onEvent({ event: "exited", role, code, livedMs, backInMs });
      if (backInMs === 0) continue;
      restartDelayMs = Math.min(restartDelayMs * 2, restartDelayMsMax);
      await delay(options.clock, backInMs, stopping.signal).catch(() => {});
    }
  }

  const ended = Promise.allSettled(roleNames.map((role) =>
    keep(role).catch((error) => {
      options.onEvent({ event: "line", role, text: `could not be kept running: ${describeError(error)}` });
      stop(exitCodes.failed);
    })
  )).then(() => {
    options.onEvent({ event: "stopped" });
    return exitCode;
  });
  return {
    ready: ready.promise,
    ended,
    stop() {
      stop(exitCodes.done);
      return ended;
    },
  };
}

/** One life of a role; resolves with its exit code. */
async function runOnce(
  role: Role,
  options: SuperviseOptions,
  stopping: AbortSignal,
  onReady: () => void,
): Promise<number> {
  const { paths, root, clock, entries, inferenceUrl, timeZone } = options;
  const { loopd, brokerd, hashes } = await options.load();
  const time = timestamp(clock);
  const argv = roleArguments(role, {
    paths,
    root,
    loopd,
    brokerd,
    entry: entries?.[role],
    inferenceUrl,
    timeZone,
  });
  await rotatePermissionFiles(paths, role);
  await appendLaunch(paths, {
    time,
    role,
    argv,
    configSha256: hashes[role],
    ...(role === "brokerd" ? { grantsSha256: hashes.grants } : {}),
  });
  if (stopping.aborted) return exitCodes.done;
  const child = new Deno.Command(Deno.execPath(), {
    args: argv,
    clearEnv: true,
    env: roleEnvironment(options.own, permissionFile(paths, role, time)),
    cwd: root,
    stdin: "piped",
    stdout: "piped",
    stderr: "inherit",
    // A process group of its own: Ctrl-C in the terminal reaches the launcher alone, which then stops the roles in order.
    detached: true,
  }).spawn();
  options.onEvent({ event: "started", role, pid: child.pid });

  const timers: (() => void)[] = [];
  const end = () => {
    child.stdin.close().catch(() => {});
    timers.push(clock.schedule(terminateAfterMs, () => signal(child, "SIGTERM")));
    timers.push(clock.schedule(killAfterMs, () => signal(child, "SIGKILL")));
  };
  stopping.addEventListener("abort", end, { once: true });
  const listening = listen(child.stdout, (text) => {
    const said = parseJsonObject(text);
    if (said === undefined) return options.onEvent({ event: "line", role, text });
    options.onEvent({ event: "role", role, said });
    if (said.event === "ready") onReady();
  });
  const letGo = options.watchPermissionFile?.(permissionFile(paths, role, time), argv);
  const { code } = await child.status;
  letGo?.();
  stopping.removeEventListener("abort", end);
  for (const cancel of timers) cancel();
  if (!stopping.aborted) await child.stdin.close().catch(() => {});
  await listening;
  return code;
}

async function listen(stream: ReadableStream<Uint8Array>, onLine: (text: string) => void): Promise<void> {
  let line = "";
  for await (const text of stream.pipeThrough(new TextDecoderStream())) {
    const parts = text.split("\n");
    for (const [index, part] of parts.entries()) {
      line = (line + part).slice(0, lineCharactersMax);
      if (index === parts.length - 1) break;
      if (line !== "") onLine(line);
      line = "";
    }
  }
  if (line !== "") onLine(line);
}

function signal(child: Deno.ChildProcess, name: Deno.Signal): void {
  try {
    child.kill(name);
  } catch {
    // It ended in the meantime, which is what was wanted.
  }
}
