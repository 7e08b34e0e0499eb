// A backup of a home that changes under it, and what becomes of it: the order of the copy, what is left out, and every way in which a
// restore is refused. The home is written by the roles' own writers.

import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { AuditLog } from "../../../brokerd/audit_log.ts";
import { Fold } from "../../../brokerd/fold.ts";
import { verifyAudit } from "../../../core/audit/verify.ts";
import { UsageError } from "../../../core/errors.ts";
import { type HomePaths, homePaths } from "../../../core/home.ts";
import type { SessionId } from "../../../core/ids.ts";
import { createSessionLog, readSessionLog, sessionLogPath } from "../../../loopd/session/log.ts";
import type { NewRecord } from "../../../loopd/session/record.ts";
import { backUp, type BackupOptions } from "../../../tools/backup/backup.ts";
import { loadManifest } from "../../../tools/backup/manifest.ts";
import { DamagedBackup, restore } from "../../../tools/backup/restore.ts";
import { takeHomeLock } from "../../../tools/launch/lock.ts";
import { denial } from "../../support/audit_folder.ts";
import { fakeClock } from "../../support/fake_clock.ts";
import { tempHome } from "../../support/temp_home.ts";

const label = { class: "private", untrusted: false } as const;

interface Place extends AsyncDisposable {
  readonly paths: HomePaths;
  readonly audit: AuditLog;
  /** Beside the home. */
  at(name: string): string;
  /** Appends to a session's log, which begins with its first records. */
  say(session: string, ...records: NewRecord[]): Promise<void>;
  backUp(name: string, options?: Partial<BackupOptions>): ReturnType<typeof backUp>;
}

async function place(files: Parameters<typeof tempHome>[0] = {}): Promise<Place> {
  const home = await tempHome(files);
  const outside = await Deno.realPath(await Deno.makeTempDir({ prefix: "bx-b-" }));
  const { paths } = home;
  const clock = fakeClock();
  const audit = await AuditLog.open({ dir: paths.audit, clock, fold: new Fold(), segmentBytesMax: 4_000 });
  return {
    paths,
    audit,
    at: (name) => `${outside}/${name}`,
    async say(session, ...records) {
      const id = session as SessionId;
      const path = sessionLogPath(paths.sessions, id);
      const known = await Deno.stat(path).then(() => true, () => false);
      if (!known) {
        const log = await createSessionLog(paths.sessions, id, clock);
        await log.append([
          { kind: "open", session: id, parent: null, label },
          { kind: "epoch", epoch: 1, system: "You are.", tools: "[]" },
          ...records,
        ]);
        return await log.close();
      }
      const seq = (await readSessionLog(path)).length;
      const lines = records.map((record, at) =>
        JSON.stringify({ v: 1, seq: seq + 1 + at, time: "2026-12-01T00:00:00.000Z", ...record }) + "\n"
      );
      await Deno.writeTextFile(path, lines.join(""), { append: true });
    },
    backUp: (name, options = {}) =>
      backUp({
        paths,
        directory: `${outside}/${name}`,
        withSecrets: false,
        withPermissions: false,
        clock,
        ...options,
      }),
    async [Symbol.asyncDispose]() {
      await audit.close();
      await Deno.remove(outside, { recursive: true });
      await home[Symbol.asyncDispose]();
    },
  };
}

function spawn(parent: string, call: number): NewRecord {
  return { kind: "spawn", call, child: `sub-${parent}-${call}` as SessionId, task: "look" };
}

async function record(audit: AuditLog, session: string, call: number): Promise<void> {
  audit.append(denial(session, call));
  await audit.commit();
}

/** Path, mode and text of everything below a directory. */
async function tree(directory: string, below = ""): Promise<string[]> {
  const found: string[] = [];
  for await (const { name, isDirectory } of Deno.readDir(`${directory}${below}`)) {
    const path = `${below}/${name}`;
    const mode = ((await Deno.lstat(directory + path)).mode! & 0o777).toString(8);
    if (!isDirectory) found.push(`${path} ${mode} ${await Deno.readTextFile(directory + path)}`);
    else found.push(`${path}/ ${mode}`, ...await tree(directory, path));
  }
  return found.sort();
}

async function faultOf(work: Promise<unknown>): Promise<string> {
  return (await assertRejects(() => work, UsageError) as UsageError).message;
}

Deno.test("a home that was backed up and restored has the same files in the same modes, but for secrets, sockets and the index", async () => {
  await using here = await place({ loopdToml: "# mine\n", secrets: { consult: "sk-PLANTED" } });
  const { paths } = here;
  await here.say("chat-a", { kind: "user", turn: 1, text: "hello" }, spawn("chat-a", 1));
  await here.say("sub-chat-a-1");
  await Deno.mkdir(`${paths.sessions}/chat-a/outputs`, { mode: 0o700 });
  await Deno.writeTextFile(`${paths.sessions}/chat-a/outputs/1.txt`, "long", { mode: 0o600 });
  await here.say("job-old");
  await Deno.rename(`${paths.sessions}/job-old`, `${paths.sessions}/job-old.retired-17`);
  await Deno.writeTextFile(`${paths.sessions}/chat-gone.forgotten`, "", { mode: 0o600 });
  await Deno.writeTextFile(paths.notes, "- a line of mine\n", { mode: 0o600 });
  for (let call = 1; call <= 20; call++) await record(here.audit, "chat-a", call);
  await Deno.writeTextFile(paths.launches, "{}\n", { mode: 0o600 });
  await Deno.writeTextFile(paths.index, "derived", { mode: 0o600 });
  await Deno.writeTextFile(`${paths.permissions}/loopd-x.jsonl`, "{}\n", { mode: 0o600 });

  const report = await here.backUp("b");
  assertEquals([report.sessions, report.skipped], [2, []]);
  assertEquals(report.manifest.audit?.exit, 0);
  const inBackup = (await tree(here.at("b"))).join("\n");
  assertEquals(inBackup.includes("PLANTED") || inBackup.includes("derived"), false);

  const to = homePaths(here.at("new"));
  const restored = await restore({ directory: here.at("b"), paths: to });
  assertEquals([restored.sessions, restored.audit?.exit, restored.missingSecrets], [2, 0, []]);
  const wanted = (await tree(paths.home)).filter((line) =>
    !/^\/(secrets\/consult|index\.sqlite|permissions\/loopd-x|audit\/lock|audit\/head)/.test(line)
  );
  assertEquals((await tree(to.home)).filter((line) => !line.startsWith("/audit/head")), wanted);
  assertEquals(((await Deno.stat(to.home)).mode! & 0o777).toString(8), "700");
});

Deno.test("secrets and permission files are copied where they are asked for; a secret that is named and missing is said", async () => {
  await using here = await place({
    brokerdToml: "[consult]\nurl = 'https://api.example.com/'\nmodel = 'm'\nsecret = 'consult'\n",
    secrets: { consult: "sk-PLANTED" },
  });
  await Deno.writeTextFile(`${here.paths.permissions}/loopd-x.jsonl`, '{"v":1}\n{"v":1', { mode: 0o600 });
  await here.backUp("without");
  await here.backUp("with", { withSecrets: true, withPermissions: true });
  const [without, whole] = [homePaths(here.at("1")), homePaths(here.at("2"))];
  assertEquals((await restore({ directory: here.at("without"), paths: without })).missingSecrets, [
    "consult",
  ]);
  assertEquals((await restore({ directory: here.at("with"), paths: whole })).missingSecrets, []);
  assertEquals(await Deno.readTextFile(`${whole.secrets}/consult`), "sk-PLANTED");
  assertEquals(await Deno.readTextFile(`${whole.permissions}/loopd-x.jsonl`), '{"v":1}\n');
});

Deno.test("a line that has no end yet is left out of logs and segments, and what is there is whole", async () => {
  await using here = await place();
  await here.say("chat-a", { kind: "user", turn: 1, text: "one" });
  await record(here.audit, "chat-a", 1);
  const log = sessionLogPath(here.paths.sessions, "chat-a" as SessionId);
  const whole = await Deno.readTextFile(log);
  await Deno.writeTextFile(log, '{"v":1,"seq":4,"ti', { append: true });
  await Deno.writeTextFile(`${here.paths.audit}/audit-000001.jsonl`, '{"v":1,"se', { append: true });
  const { manifest } = await here.backUp("b");
  assertEquals(await Deno.readTextFile(`${here.at("b")}/sessions/chat-a/log.jsonl`), whole);
  assertEquals(manifest.audit?.exit, 0);
});

Deno.test("the copied head never leads the copied log, however the log grows between the two", async () => {
  await using here = await place();
  await record(here.audit, "chat-a", 1);
  let call = 1;
  const { manifest } = await here.backUp("b", {
    // After the head, and after every segment: new records, new segments, and a head that names them.
    async onCopied(path) {
      if (!path.startsWith("audit/") || call > 60) return;
      for (let more = 0; more < 10; more++) await record(here.audit, "chat-a", ++call);
    },
  });
  assertEquals(manifest.audit?.exit, 0);
  assertEquals((await verifyAudit(`${here.at("b")}/audit`)).exit, 0);
});

Deno.test("the audit log is copied before every session, and a parent before its children, however late those come", async () => {
  await using here = await place();
  await record(here.audit, "chat-a", 1);
  await here.say("sub-chat-a-1", spawn("sub-chat-a-1", 1));
  await here.say("chat-a", spawn("chat-a", 1));
  await here.say("sub-sub-chat-a-1-1");
  await here.say("sub-chat-lost-9");
  const order: string[] = [];
  await here.backUp("b", {
    async onCopied(path) {
      order.push(path);
      if (path !== "audit/launches.jsonl" && path !== "audit/audit-000001.jsonl") return;
      // A child that begins while the copy is under way; its parent says so first.
      await here.say("chat-a", spawn("chat-a", 2));
      await here.say("sub-chat-a-2");
    },
  });
  assertEquals(order.filter((path) => path.startsWith("audit/") || path.startsWith("sessions/")), [
    "audit/head.json",
    "audit/audit-000001.jsonl",
    "sessions/chat-a/log.jsonl",
    "sessions/sub-chat-a-1/log.jsonl",
    "sessions/sub-chat-a-2/log.jsonl",
    "sessions/sub-chat-lost-9/log.jsonl",
    "sessions/sub-sub-chat-a-1-1/log.jsonl",
  ]);
});

Deno.test("a session that is retired or forgotten during the copy makes it begin again or is left out; three times is an error that leaves nothing", async () => {
  await using here = await place();
  await here.say("chat-b");
  await here.say("chat-c");
  await here.say("job-a");
  let times = 0;
  const retire = async (path: string) => {
    if (path !== "sessions/chat-b/log.jsonl") return;
    await here.say("job-a");
    await Deno.rename(`${here.paths.sessions}/job-a`, `${here.paths.sessions}/job-a.retired-${++times}`);
    here.audit.append({ kind: "retire", session: "job-a" as SessionId });
    await here.audit.commit();
  };
  const error = await assertRejects(() => here.backUp("never", { onCopied: retire }), Error);
  assertStringIncludes(error.message, "were retired or the audit log pruned 3 times");
  assertEquals(await Array.fromAsync(Deno.readDir(here.at(""))), []);

  const { manifest } = await here.backUp("b", {
    async onCopied(path) {
      if (times === 3) await retire(path);
      if (path !== "sessions/chat-b/log.jsonl") return;
      await Deno.writeTextFile(`${here.paths.sessions}/chat-c.forgotten`, "");
      await Deno.remove(`${here.paths.sessions}/chat-c`, { recursive: true }).catch(() => {});
    },
  });
  assertEquals(manifest.files.map(({ path }) => path).filter((path) => path.startsWith("sessions/")), [
    "sessions/chat-b/log.jsonl",
    "sessions/chat-c.forgotten",
    ...[1, 2, 3, 4].map((time) => `sessions/job-a.retired-${time}/log.jsonl`),
  ]);
});

Deno.test("a link and a name that is not ours are left out and named, never followed", async () => {
  await using here = await place();
  await Deno.symlink("/etc/hostname", `${here.paths.memory}/more.md`);
  await Deno.writeTextFile(`${here.paths.memory}/my notes.md`, "text");
  await Deno.writeTextFile(`${here.paths.memory}/more2.md`, "text");
  const { skipped, manifest } = await here.backUp("b");
  assertEquals(skipped.toSorted(), ["memory/more.md", "memory/my notes.md"]);
  assert(manifest.files.some(({ path }) => path === "memory/more2.md"));
});

Deno.test("a backup goes only into a directory that is absent or empty, and a cut one is never under its name", async () => {
  await using here = await place();
  await Deno.mkdir(here.at("full"));
  await Deno.writeTextFile(`${here.at("full")}/x`, "");
  assertStringIncludes(await faultOf(here.backUp("full")), `${here.at("full")}: is not empty`);
  assertStringIncludes(await faultOf(here.backUp("full/x")), "is no directory");
  await Deno.mkdir(here.at("cut.partial"));
  assertStringIncludes(await faultOf(here.backUp("cut")), `rm -r ${here.at("cut.partial")}`);
  const interrupted = new AbortController();
  const work = here.backUp("int", {
    signal: interrupted.signal,
    onCopied: () => Promise.resolve(interrupted.abort(new Error("interrupted"))),
  });
  assertEquals((await assertRejects(() => work, Error)).message, "interrupted");
  await Deno.mkdir(here.at("empty"));
  await here.backUp("empty");
  const names = (await Array.fromAsync(Deno.readDir(here.at("")))).map(({ name }) => name).sort();
  assertEquals(names, ["cut.partial", "empty", "full"]);
  await Deno.remove(here.paths.loopdToml);
  assertStringIncludes(await faultOf(here.backUp("none")), "is no home: it holds no loopd.toml");
});

Deno.test("a restore goes only into a home that is absent or empty, and never into one that is in use", async () => {
  await using here = await place();
  await here.backUp("b");
  const into = (name: string) => restore({ directory: here.at("b"), paths: homePaths(here.at(name)) });
  await Deno.mkdir(here.at("full"));
  await Deno.writeTextFile(`${here.at("full")}/x`, "");
  assertStringIncludes(await faultOf(into("full")), `is not empty`);
  assertEquals((await Array.fromAsync(Deno.readDir(here.at("full")))).map(({ name }) => name), ["x"]);
  await Deno.mkdir(here.at("used/run"), { recursive: true });
  const lock = takeHomeLock(homePaths(here.at("used")));
  assertStringIncludes(await faultOf(into("used")), `is in use by a launcher (process ${Deno.pid})`);
  lock?.release();
  await Deno.mkdir(here.at("cut.restoring"));
  assertStringIncludes(await faultOf(into("cut")), `rm -r ${here.at("cut.restoring")}`);
  assertStringIncludes(await faultOf(into("a,b")), "holds a comma");
  await Deno.mkdir(here.at("empty"));
  await into("empty");
  assertEquals(((await Deno.stat(here.at("empty"))).mode! & 0o777).toString(8), "700");
});

Deno.test("a backup that lost, changed or grew a file is refused by name and nothing is restored", async () => {
  await using here = await place();
  await here.say("chat-a");
  await here.backUp("b");
  const log = `${here.at("b")}/sessions/chat-a/log.jsonl`;
  const sound = await Deno.readFile(log);
  const attempt = async () => {
    const work = restore({ directory: here.at("b"), paths: homePaths(here.at("new")) });
    return (await assertRejects(() => work, DamagedBackup) as Error).message;
  };
  await Deno.writeFile(log, sound.with(3, sound[3] ^ 1));
  assertStringIncludes(
    await attempt(),
    "sessions/chat-a/log.jsonl has another SHA-256 than the manifest names",
  );
  await Deno.writeFile(log, sound.subarray(1));
  assertStringIncludes(await attempt(), `has ${sound.length - 1} bytes, wanted ${sound.length}`);
  await Deno.remove(log);
  assertStringIncludes(await attempt(), "sessions/chat-a/log.jsonl is missing");
  await Deno.symlink(here.paths.loopdToml, log);
  assertStringIncludes(await attempt(), "is no regular file");
  assertEquals((await Array.fromAsync(Deno.readDir(here.at("")))).map(({ name }) => name), ["b"]);
  await Deno.remove(log);
  await Deno.writeFile(log, sound);
  await restore({ directory: here.at("b"), paths: homePaths(here.at("new")) });
});

Deno.test("a manifest of a newer format, in itself or in what it holds, is refused by name; one that names a file elsewhere, too", async () => {
  await using here = await place();
  await here.backUp("b");
  const path = `${here.at("b")}/manifest.json`;
  const sound = JSON.parse(await Deno.readTextFile(path));
  const refusal = async (manifest: unknown) => {
    await Deno.writeTextFile(path, JSON.stringify(manifest));
    return await faultOf(loadManifest(here.at("b")));
  };
  const newer = "format version 2 is newer than this Boxmaker reads (1)";
  assertEquals(await refusal({ ...sound, v: 2, more: [] }), `${path}: ${newer}; use the newer one`);
  assertEquals(
    await refusal({ ...sound, formats: { ...sound.formats, session: 2 } }),
    `${path}: formats.session: ${newer}; use the newer one`,
  );
  assertStringIncludes(
    await refusal({ ...sound, formats: { soul: 1 } }),
    "formats.soul: format version 1 is newer",
  );
  for (const name of ["../x", "/etc/x", "a/../../x", "memory/..", "a//b", ".", "a\nb", ""]) {
    const files = [{ ...sound.files[0], path: name }];
    assertEquals([name, await refusal({ ...sound, files })], [
      name,
      `${path}: files.0.path: is no manifest of a backup`,
    ]);
  }
  assertStringIncludes(await refusal([]), "is no manifest of a backup");
  await Deno.writeTextFile(path, JSON.stringify(sound));
  assertEquals((await loadManifest(here.at("b"))).v, 1);
  await Deno.remove(path);
  assertStringIncludes(await faultOf(loadManifest(here.at("b"))), "holds no manifest.json");
});

Deno.test("the copy of a log that does not verify says so, and so does its restore", async () => {
  await using here = await place();
  for (const call of [1, 2, 3]) await record(here.audit, "chat-a", call);
  const path = `${here.paths.audit}/audit-000001.jsonl`;
  await Deno.writeTextFile(path, (await Deno.readTextFile(path)).replace("nº 2", "nº 7"));
  const { manifest } = await here.backUp("b");
  assertEquals(manifest.audit?.exit, 10);
  const { audit } = await restore({ directory: here.at("b"), paths: homePaths(here.at("new")) });
  assertEquals(audit?.exit, 10);
});
