// The launcher as its owner meets it: real processes, real files. Roles are the real ones where what they do matters, and otherwise the
// smallest program that can be started, watched and ended.

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { createHash } from "node:crypto";
import { fakeClock } from "../support/fake_clock.ts";
import { type TempHome, tempHome } from "../support/temp_home.ts";
import type { HomePaths } from "../../core/home.ts";
import { ownEnvironment } from "../../tools/launch/environment.ts";
import { launchRecordSchema, permissionFilesMax } from "../../tools/launch/launch_log.ts";
import { takeHomeLock } from "../../tools/launch/lock.ts";
import { permissionReports } from "../../tools/launch/permissions.ts";
import { loadFiles } from "../../tools/launch/preflight.ts";
import { ownRoot } from "../../tools/launch/root.ts";
import { type LaunchEvent, supervise, type SuperviseOptions } from "../../tools/launch/supervise.ts";

const fakeRole = `${ownRoot}/tests/support/fake_role.ts`;

/** The launcher's programs under the permissions that their tasks give them. */
function program(name: string, args: readonly string[], stdin: "null" | "piped" = "null"): Deno.ChildProcess {
  return new Deno.Command(Deno.execPath(), {
    args: [
      ...["run", "-q", "--frozen", "--no-prompt", "--config", `${ownRoot}/deno.json`],
      ...["--allow-read", "--allow-write", "--allow-run", "--allow-env", "--allow-sys=uid"],
      `${ownRoot}/tools/launch/${name}.ts`,
      ...args,
    ],
    stdin,
    stdout: "piped",
    stderr: "piped",
  }).spawn();
}

async function outcomeOf(child: Deno.ChildProcess): Promise<{ code: number; out: string; err: string }> {
  const { code, stdout, stderr } = await child.output();
  return { code, out: new TextDecoder().decode(stdout), err: new TextDecoder().decode(stderr) };
}

/** Lines of a running program as they come. */
class Lines {
  readonly #reader: ReadableStreamDefaultReader<string>;
  #rest = "";

  constructor(stream: ReadableStream<Uint8Array>) {
    this.#reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  }

  /** The next line for which `wanted` holds; `undefined` at the end. */
  async until(wanted: (line: string) => boolean): Promise<string | undefined> {
    for (;;) {
      const end = this.#rest.indexOf("\n");
      if (end === -1) {
        const { value, done } = await this.#reader.read();
        if (done) return undefined;
        this.#rest += value;
        continue;
      }
      const line = this.#rest.slice(0, end);
      this.#rest = this.#rest.slice(end + 1);
      if (wanted(line)) return line;
    }
  }
}

/** Every path under the home. */
async function tree(directory: string): Promise<string[]> {
  const paths: string[] = [];
  for await (const entry of Deno.readDir(directory)) {
    paths.push(`${directory}/${entry.name}`);
    if (entry.isDirectory) paths.push(...await tree(`${directory}/${entry.name}`));
  }
  return paths.sort();
}

async function launches(paths: HomePaths) {
  const text = await Deno.readTextFile(paths.launches);
  return text.trimEnd().split("\n").map((line) => launchRecordSchema.parse(JSON.parse(line)));
}

function isRunning(pid: number): boolean {
  try {
    return Deno.statSync(`/proc/${pid}`).isDirectory;
  } catch {
    return false;
  }
}

Deno.test("F34 up prints every fault of home, files, timeouts and secrets at once and exits 2 within 5 s; nothing starts, no file appears", async () => {
  await using home = await tempHome({
    loopdToml: "[slots]\nmain = 2\n[inferense]\nurl = 'x'\n[broker]\ntimeout_ms = 1000\n",
    brokerdToml:
      "[consult]\nurl = 'http://api.example.com/'\nmodel = 'm'\nsecret = 'consult'\ntemperature = 0.7\n",
    grantsToml: "[[grant]]\ntool = 'consult'\nmax_taint = 'top'\n",
    secrets: { consult: "sk-PLANTED" },
  });
  await Deno.chmod(`${home.paths.secrets}/consult`, 0o644);
  await Deno.chmod(home.paths.run, 0o777);
  await Deno.remove(home.paths.permissions);
  const before = await tree(home.paths.home);
  const start = performance.now();
  const { code, out, err } = await outcomeOf(program("main", ["--home", home.paths.home]));
  assertEquals([code, out], [2, ""]);
  assert(performance.now() - start < 5_000);
  const wanted = [
    "run: others may write this directory (mode 0777); run: chmod 700",
    "loopd.toml:1: slots.background: is the same slot as slots.main",
    "loopd.toml:3: inferense: unknown key; known keys are inference, ",
    "brokerd.toml:2: consult.url: wanted an https address",
    "brokerd.toml:5: consult.temperature: wanted a number from 0 to 0.6; found 0.7",
    "grants.toml:3: grant[1].max_taint: wanted",
    "loopd.toml:6: broker.timeout_ms: [broker] timeout_ms = 1000 in loopd.toml is below [consult] timeout_ms = 180000",
    "secrets/consult: this secret's mode is 0644, wanted 0600 or stricter; run: chmod 600",
  ];
  for (const text of wanted) assertStringIncludes(err, text);
  assertEquals(err.trimEnd().split("\n").length, wanted.length, err);
  assertEquals(err.includes("PLANTED"), false);
  assertEquals(await tree(home.paths.home), before);
});

Deno.test("C11 up with the named secret missing starts nothing and points at consult-secret-unreadable", async () => {
  await using home = await tempHome({
    brokerdToml: "[consult]\nurl = 'https://api.example.com/'\nmodel = 'm'\nsecret = 'consult'\n",
  });
  const { code, err } = await outcomeOf(program("main", ["--home", home.paths.home]));
  assertEquals(code, 2);
  assertMatch(
    err,
    /secrets\/consult: this secret does not exist; .*docs\/runbook\.md#consult-secret-unreadable\)\n$/,
  );
});

Deno.test("F34 up without a home is one line that says what makes one", async () => {
  const { code, err } = await outcomeOf(program("main", ["--home", "/nowhere/boxmaker"]));
  assertEquals(code, 2);
  assertStringIncludes(
    err,
    "/nowhere/boxmaker: this home does not exist; make it with: deno task init --home /nowhere/boxmaker",
  );
  assertEquals(err.trimEnd().split("\n").length, 1);
});

Deno.test("up runs both real roles as recorded: argv and environment of /proc are the launch's, and SIGTERM ends all of them with exit 0", async () => {
  await using home = await tempHome();
  const { paths } = home;
  const child = program("main", ["--home", paths.home, "--json"]);
  const lines = new Lines(child.stdout);
  const pids: Record<string, number> = {};
  await lines.until((line) => {
    const event = JSON.parse(line);
    if (event.event === "started") pids[event.role] = event.pid;
    return event.event === "ready";
  });
  const records = await launches(paths);
  assertEquals(records.map(({ role }) => role).sort(), ["brokerd", "loopd"]);
  for (const { role, argv, configSha256, time } of records) {
    const [, ...shown] = (await Deno.readTextFile(`/proc/${pids[role]}/cmdline`)).split("\0").slice(0, -1);
    assertEquals(shown, argv);
    const toml = role === "loopd" ? paths.loopdToml : paths.brokerdToml;
    assertEquals(configSha256, createHash("sha256").update(await Deno.readFile(toml)).digest("hex"));
    const environment = (await Deno.readTextFile(`/proc/${pids[role]}/environ`)).split("\0").slice(0, -1);
    const names = environment.map((entry) => entry.split("=")[0]).filter((name) =>
      name !== "NPM_CONFIG_REGISTRY"
    );
    assertEquals(names.sort(), ["DENO_AUDIT_PERMISSIONS", "DENO_DIR", "DENO_NO_UPDATE_CHECK", "NO_COLOR"]);
    assert(
      environment.includes(
        `DENO_AUDIT_PERMISSIONS=${paths.permissions}/${role}-${time.replaceAll(":", "-")}.jsonl`,
      ),
    );
  }

  const second = await outcomeOf(program("main", ["--home", paths.home]));
  assertEquals(second.code, 2);
  assertMatch(second.err, /another launcher \(process \d+\) runs the roles of this home already/);

  child.kill("SIGTERM");
  await lines.until(() => false);
  const [{ code }] = await Promise.all([child.status, child.stderr.cancel()]);
  assertEquals(code, 0);
  assertEquals(Object.values(pids).map(isRunning), [false, false]);
});

Deno.test("both roles end with a launcher that is killed with SIGKILL", async () => {
  await using home = await tempHome();
  const child = program("main", ["--home", home.paths.home, "--json"]);
  const lines = new Lines(child.stdout);
  await lines.until((line) => JSON.parse(line).event === "ready");
  child.kill("SIGKILL");
  await Promise.all([child.status, lines.until(() => false)]);
  // The roles hold the launcher's standard error: its end is theirs.
  assertEquals(await new Response(child.stderr).text(), "");
});

Deno.test("permissions shows for each role what was granted, used and denied, and names grants that were never used", async () => {
  await using home = await tempHome();
  const { paths } = home;
  const child = program("main", ["--home", paths.home, "--json"]);
  const lines = new Lines(child.stdout);
  await lines.until((line) => JSON.parse(line).event === "ready");
  child.kill("SIGTERM");
  await lines.until(() => false);
  await Promise.all([child.status, child.stderr.cancel()]);

  const { code, out } = await outcomeOf(program("permissions", ["--home", paths.home, "--json"]));
  assertEquals(code, 0);
  const [loopd, brokerd] = JSON.parse(out).roles;
  assertEquals([loopd.role, brokerd.role], ["loopd", "brokerd"]);
  const counts = (rows: { permission: string; value: string; count: number }[]) =>
    Object.fromEntries(rows.map(({ permission, value, count }) => [`${permission} ${value}`, count]));
  const used = counts(loopd.granted);
  assert(used[`read ${paths.loopdToml}`] > 0);
  assert(used[`net unix:${paths.loopSocket}`] > 0);
  assertEquals(used[`write ${paths.index}-journal`], 0);
  assert(counts(brokerd.granted)[`write ${paths.audit}`] > 0);
  assertEquals([loopd.denied, brokerd.denied], [[], []]);

  const text = await outcomeOf(program("permissions", ["--home", paths.home]));
  assertMatch(text.out, /write\s+granted, never used\s+\S+index\.sqlite-journal/);
});

Deno.test("init makes a home that up accepts, and overwrites nothing", async () => {
  await using outer = await tempHome();
  const home = `${outer.paths.home}/new`;
  const first = await outcomeOf(program("init", ["--home", home]));
  assertEquals(first.code, 0, first.err);
  for (
    const [path, mode] of [["", 0o700], ["/secrets", 0o700], ["/run", 0o700], ["/loopd.toml", 0o600]] as const
  ) {
    assertEquals((await Deno.stat(home + path)).mode! & 0o777, mode, path);
  }
  await Deno.writeTextFile(`${home}/memory/notes.md`, "mine\n");
  const second = await outcomeOf(program("init", ["--home", home]));
  assertEquals(second.code, 0);
  assertEquals(second.out.match(/^made /gm), null);
  assertEquals(await Deno.readTextFile(`${home}/memory/notes.md`), "mine\n");

  const child = program("main", ["--home", home, "--json"]);
  const lines = new Lines(child.stdout);
  assert(await lines.until((line) => JSON.parse(line).event === "ready") !== undefined);
  child.kill("SIGINT");
  await lines.until(() => false);
  const [{ code }] = await Promise.all([child.status, child.stderr.cancel()]);
  assertEquals(code, 0);
});

Deno.test("B11 bx passes on the exit code: 3 where no role runs, 2 for a word it does not know", async () => {
  await using home = await tempHome();
  const stopped = await outcomeOf(program("command", ["sessions", "--home", home.paths.home]));
  assertEquals(stopped.code, 3);
  assertStringIncludes(stopped.err, `deno task up --home ${home.paths.home}`);
  assertEquals((await outcomeOf(program("command", ["sesions", `--home=${home.paths.home}`]))).code, 2);
});

Deno.test("chat without a home makes one, talks with the practice model and says so, and leaves no process behind", async () => {
  await using outer = await tempHome();
  const child = program("chat", ["--home", `${outer.paths.home}/new`], "piped");
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode("help\n"));
  await writer.close();
  // Every process that it starts holds its standard error: output ends when the last of them has.
  const { code, out, err } = await outcomeOf(child);
  assertEquals([code, err], [0, ""]);
  assertStringIncludes(out, "There was no home yet: made ");
  assertStringIncludes(out, "a practice model answers, not a real one");
  assertStringIncludes(out, "ask the cloud: QUESTION");
});

interface Watched {
  readonly paths: HomePaths;
  readonly clock: ReturnType<typeof fakeClock>;
  readonly events: LaunchEvent[];
  /** The next event of this kind that was not given out yet. */
  next<K extends LaunchEvent["event"]>(event: K, role?: string): Promise<Extract<LaunchEvent, { event: K }>>;
  readonly supervisor: ReturnType<typeof supervise>;
}

/** Fake roles under the real supervisor, whose time stands still. `orders`: what each role finds in its fake.txt. */
async function watch(
  home: TempHome,
  orders: { loopd?: string; brokerd?: string },
  options: Partial<SuperviseOptions> = {},
): Promise<Watched> {
  const { paths } = home;
  if (orders.loopd !== undefined) await Deno.writeTextFile(`${paths.memory}/fake.txt`, orders.loopd);
  if (orders.brokerd !== undefined) await Deno.writeTextFile(`${paths.audit}/fake.txt`, orders.brokerd);
  const clock = fakeClock();
  const events: LaunchEvent[] = [];
  const unseen: LaunchEvent[] = [];
  let changed = Promise.withResolvers<void>();
  const supervisor = supervise({
    paths,
    root: ownRoot,
    own: ownEnvironment(),
    timeZone: "UTC",
    entries: { loopd: fakeRole, brokerd: fakeRole },
    clock,
    onEvent(event) {
      events.push(event);
      unseen.push(event);
      changed.resolve();
      changed = Promise.withResolvers();
    },
    async load() {
      const sound = await loadFiles(paths, {});
      if ("faults" in sound) throw new Error("the home is not sound");
      return sound;
    },
    ...options,
  });
  return {
    paths,
    clock,
    events,
    supervisor,
    async next<K extends LaunchEvent["event"]>(event: K, role?: string) {
      const fits = (one: LaunchEvent): one is Extract<LaunchEvent, { event: K }> =>
        one.event === event && (role === undefined || ("role" in one && one.role === role));
      for (;;) {
        const found = unseen.find(fits);
        if (found !== undefined) {
          unseen.splice(unseen.indexOf(found), 1);
          return found;
        }
        await changed.promise;
      }
    },
  };
}

Deno.test("a role that lived 1 s is back at once; one that did not, after a delay that doubles", async () => {
  await using home = await tempHome();
  const { clock, next, supervisor, paths } = await watch(home, {});
  await supervisor.ready;
  const kill = async (livedMs: number) => {
    const { pid } = await next("started", "loopd");
    await clock.advance(livedMs);
    Deno.kill(pid, "SIGKILL");
    return await next("exited", "loopd");
  };
  assertEquals(await kill(1_000), { event: "exited", role: "loopd", code: 137, livedMs: 1_000, backInMs: 0 });
  for (const backInMs of [250, 500, 1_000]) {
    assertEquals((await kill(0)).backInMs, backInMs);
    await clock.advance(backInMs - 1);
    assertEquals(clock.pending, 1);
    await clock.advance(1);
  }
  assertEquals((await kill(1_500)).backInMs, 0);
  assertEquals((await kill(0)).backInMs, 250);
  // brokerd lived through it all.
  assertEquals((await launches(paths)).filter(({ role }) => role === "brokerd").length, 1);
  assertEquals(await supervisor.stop(), 0);
});

Deno.test("a role that exits with 2 is not started again, and ends the other and the launcher with 2", async () => {
  await using home = await tempHome();
  const { events, supervisor, paths } = await watch(home, { brokerd: "exit 2" });
  assertEquals(await supervisor.ended, 2);
  assertEquals((await launches(paths)).map(({ role }) => role).sort(), ["brokerd", "loopd"]);
  assertEquals(events.at(-1), { event: "stopped" });
});

Deno.test("a role that does not end with its stdin gets SIGTERM after 3 s and SIGKILL after 5 s", async () => {
  await using home = await tempHome();
  const { clock, next, supervisor } = await watch(home, { loopd: "deaf" });
  await supervisor.ready;
  const ended = supervisor.stop();
  assertEquals((await next("exited", "brokerd")).code, 0);
  await clock.advance(2_999);
  assertEquals(clock.pending, 2);
  await clock.advance(1);
  assertEquals((await next("role", "loopd")).said, { event: "ready" });
  assertEquals((await next("role", "loopd")).said, { event: "terminated" });
  await clock.advance(1_999);
  assertEquals(clock.pending, 1);
  await clock.advance(1);
  assertEquals((await next("exited", "loopd")).code, 137);
  assertEquals(await ended, 0);
});

Deno.test("each process has a permission file of its own, and the newest 20 of a role are kept", async () => {
  await using home = await tempHome();
  const { paths } = home;
  for (let day = 1; day <= permissionFilesMax + 5; day++) {
    await Deno.writeTextFile(
      `${paths.permissions}/loopd-2026-01-${String(day).padStart(2, "0")}T00-00-00.000Z.jsonl`,
      "",
    );
  }
  const { supervisor } = await watch(home, {});
  await supervisor.ready;
  assertEquals(await supervisor.stop(), 0);
  const names = (await tree(paths.permissions)).map((path) => path.slice(paths.permissions.length + 1));
  const loopd = names.filter((name) => name.startsWith("loopd-"));
  assertEquals(loopd.length, permissionFilesMax);
  assertEquals([loopd[0], loopd.at(-1)], [
    "loopd-2026-01-07T00-00-00.000Z.jsonl",
    "loopd-2026-12-01T12-00-00.000Z.jsonl",
  ]);
  assertEquals(names.length, permissionFilesMax + 1);
});

Deno.test("permissions counts what earlier lives of a role were refused", async () => {
  await using home = await tempHome();
  const { clock, next, supervisor, paths } = await watch(home, {});
  await supervisor.ready;
  const { pid } = await next("started", "brokerd");
  await clock.advance(1_000);
  Deno.kill(pid, "SIGKILL");
  await next("exited", "brokerd");
  await next("role", "brokerd");
  await next("role", "brokerd");
  assertEquals(await supervisor.stop(), 0);
  // The fake role looks for its orders in both directories, and brokerd may read one of them.
  const brokerd = (await permissionReports(paths)).find(({ role }) => role === "brokerd");
  assertEquals(brokerd?.launches, 2);
  assertEquals(brokerd?.denied, [{ permission: "read", value: `${paths.memory}/fake.txt`, count: 2 }]);
  assertEquals(brokerd?.granted.find(({ value }) => value === paths.audit)?.count, 2);
});

Deno.test("a lock that is released lets the next launcher in", async () => {
  await using home = await tempHome();
  const first = takeHomeLock(home.paths);
  assertEquals(takeHomeLock(home.paths), undefined);
  first?.release();
  const second = takeHomeLock(home.paths);
  assert(second !== undefined);
  second.release();
});
