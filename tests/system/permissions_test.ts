// The permission probes: a program that tries everything, run under exactly the flags and the environment that the launcher gives each
// process. What is refused stands beside the nearest thing that is allowed.

import { assertEquals, assertMatch } from "@std/assert";
import { loadBrokerdConfig } from "../../core/config/brokerd_toml.ts";
import { loadLoopdConfig } from "../../core/config/loopd_toml.ts";
import type { HomePaths } from "../../core/home.ts";
import { type OwnEnvironment, ownEnvironment, roleEnvironment } from "../../tools/launch/environment.ts";
import { permissionFile } from "../../tools/launch/launch_log.ts";
import { denoArguments, plan, type Role, roleArguments } from "../../tools/launch/plan.ts";
import { ownRoot } from "../../tools/launch/root.ts";
import type { Attempt } from "../support/probe.ts";
import { tempHome } from "../support/temp_home.ts";

const probe = `${ownRoot}/tests/support/probe.ts`;
const notCapable = /^NotCapable: /;
const notCached = /not found in cache.*--cached-only is specified/;

interface Case {
  readonly what: Attempt;
  /** The refusal, or that it is allowed. */
  readonly outcome: "ok" | RegExp;
}

/** A server that counts who came. */
interface Recorder extends AsyncDisposable {
  readonly url: string;
  readonly requests: string[];
}

function record(options: { port: number; hostname: string } | { path: string }): Recorder {
  const requests: string[] = [];
  const answer = (request: Request) => {
    requests.push(request.url);
    return new Response("export default 1;", { headers: { "content-type": "text/typescript" } });
  };
  const server = "path" in options
    ? Deno.serve({ path: options.path, onListen: () => {} }, answer)
    : Deno.serve({ ...options, onListen: () => {} }, answer);
  const { addr } = server;
  return {
    url: "port" in addr ? `http://127.0.0.1:${addr.port}` : "",
    requests,
    [Symbol.asyncDispose]: () => server.shutdown(),
  };
}

const onLoopback = { port: 0, hostname: "127.0.0.1" };

/** Everything around the roles: the servers they may reach, those they may not, and a home that names them. */
async function withWorld(
  body: (world: {
    paths: HomePaths;
    inference: Recorder;
    consult: Recorder;
    other: Recorder;
    probeAs: (role: Role, attempts: readonly Attempt[], own?: OwnEnvironment) => Promise<string[]>;
  }) => Promise<void>,
): Promise<void> {
  await using inference = record(onLoopback);
  await using consult = record(onLoopback);
  await using other = record(onLoopback);
  await using home = await tempHome({
    loopdToml: `[inference]\nurl = "${inference.url}"\n`,
    brokerdToml: `[consult]\nurl = "${consult.url}/v1/chat/completions"\nmodel = "m"\nsecret = "consult"\n`,
    secrets: { consult: "sk-probe", other: "sk-other" },
  });
  const { paths } = home;
  await using _broker = record({ path: paths.brokerSocket });
  await using _owner = record({ path: paths.ownerSocket });
  await using _loop = record({ path: paths.loopSocket });
  const loopd = loadLoopdConfig(paths);
  const brokerd = loadBrokerdConfig(paths);
  if ("faults" in loopd || "faults" in brokerd) throw new Error("the world's own files are not sound");
  const facts = { paths, root: ownRoot, loopd: loopd.value, brokerd: brokerd.value, entry: probe };
  await body({
    paths,
    inference,
    consult,
    other,
    probeAs: (role, attempts, own = ownEnvironment()) =>
      runProbe(
        roleArguments(role, facts),
        roleEnvironment(own, permissionFile(paths, role, "probe")),
        attempts,
      ),
  });
}

async function runProbe(
  args: readonly string[],
  env: Record<string, string>,
  attempts: readonly Attempt[],
): Promise<string[]> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [...args, JSON.stringify(attempts)],
    clearEnv: true,
    env,
    stdin: "null",
  }).output();
  assertEquals([code, new TextDecoder().decode(stderr)], [0, ""]);
  return JSON.parse(new TextDecoder().decode(stdout));
}

async function assertOutcomes(cases: readonly Case[], probeAll: (attempts: Attempt[]) => Promise<string[]>) {
  const outcomes = await probeAll(cases.map(({ what }) => what));
  for (const [index, { what, outcome }] of cases.entries()) {
    const told = `${JSON.stringify(what)}: ${outcomes[index]}`;
    if (outcome === "ok") assertEquals(outcomes[index], "ok", told);
    else assertMatch(outcomes[index], outcome, told);
  }
}

const noPower: Case[] = (["run", "env", "sys", "ffi"] as const).map((kind) => ({
  what: { kind },
  outcome: notCapable,
}));

Deno.test("F29 loopd reaches its inference server and broker.sock; the consult URL, owner.sock and any other port are refused", () =>
  withWorld(async ({ paths, inference, consult, other, probeAs }) => {
    await assertOutcomes([
      { what: { kind: "fetch", target: `${inference.url}/v1/chat/completions` }, outcome: "ok" },
      { what: { kind: "fetch", target: `${consult.url}/v1/chat/completions` }, outcome: notCapable },
      { what: { kind: "fetch", target: other.url }, outcome: notCapable },
      {
        what: { kind: "fetch", target: inference.url.replace("127.0.0.1", "localhost") },
        outcome: notCapable,
      },
      { what: { kind: "fetch", target: "https://api.example.com/" }, outcome: notCapable },
      { what: { kind: "socket", target: paths.brokerSocket }, outcome: "ok" },
      { what: { kind: "socket", target: paths.ownerSocket }, outcome: /NotCapable|Requires .* access/ },
    ], (attempts) => probeAs("loopd", attempts));
    assertEquals([consult.requests, other.requests], [[], []]);
    assertEquals(inference.requests.length, 1);
  }));

Deno.test("F29 loopd reads its own file, memory and sessions; brokerd's files, secrets and the audit log are refused, and so is writing its own file", () =>
  withWorld(async ({ paths, probeAs }) => {
    await assertOutcomes([
      { what: { kind: "read", target: paths.loopdToml }, outcome: "ok" },
      { what: { kind: "read", target: paths.memory }, outcome: "ok" },
      { what: { kind: "write", target: paths.notes }, outcome: "ok" },
      { what: { kind: "read", target: paths.sessions }, outcome: "ok" },
      { what: { kind: "read", target: paths.brokerdToml }, outcome: notCapable },
      { what: { kind: "read", target: paths.grantsToml }, outcome: notCapable },
      { what: { kind: "read", target: paths.secrets }, outcome: notCapable },
      { what: { kind: "read", target: `${paths.secrets}/consult` }, outcome: notCapable },
      { what: { kind: "read", target: paths.audit }, outcome: notCapable },
      { what: { kind: "read", target: paths.home }, outcome: notCapable },
      { what: { kind: "read", target: "/etc/passwd" }, outcome: notCapable },
      { what: { kind: "write", target: paths.loopdToml }, outcome: notCapable },
      { what: { kind: "write", target: paths.grantsToml }, outcome: notCapable },
      { what: { kind: "write", target: `${paths.sessions}/../grants.toml` }, outcome: notCapable },
      { what: { kind: "write", target: paths.launches }, outcome: notCapable },
      ...noPower,
    ], (attempts) => probeAs("loopd", attempts));
  }));

Deno.test("loopd imports what lies in the cache; a package that does not, and an address even on its own inference server, are refused unasked", () =>
  withWorld(async ({ inference, probeAs }) => {
    await assertOutcomes([
      { what: { kind: "import", target: "zod" }, outcome: "ok" },
      { what: { kind: "import", target: "npm:boxmaker-no-such-package@1.0.0" }, outcome: notCached },
      { what: { kind: "import", target: "https://api.example.com/x.ts?secret" }, outcome: notCached },
      { what: { kind: "import", target: `${inference.url}/x.ts?secret` }, outcome: notCached },
    ], (attempts) => probeAs("loopd", attempts));
    assertEquals(inference.requests, []);
  }));

Deno.test("an HTTP_PROXY in the launcher's environment does not reach loopd; kept, it would carry a request past every grant", () =>
  withWorld(async ({ paths, inference, other, probeAs }) => {
    const proxied = { ...ownEnvironment(), HTTP_PROXY: other.url, http_proxy: other.url };
    const attempts: Attempt[] = [
      { kind: "fetch", target: "http://consult.invalid/?secret" },
      { kind: "fetch", target: inference.url },
    ];
    const [away, near] = await probeAs("loopd", attempts, proxied);
    assertMatch(away, notCapable);
    assertEquals([near, other.requests.length, inference.requests.length], ["ok", 0, 1]);

    // The same flags with the variable kept: the request goes to a port that no flag names.
    const loopd = loadLoopdConfig(paths);
    if ("faults" in loopd) throw new Error("the world's own file is not sound");
    const args = roleArguments("loopd", { paths, root: ownRoot, entry: probe, loopd: loopd.value });
    const kept = {
      ...roleEnvironment(proxied, permissionFile(paths, "loopd", "kept")),
      HTTP_PROXY: other.url,
    };
    assertEquals(await runProbe(args, kept, attempts.slice(1)), ["ok"]);
    assertEquals([other.requests.length, inference.requests.length], [1, 1]);
  }));

Deno.test("C5 brokerd reaches the consult URL; the inference server, any other port and loop.sock are refused", () =>
  withWorld(async ({ paths, inference, consult, other, probeAs }) => {
    await assertOutcomes([
      { what: { kind: "fetch", target: `${consult.url}/v1/chat/completions` }, outcome: "ok" },
      { what: { kind: "fetch", target: `${inference.url}/v1/chat/completions` }, outcome: notCapable },
      { what: { kind: "fetch", target: other.url }, outcome: notCapable },
      { what: { kind: "socket", target: paths.ownerSocket }, outcome: "ok" },
      { what: { kind: "socket", target: paths.loopSocket }, outcome: /NotCapable|Requires .* access/ },
      { what: { kind: "import", target: "npm:boxmaker-no-such-package@1.0.0" }, outcome: notCached },
    ], (attempts) => probeAs("brokerd", attempts));
    assertEquals([inference.requests, other.requests], [[], []]);
  }));

Deno.test("brokerd reads its own files and writes the audit log; sessions, memory, loopd.toml and writing grants are refused", () =>
  withWorld(async ({ paths, probeAs }) => {
    await assertOutcomes([
      { what: { kind: "read", target: paths.brokerdToml }, outcome: "ok" },
      { what: { kind: "read", target: paths.grantsToml }, outcome: "ok" },
      { what: { kind: "read", target: `${paths.secrets}/consult` }, outcome: "ok" },
      { what: { kind: "write", target: `${paths.audit}/audit-000001.jsonl` }, outcome: "ok" },
      { what: { kind: "read", target: paths.loopdToml }, outcome: notCapable },
      { what: { kind: "read", target: paths.sessions }, outcome: notCapable },
      { what: { kind: "read", target: paths.memory }, outcome: notCapable },
      { what: { kind: "write", target: paths.grantsToml }, outcome: notCapable },
      { what: { kind: "write", target: `${paths.secrets}/consult` }, outcome: notCapable },
      { what: { kind: "write", target: paths.brokerdToml }, outcome: notCapable },
      ...noPower,
    ], (attempts) => probeAs("brokerd", attempts));
  }));

Deno.test("B11 bxctl reaches loop.sock and owner.sock and reads the audit log; broker.sock, every port and every other file are refused", () =>
  withWorld(async ({ paths, inference, consult }) => {
    const args = [...denoArguments(ownRoot), ...plan("bxctl", { paths }), probe];
    await assertOutcomes(
      [
        { what: { kind: "socket", target: paths.loopSocket }, outcome: "ok" },
        { what: { kind: "socket", target: paths.ownerSocket }, outcome: "ok" },
        { what: { kind: "read", target: paths.audit }, outcome: "ok" },
        { what: { kind: "socket", target: paths.brokerSocket }, outcome: /NotCapable|Requires .* access/ },
        { what: { kind: "fetch", target: inference.url }, outcome: notCapable },
        { what: { kind: "fetch", target: consult.url }, outcome: notCapable },
        { what: { kind: "write", target: paths.launches }, outcome: notCapable },
        { what: { kind: "read", target: paths.sessions }, outcome: notCapable },
        { what: { kind: "read", target: paths.secrets }, outcome: notCapable },
        ...noPower,
      ],
      (attempts) =>
        runProbe(args, roleEnvironment(ownEnvironment(), permissionFile(paths, "loopd", "bx")), attempts),
    );
  }));
