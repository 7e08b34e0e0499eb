// Real roles for the hostile tests: processes under exactly the launcher's flags and environment, watched from outside through what the
// kernel says of them (`/proc`). Tests drive them over their sockets alone; nothing here reaches into one.

import { loadBrokerdConfig } from "../../core/config/brokerd_toml.ts";
import type { HomePaths } from "../../core/home.ts";
import type { Label } from "../../core/labels.ts";
import { type CallAnswer, callAnswerSchema } from "../../core/protocol/broker.ts";
import { requestJson } from "../../core/wire/client.ts";
import { ownEnvironment, roleEnvironment } from "../../tools/launch/environment.ts";
import { roleArguments } from "../../tools/launch/plan.ts";
import { ownRoot } from "../../tools/launch/root.ts";
import { privateTrusted } from "../support/broker_rig.ts";

export const mebibyte = 1_048_576;
/** What another caller waits at most while somebody misbehaves. */
export const otherServedMs = 2_000;

/** A program and all it wrote, line by line. */
export interface Watched {
  readonly pid: number;
  /** The first line of standard output, past ones included, for which `wanted` holds. Rejects where it ends before. */
  line(wanted: (line: string) => boolean): Promise<string>;
  /** All lines of standard output so far. */
  readonly lines: readonly string[];
  kill(signal: Deno.Signal): void;
  /** Closes its standard input, which ends a role. */
  closeInput(): Promise<void>;
  readonly ended: Promise<{ readonly code: number; readonly stdout: string; readonly stderr: string }>;
}

export interface WatchOptions {
  readonly program?: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

export function watch({ program = Deno.execPath(), args, env }: WatchOptions): Watched {
  const child = new Deno.Command(program, {
    args: [...args],
    clearEnv: true,
    env: { ...env },
    cwd: ownRoot,
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const lines: string[] = [];
  let wake = Promise.withResolvers<void>();
  let over = false;
  const tell = () => {
    wake.resolve();
    wake = Promise.withResolvers();
  };
  const reading = (async () => {
    let rest = "";
    const decoder = new TextDecoder();
    for await (const bytes of child.stdout) {
      const parts = (rest + decoder.decode(bytes, { stream: true })).split("\n");
      rest = parts.pop()!;
      lines.push(...parts);
      tell();
    }
    if (rest !== "") lines.push(rest);
    over = true;
    tell();
  })();
  const complaints = new Response(child.stderr).text();
  const ended = (async () => {
    const [stderr, { code }] = await Promise.all([complaints, child.status, reading]);
    await child.stdin.close().catch(() => {});
    return { code, stdout: lines.join("\n"), stderr };
  })();
  return {
    pid: child.pid,
    lines,
    async line(wanted) {
      for (let from = 0;;) {
        for (; from < lines.length; from++) if (wanted(lines[from])) return lines[from];
        if (over) throw new Error(`it ended before that line: ${(await ended).stderr.slice(0, 500)}`);
        await wake.promise;
      }
    },
    kill: (signal) => child.kill(signal),
    closeInput: () => child.stdin.close().catch(() => {}),
    ended,
  };
}

export interface BrokerdProcess extends AsyncDisposable {
  readonly pid: number;
  readonly process: Watched;
  /** `consult`, unless told otherwise. */
  call(session: string, call: number, options?: CallOptions): Promise<CallAnswer>;
  /** Ends it in order; its exit code and what it wrote. */
  stop(): Promise<{ code: number; stdout: string; stderr: string }>;
}

export interface CallOptions {
  readonly question?: string;
  readonly tool?: string;
  readonly arguments?: unknown;
  readonly label?: Label;
}

export interface BrokerdStart {
  /** Goes before the role's own command line, for example a shell that sets a limit. */
  readonly wrap?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

/** brokerd alone, as the launcher starts it; serves when this resolves. */
export async function startBrokerd(paths: HomePaths, options: BrokerdStart = {}): Promise<BrokerdProcess> {
  const config = loadBrokerdConfig(paths);
  const command = [
    ...(options.wrap ?? []),
    Deno.execPath(),
    ...roleArguments("brokerd", {
      root: ownRoot,
      paths,
      brokerd: "value" in config ? config.value : undefined,
    }),
  ];
  const process = watch({
    program: command[0],
    args: command.slice(1),
    env: { ...roleEnvironment(ownEnvironment(), `${paths.permissions}/brokerd.jsonl`), ...options.env },
  });
  await process.line((line) => line.includes('"event":"ready"'));
  const stop = async () => {
    await process.closeInput();
    return await process.ended;
  };
  return {
    pid: process.pid,
    process,
    call: (session, call, options) => callBroker(paths, session, call, options),
    stop,
    async [Symbol.asyncDispose]() {
      await stop();
    },
  };
}

export async function callBroker(
  paths: HomePaths,
  session: string,
  call: number,
  options: CallOptions = {},
): Promise<CallAnswer> {
  const { question = "What is 2+2, one word.", tool = "consult", label = privateTrusted } = options;
  const { body } = await requestJson(paths.brokerSocket, {
    method: "POST",
    path: "/v1/call",
    body: { session, call, tool, arguments: options.arguments ?? { question }, label },
  });
  return callAnswerSchema.parse(body);
}

export interface Memory {
  readonly residentBytes: number;
  /** The most it ever was. */
  readonly peakBytes: number;
}

export function memoryOf(pid: number): Memory {
  const status = Deno.readTextFileSync(`/proc/${pid}/status`);
  const kibibytes = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(status)?.[1]);
  return { residentBytes: kibibytes("VmRSS") * 1_024, peakBytes: kibibytes("VmHWM") * 1_024 };
}

export function isRunning(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(Deno.readTextFileSync(`/proc/${pid}/status`));
  } catch {
    return false;
  }
}

/** What `body` gives, and how long it took. */
export async function timed<T>(body: () => Promise<T>): Promise<{ value: T; elapsedMs: number }> {
  const start = performance.now();
  const value = await body();
  return { value, elapsedMs: performance.now() - start };
}

export interface Launched extends AsyncDisposable {
  readonly launcher: Watched;
  readonly pids: Readonly<Record<string, number>>;
  /** The whole JSON of each event so far. */
  events(): Record<string, unknown>[];
  /** SIGTERM, and all it wrote. */
  stop(): Promise<{ code: number; stdout: string; stderr: string }>;
}

/** `deno task up` as its owner starts it, with `env` in his environment; both roles serve when this resolves. */
export async function startLauncher(
  paths: HomePaths,
  env: Readonly<Record<string, string>> = {},
): Promise<Launched> {
  const own = Object.entries(ownEnvironment()).filter((entry): entry is [string, string] =>
    entry[1] !== undefined
  );
  const launcher = watch({
    args: [
      ...["run", "-q", "--frozen", "--no-prompt", "--config", `${ownRoot}/deno.json`],
      ...["--allow-read", "--allow-write", "--allow-run", "--allow-env", "--allow-sys=uid"],
      `${ownRoot}/tools/launch/main.ts`,
      ...["--home", paths.home, "--json"],
    ],
    env: { ...Object.fromEntries(own), DENO_NO_UPDATE_CHECK: "1", ...env },
  });
  const events = () => launcher.lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  await launcher.line((line) => JSON.parse(line).event === "ready");
  const pids = Object.fromEntries(
    events().flatMap(({ event, role, pid }) => event === "started" ? [[role, pid]] : []),
  );
  let stopped: Promise<{ code: number; stdout: string; stderr: string }> | undefined;
  const stop = () => {
    if (stopped === undefined) launcher.kill("SIGTERM");
    return stopped ??= launcher.ended;
  };
  return {
    launcher,
    pids,
    events,
    stop,
    async [Symbol.asyncDispose]() {
      await stop();
    },
  };
}
