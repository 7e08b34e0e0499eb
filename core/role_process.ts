// A role as a process, the same for both: arguments, one JSON line per event on standard output, the lifeline, signals and exit codes.
// What the role does is handed in; nothing here knows which one it is.

import { describeError, exitCodes, UsageError } from "./errors.ts";
import type { RoleName } from "./protocol/common.ts";

export interface RoleStart {
  readonly home: string;
  /** Values of the role's own options, by name without the dashes. */
  readonly options: Readonly<Record<string, string | undefined>>;
  /** Writes one event line. */
  emit(event: Readonly<Record<string, unknown>>): void;
  /** Ends the process: exit 2 for a UsageError (nobody restarts it), 1 for anything else (the launcher does). */
  fatal(error: unknown): void;
}

export interface RoleProcess {
  readonly role: RoleName;
  readonly help: string;
  readonly args: readonly string[];
  /** Options of its own that take a value. */
  readonly options?: readonly string[];
  start(context: RoleStart): Promise<{ close(): Promise<void> }>;
}

/** Runs until a signal, the end of the lifeline, or a fault; then the process has exited. */
export async function runRole({ role, help, args, options = [], start }: RoleProcess): Promise<void> {
  if (args.includes("--help")) {
    console.log(help);
    Deno.exit(exitCodes.done);
  }
  const emit = (event: Readonly<Record<string, unknown>>) => console.log(JSON.stringify({ role, ...event }));
  const fatal = (error: unknown): never => {
    if (error instanceof UsageError) {
      console.error(error.message);
      Deno.exit(exitCodes.usage);
    }
    // The stack is ours, not a peer's text: it is what a report of a bug needs.
    console.error(`${role}: ${error instanceof Error ? error.stack ?? error.message : describeError(error)}`);
    Deno.exit(exitCodes.failed);
  };
  globalThis.addEventListener("unhandledrejection", (event) => {
    event.preventDefault();
    fatal(event.reason);
  });
  try {
    const parsed = parseArguments(role, args, options);
    const running = await start({ home: parsed.home, options: parsed.options, emit, fatal });
    emit({ event: "ready" });
    await untilStopped(parsed.lifeline);
    emit({ event: "stopping" });
    await running.close();
    Deno.exit(exitCodes.done);
  } catch (error) {
    fatal(error);
  }
}

function parseArguments(role: RoleName, args: readonly string[], names: readonly string[]) {
  let home: string | undefined;
  let lifeline = false;
  const options: Record<string, string | undefined> = {};
  for (let at = 0; at < args.length; at++) {
    const name = args[at].replace(/^--/, "");
    if (args[at] === "--lifeline") lifeline = true;
    else if (args[at] === "--home") home = args[++at];
    else if (args[at].startsWith("--") && names.includes(name)) options[name] = args[++at];
    else {throw new UsageError([{
        text: `${role}: unknown argument ${JSON.stringify(args[at])}; see --help`,
      }]);}
  }
  if (home === undefined || !home.startsWith("/")) {
    throw new UsageError([{
      text: `${role}: --home must be an absolute directory, not ${JSON.stringify(home ?? "")}`,
    }]);
  }
  return { home, lifeline, options };
}

// The launcher holds the other end of standard input: when it dies, by whatever signal, this ends and the role goes with it.
async function untilStopped(lifeline: boolean): Promise<void> {
  const stop = Promise.withResolvers<void>();
  for (const signal of ["SIGTERM", "SIGINT"] as const) Deno.addSignalListener(signal, stop.resolve);
  if (lifeline) {
    (async () => {
      for await (const _ of Deno.stdin.readable);
    })().then(stop.resolve, stop.resolve);
  }
  await stop.promise;
}
