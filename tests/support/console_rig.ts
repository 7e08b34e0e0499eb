// The console as its owner meets it: both roles as real processes under the launcher, a scripted model, a consult endpoint, and the console as
// a process under its own flags. Tests speak to the roles through their sockets and to the console through HTTP or a browser.

import type { HomePaths } from "../../core/home.ts";
import type { SessionId } from "../../core/ids.ts";
import type { TurnOutcome } from "../../core/protocol/loop.ts";
import { type Approval, approvalsAnswerSchema } from "../../core/protocol/owner.ts";
import { requestEvents, requestJson } from "../../core/wire/client.ts";
import { makePrivateHome } from "../../tools/demo/private_home.ts";
import { type RunningRoles, startRoles } from "../../tools/demo/running_roles.ts";
import { consoleArguments } from "../../tools/launch/console.ts";
import { ownEnvironment, personEnvironment } from "../../tools/launch/environment.ts";
import { ownRoot } from "../../tools/launch/root.ts";
import { type ConsultEndpoint, startConsultEndpoint } from "../../tools/stubs/consult_endpoint.ts";
import { startModelStub } from "../../tools/stubs/model.ts";
import type { Script } from "../../tools/stubs/model_script.ts";

export interface ConsoleProcess extends AsyncDisposable {
  /** Printed at start; works once. */
  readonly address: string;
  readonly origin: string;
  readonly pid: number;
  /** Presses Enter in its terminal; resolves with the address it prints. */
  nextAddress(): Promise<string>;
}

export interface ConsoleRig extends AsyncDisposable {
  readonly paths: HomePaths;
  readonly endpoint: ConsultEndpoint;
  readonly console: ConsoleProcess;
  newSession(sensitivity?: string): Promise<SessionId>;
  /** One turn, to its outcome. */
  send(session: SessionId, text: string): Promise<TurnOutcome>;
  /** Asks until one is pending. */
  nextApproval(): Promise<Approval>;
  stopRoles(): Promise<void>;
  startRoles(): Promise<void>;
  owner(method: "GET" | "POST", path: string, body?: unknown): Promise<{ httpStatus: number; body: unknown }>;
}

export interface ConsoleRigOptions {
  readonly script: Script;
  readonly grants?: string;
  readonly allowDecisions?: boolean;
}

export async function startConsoleRig(options: ConsoleRigOptions): Promise<ConsoleRig> {
  await using started = new AsyncDisposableStack();
  const model = started.use(await startModelStub({ script: options.script }));
  const endpoint = started.use(await startConsultEndpoint());
  const home = started.use(
    await makePrivateHome({
      loopdToml: `[clock]\ntime_zone = "UTC"\n[inference]\nurl = "${model.url}"\n`,
      brokerdToml: `[consult]\nurl = "${endpoint.url}"\nmodel = "big-model"\nsecret = "consult"\n`,
      grantsToml: options.grants ?? "",
      secrets: { consult: "marked-key-7d1c\n" },
    }, { prefix: "bx-" }),
  );
  const { paths } = home;
  const own = ownEnvironment();
  let roles: RunningRoles | undefined;
  const start = async () => {
    roles = await startRoles(paths, { own, signal: new AbortController().signal });
  };
  const stop = async () => {
    await roles?.[Symbol.asyncDispose]();
    roles = undefined;
  };
  await start();
  started.defer(stop);
  const console = started.use(await startConsole(paths, options));
  const owned = started.move();
  const owner = (method: "GET" | "POST", path: string, body?: unknown) =>
    requestJson(paths.ownerSocket, { method, path, body });
  const run = async (session: SessionId, text: string) => {
    const path = `/v1/sessions/${session}/turns`;
    for await (
      const { event, data } of requestEvents(paths.loopSocket, { method: "POST", path, body: { text } })
    ) {
      if (event === "done") return data as TurnOutcome;
    }
    throw new Error("the turn's stream ended without a done event");
  };
  return {
    paths,
    endpoint,
    console,
    owner,
    stopRoles: stop,
    startRoles: start,
    async newSession(sensitivity) {
      const body = sensitivity === undefined ? {} : { class: sensitivity };
      const answer = await requestJson(paths.loopSocket, { method: "POST", path: "/v1/sessions", body });
      return (answer.body as { session: SessionId }).session;
    },
    send(session, text) {
      const outcome = run(session, text);
      // A test that fails while its turn runs reports its own failure, not this one's.
      outcome.catch(() => {});
      return outcome;
    },
    async nextApproval() {
      for (;;) {
        const { status: _, ...answer } = (await owner("GET", "/v1/approvals")).body as { status: string };
        const pending = approvalsAnswerSchema.parse(answer).approvals.at(0);
        if (pending !== undefined) return pending;
      }
    },
    [Symbol.asyncDispose]: () => owned[Symbol.asyncDispose](),
  };
}

/** The console of a home, on a free port, under the flags that the launcher gives it. */
export async function startConsole(
  paths: HomePaths,
  { allowDecisions = false }: { readonly allowDecisions?: boolean } = {},
): Promise<ConsoleProcess> {
  const child = new Deno.Command(Deno.execPath(), {
    args: consoleArguments({ paths, port: 0, allowDecisions, timeZone: "UTC", root: ownRoot }),
    clearEnv: true,
    env: personEnvironment(ownEnvironment()),
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const complaints = new Response(child.stderr).text();
  const stdin = child.stdin.getWriter();
  const reader = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  let printed = "";
  const nextPrinted = async (): Promise<string> => {
    for (;;) {
      const match = /Open (http:\/\/\S+)\n/.exec(printed);
      if (match !== null) {
        printed = printed.slice(match.index + match[0].length);
        return match[1];
      }
      const { value, done } = await reader.read();
      if (done) throw new Error(`the console ended: ${await complaints}`);
      printed += value;
    }
  };
  const address = await nextPrinted();
  return {
    address,
    origin: new URL(address).origin,
    pid: child.pid,
    async nextAddress() {
      await stdin.write(new TextEncoder().encode("\n"));
      return await nextPrinted();
    },
    async [Symbol.asyncDispose]() {
      child.kill("SIGTERM");
      await stdin.close().catch(() => {});
      while (!(await reader.read()).done);
      const [{ code }, complained] = await Promise.all([child.status, complaints]);
      if (code !== 0 || complained !== "") throw new Error(`the console ended with ${code}: ${complained}`);
    },
  };
}
