// The one writer of the audit log: durability, group commit, segments, repair, and what it does when it cannot write.

import { assert, assertEquals, assertRejects, assertStringIncludes, assertThrows } from "@std/assert";
import { AuditUnavailable, type SegmentFile } from "../../../brokerd/audit_log.ts";
import { UsageError } from "../../../core/errors.ts";
import { type AuditRecord, auditRecordSchema } from "../../../core/audit/record.ts";
import { listSegments } from "../../../core/audit/segments.ts";
import { verifyAudit } from "../../../core/audit/verify.ts";
import { auditFolder, denial, writtenFolder } from "../../support/audit_folder.ts";
import { readRecords } from "../../support/broker_rig.ts";
import { fakeClock } from "../../support/fake_clock.ts";

Deno.test("B8 each segment opens with a ledger record, seq and prev go on, files are 0600 in 0700", async () => {
  await using folder = await writtenFolder(30, { segmentBytesMax: 2_000 });
  const segments = await listSegments(folder.dir);
  assertEquals(
    segments.map(({ name }) => name).slice(0, 2),
    ["audit-000001.jsonl", "audit-000002.jsonl"],
  );
  const kinds: string[] = [];
  for (const { path } of segments) {
    kinds.push(JSON.parse((await Deno.readTextFile(path)).split("\n")[0]).kind);
    assertEquals((await Deno.stat(path)).mode! & 0o777, 0o600);
  }
  assertEquals(new Set(kinds), new Set(["ledger"]));
  assertEquals((await Deno.stat(folder.dir)).mode! & 0o777, 0o700);
  const records = await readRecords(folder.dir);
  assertEquals(records.map(({ seq }) => seq), records.map((_, at) => at + 1));
  assertEquals(records[0].prev, "0".repeat(64));
});

Deno.test("64 callers that commit at once share one fsync, and none resolves before it", async () => {
  await using folder = await auditFolder();
  const syncs: PromiseWithResolvers<void>[] = [];
  const { log } = await folder.open({ openFile: gated(syncs) });
  const before = syncs.length;
  let done = 0;
  const commits = Array.from({ length: 64 }, (_, n) => {
    log.append(denial("chat-a", n + 1));
    return log.commit().then(() => done++);
  });
  await turns();
  assertEquals([syncs.length - before, done], [1, 0]);
  // Who comes while the disk works goes with the next one.
  log.append(denial("chat-b", 1));
  const late = log.commit();
  await turns();
  assertEquals([syncs.length - before, done], [1, 0]);
  syncs[before].resolve();
  await Promise.all(commits);
  await turns();
  assertEquals([syncs.length - before, done], [2, 64]);
  syncs[before + 1].resolve();
  await late;
  syncs.push = ((gate: PromiseWithResolvers<void>) => (gate.resolve(), 0)) as typeof syncs.push;
  await log.close();
  assertEquals((await verifyAudit(folder.dir)).exit, 0);

  // The openings of the segment and of head.json pass; after those each sync waits for the test.
  function gated(gates: PromiseWithResolvers<void>[]) {
    return (path: string, options: Deno.OpenOptions): SegmentFile => {
      const file = Deno.openSync(path, options);
      let opening = true;
      return {
        writeSync: (bytes) => file.writeSync(bytes),
        close: () => file.close(),
        async syncData() {
          if (!opening) {
            const gate = Promise.withResolvers<void>();
            gates.push(gate);
            await gate.promise;
          }
          opening = false;
          await file.syncData();
        },
      };
    };
  }
});

Deno.test("a failed write and a failed fsync each deny everything until a new start, and no head leads the log", async () => {
  for (const failing of ["write", "sync"] as const) {
    await using folder = await writtenFolder(2);
    let armed = false;
    const { log } = await folder.open({
      openFile: (path, options) => {
        const file = Deno.openSync(path, options);
        const refuse = (what: string) => {
          if (armed && what === failing) throw new Error("No space left on device (os error 28)");
        };
        return {
          writeSync(bytes) {
            refuse("write");
            return file.writeSync(bytes);
          },
          async syncData() {
            refuse("sync");
            await file.syncData();
          },
          close: () => file.close(),
        };
      },
    });
    armed = true;
    log.append(denial("chat-a", 3));
    await assertRejects(() => log.commit(), AuditUnavailable, "cannot be written");
    armed = false;
    assertThrows(() => log.append(denial("chat-a", 4)), AuditUnavailable);
    await assertRejects(() => log.commit(), AuditUnavailable);
    await log.close();
    assert([0, 12].includes((await verifyAudit(folder.dir)).exit));
    const again = await folder.open();
    assertEquals(again.log.failure, undefined);
    again.log.append(denial("chat-a", 5));
    await again.log.close();
    assertEquals((await verifyAudit(folder.dir)).exit, 0);
  }
});

Deno.test("B8 F28 a last line torn at any byte is cut and recorded at start, and the log is sound again", async () => {
  await using folder = await writtenFolder(2);
  const whole = await Deno.readFile((await listSegments(folder.dir))[0].path);
  const headFile = await Deno.readTextFile(`${folder.dir}/head.json`);
  const lines = await folder.lines();
  const lastBytes = new TextEncoder().encode(lines[lines.length - 1]).length + 1;
  for (let kept = 1; kept < lastBytes; kept++) {
    await folder.rewrite(() => whole.slice(0, whole.length - lastBytes + kept));
    await Deno.writeTextFile(`${folder.dir}/head.json`, headFile);
    const { log } = await folder.open();
    assertEquals([kept, log.failure], [kept, undefined]);
    await log.close();
    const recovery = lastRecord(await folder.lines());
    assert(recovery.kind === "recovery");
    assertEquals([recovery.cutBytes, recovery.headNamedIt], [kept, true]);
    assertEquals((await verifyAudit(folder.dir)).exit, 0);
  }
  // Untorn, nothing is cut.
  await folder.rewrite(() => whole);
  await Deno.writeTextFile(`${folder.dir}/head.json`, headFile);
  const { log } = await folder.open();
  await log.close();
  assertEquals(await folder.lines(), lines);
});

Deno.test("a crash inside the birth of a segment leaves the log as it was, and a segment cut to nothing is dropped and recorded", async () => {
  await using folder = await writtenFolder(30, { segmentBytesMax: 2_000 });
  const segments = await listSegments(folder.dir);
  const last = segments[segments.length - 1];
  await Deno.writeTextFile(`${folder.dir}/audit-999999.jsonl.tmp`, '{"v":1,"seq":');
  const { log } = await folder.open({ segmentBytesMax: 2_000 });
  assertEquals(log.failure, undefined);
  await log.close();
  assertEquals((await verifyAudit(folder.dir)).exit, 0);

  await Deno.remove(`${folder.dir}/head.json`);
  await Deno.writeTextFile(last.path, '{"v":1');
  const again = await folder.open({ segmentBytesMax: 2_000 });
  assertEquals(again.log.failure, undefined);
  assert(again.fold.isDecided("chat-a" as never, 20));
  await again.log.close();
  assertEquals((await verifyAudit(folder.dir)).exit, 0);
  assertEquals((await readRecords(folder.dir)).filter(({ kind }) => kind === "recovery").length, 1);
});

Deno.test("a log that does not verify, was cut short or rolled back is opened denying, and not written to", async () => {
  const damages: [string, (folder: Awaited<ReturnType<typeof writtenFolder>>) => Promise<void>][] = [
    ["does not verify", (folder) => folder.rewrite((bytes) => flip(bytes, bytes.length - 600))],
    ["cut short", async (folder) => {
      const lines = await folder.lines();
      await folder.rewrite(() => lines.slice(0, -1).map((line) => `${line}\n`).join(""));
    }],
    ["rolled back", async (folder) => {
      const { seq } = JSON.parse(await Deno.readTextFile(`${folder.dir}/head.json`));
      await Deno.writeTextFile(`${folder.dir}/head.json`, JSON.stringify({ seq, hash: "1".repeat(64) }));
    }],
    ["names no head", (folder) => Deno.writeTextFile(`${folder.dir}/head.json`, "")],
    ["cut short", async (folder) => {
      for (const { path } of await listSegments(folder.dir)) await Deno.remove(path);
    }],
  ];
  for (const [reason, damage] of damages) {
    await using folder = await writtenFolder(5);
    await damage(folder);
    const before = await files(folder.dir);
    const { log } = await folder.open();
    assertStringIncludes(log.failure ?? "", reason);
    assertThrows(() => log.append(denial("chat-a", 9)), AuditUnavailable);
    await log.close();
    assertEquals(await files(folder.dir), before);
  }
});

Deno.test("one writer: a second one is refused while the first holds the folder, and accepted after", async () => {
  await using folder = await auditFolder();
  const { log } = await folder.open();
  await assertRejects(() => folder.open(), UsageError, "another brokerd holds the audit log");
  await log.close();
  await (await folder.open()).log.close();
});

Deno.test("head.json lags by a bounded time, never leads, and is exact after a close", async () => {
  await using folder = await auditFolder();
  const clock = fakeClock();
  const { log } = await folder.open({ clock });
  const head = async () => JSON.parse(await Deno.readTextFile(`${folder.dir}/head.json`));
  assertEquals((await head()).seq, 1);
  log.append(denial("chat-a", 1));
  await log.commit();
  assertEquals((await head()).seq, 1);
  await clock.advance(250);
  while ((await head()).seq < 2);
  assertEquals(await head(), log.head);
  for (let call = 2; call <= 300; call++) log.append(denial("chat-a", call));
  await log.commit();
  while ((await head()).seq < 301);
  log.append(denial("chat-a", 301));
  await log.close();
  assertEquals((await head()).seq, 302);
  assertEquals(clock.pending, 0);
});

Deno.test("start reads the last segment alone: an older one that is damaged does not stop it, and verify names it", async () => {
  await using folder = await writtenFolder(30, { segmentBytesMax: 2_000 });
  const [first] = await listSegments(folder.dir);
  await Deno.writeFile(first.path, flip(await Deno.readFile(first.path), 700));
  const { log, fold } = await folder.open();
  assertEquals(log.failure, undefined);
  assert(fold.isDecided("chat-a" as never, 1));
  await log.close();
  assertEquals((await verifyAudit(folder.dir)).exit, 10);
});

function lastRecord(lines: readonly string[]): AuditRecord {
  return auditRecordSchema.parse(JSON.parse(lines[lines.length - 1]));
}

function flip(bytes: Uint8Array, at: number): Uint8Array {
  const flipped = bytes.slice();
  flipped[at] ^= 1;
  return flipped;
}

async function files(dir: string): Promise<[string, string][]> {
  const found: [string, string][] = [];
  for await (const { name } of Deno.readDir(dir)) {
    found.push([name, await Deno.readTextFile(`${dir}/${name}`)]);
  }
  return found.sort();
}

async function turns(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await Promise.resolve();
}
