// Both roles on a private home, under the launcher's own supervision and flags, and the owner's side of loop.sock to measure with.

import { requestEvents, requestJson } from "../../core/wire/client.ts";
import type { HomePaths } from "../../core/home.ts";
import type { SessionId } from "../../core/ids.ts";
import type { TurnOutcome } from "../../core/protocol/loop.ts";
import { makePrivateHome } from "../demo/private_home.ts";
import { type OwnEnvironment, ownEnvironment } from "../launch/environment.ts";
import type { LaunchEvent, Supervisor } from "../launch/supervise.ts";
import { up, type UpOptions } from "../launch/up.ts";

export interface BenchHomeOptions {
  /** TOML after `[inference] url`. */
  readonly loopdToml?: string;
  readonly brokerdToml?: string;
  readonly grantsToml?: string;
}

export interface BenchHome extends AsyncDisposable {
  readonly paths: HomePaths;
  readonly own: OwnEnvironment;
}

export async function benchHome(inferenceUrl: string, options: BenchHomeOptions = {}): Promise<BenchHome> {
  const home = await makePrivateHome({
    loopdToml: `[inference]\nurl = "${inferenceUrl}"\n${options.loopdToml ?? ""}`,
    brokerdToml: options.brokerdToml ?? "",
    grantsToml: options.grantsToml ?? "",
    secrets: { consult: "bench-key" },
  }, { prefix: "bx-bench-" });
  return { ...home, own: ownEnvironment() };
}

export interface Roles extends AsyncDisposable {
  readonly pids: { readonly loopd: number; readonly brokerd: number };
  /** From a role's process being started to its `ready`, in milliseconds. */
  readonly readyMs: { readonly loopd: number; readonly brokerd: number };
  newSession(sensitivity?: string): Promise<SessionId>;
  /** One turn, to its `done`. */
  send(session: string, text: string): Promise<TurnOutcome>;
}

const startMsMax = 120_000;

export async function startRoles(
  { paths, own }: BenchHome,
  { entries }: Pick<UpOptions, "entries"> = {},
): Promise<Roles> {
  const pids = { loopd: 0, brokerd: 0 };
  const began = { loopd: 0, brokerd: 0 };
  const readyMs = { loopd: 0, brokerd: 0 };
  const said: string[] = [];
  const onEvent = (event: LaunchEvent) => {
    if (event.event === "started") {
      pids[event.role] = event.pid;
      began[event.role] = performance.now();
    }
    if (event.event === "role" && event.said.event === "ready") {
      readyMs[event.role] = performance.now() - began[event.role];
    }
    if (event.event === "exited" || event.event === "line") said.push(JSON.stringify(event));
  };
  const supervisor = await up({ paths, own, onEvent, entries });
  if ("faults" in supervisor) throw new Error(supervisor.faults.map(({ text }) => text).join("; "));
  await readyOrStopped(supervisor, said);
  return {
    pids,
    readyMs,
    async newSession(sensitivity) {
      const body = sensitivity === undefined ? {} : { class: sensitivity };
      const answer = await requestJson(paths.loopSocket, { method: "POST", path: "/v1/sessions", body });
      return (answer.body as { session: SessionId }).session;
    },
    async send(session, text) {
      const outcome = await turn(paths, session, text);
      if (outcome.status !== "completed") throw new Error(`a turn ${outcome.status}: ${outcome.reason}`);
      return outcome;
    },
    async [Symbol.asyncDispose]() {
      await supervisor.stop();
    },
  };
}

async function readyOrStopped(supervisor: Supervisor, said: string[]): Promise<void> {
  let timer;
  const late = new Promise<string>((resolve) => {
    timer = setTimeout(() => resolve("did not come up in time"), startMsMax);
  });
  const failed = await Promise.race([
    supervisor.ready.then(() => undefined),
    supervisor.ended.then((code) => `ended with ${code}`),
    late,
  ]);
  clearTimeout(timer);
  if (failed === undefined) return;
  await supervisor.stop();
  throw new Error(`the roles ${failed} (${said.slice(-4).join("; ")})`);
}

/** One turn over loop.sock, to its `done`. */
export async function turn(paths: HomePaths, session: string, text: string): Promise<TurnOutcome> {
  const path = `/v1/sessions/${session}/turns`;
  for await (const event of requestEvents(paths.loopSocket, { method: "POST", path, body: { text } })) {
    if (event.event === "done") return event.data as TurnOutcome;
  }
  throw new Error("the turn's stream ended without a done event");
}
