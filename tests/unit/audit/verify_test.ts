// `bx audit verify` as a function: each kind of damage has its own exit code, and the nearest undamaged log is sound.

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { verifyAudit } from "../../../core/audit/verify.ts";
import { sha256 } from "../../../core/audit/chain.ts";
import { listSegments } from "../../../core/audit/segments.ts";
import { auditFolder, denial, writtenFolder } from "../../support/audit_folder.ts";

const exitOf = async (dir: string) => (await verifyAudit(dir)).exit;

Deno.test("B8 F28 a log as it was written is sound, alone, over segments, and copied elsewhere without its head", async () => {
  await using one = await writtenFolder(5);
  const verdict = await verifyAudit(one.dir);
  assertEquals([verdict.exit, verdict.records, verdict.firstSeq, verdict.last?.seq], [0, 6, 1, 6]);
  assertEquals(verdict.notes, []);

  await using many = await writtenFolder(30, { segmentBytesMax: 2_000 });
  assert((await listSegments(many.dir)).length > 5);
  assertEquals(await exitOf(many.dir), 0);

  const copy = await Deno.makeTempDir();
  try {
    for (const { path, name } of await listSegments(many.dir)) await Deno.copyFile(path, `${copy}/${name}`);
    const copied = await verifyAudit(copy);
    assertEquals(copied.exit, 0);
    assertStringIncludes(copied.notes.join(), "no head.json");
  } finally {
    await Deno.remove(copy, { recursive: true });
  }
});

Deno.test("F28 any one byte flipped is noticed, and the first line that does not fit is named", async () => {
  await using folder = await writtenFolder(3);
  const path = (await listSegments(folder.dir))[0].path;
  const sound = await Deno.readFile(path);
  const starts = [0, ...[...sound.keys()].filter((at) => sound[at - 1] === 0x0a)];
  for (let at = 0; at < sound.length; at++) {
    const flipped = sound.slice();
    flipped[at] ^= 0x01;
    await Deno.writeFile(path, flipped);
    const { exit, firstBadSeq } = await verifyAudit(folder.dir);
    const line = starts.filter((start) => start <= at).length;
    if (at === sound.length - 1) {
      // The last newline: the line has no end any more.
      assertEquals([at, exit], [at, 12]);
    } else if (exit === 11) {
      // In the last line only, which nothing but the head vouches for.
      assertEquals(line, starts.length);
    } else {
      assertEquals([at, exit], [at, 10]);
      assert(firstBadSeq === line || firstBadSeq === line + 1, `byte ${at} of line ${line}: ${firstBadSeq}`);
    }
  }
  await Deno.writeFile(path, sound);
  assertEquals(await exitOf(folder.dir), 0);
});

Deno.test("F28 a changed body, a dropped row and two swapped rows are exit 10 with the first bad seq", async () => {
  await using folder = await writtenFolder(5);
  const lines = await folder.lines();
  const put = async (changed: string[]) => {
    await folder.rewrite(() => changed.map((line) => `${line}\n`).join(""));
    const { exit, firstBadSeq } = await verifyAudit(folder.dir);
    return [exit, firstBadSeq];
  };
  // Seq 3 is the second decision: its own line shows it, by bodySha256.
  assertEquals(await put(lines.map((line, at) => at === 2 ? line.replace("nº 2", "nº 7") : line)), [10, 3]);
  // A changed time shows in the prev of the line after.
  assertEquals(await put(lines.map((line, at) => at === 2 ? line.replace(".000Z", ".001Z") : line)), [10, 4]);
  assertEquals(await put(lines.filter((_, at) => at !== 3)), [10, 4]);
  assertEquals(await put([lines[0], lines[1], lines[3], lines[2], lines[4], lines[5]]), [10, 3]);
  assertEquals(await put(lines.slice(1)), [10, 1]);
  assertEquals(await put([...lines.slice(0, 2), "", ...lines.slice(2)]), [10, 3]);
  assertEquals(await put(lines), [0, undefined]);
});

Deno.test("F28 a missing or shortened segment in the middle is exit 10 at the seq that is missing", async () => {
  await using folder = await writtenFolder(30, { segmentBytesMax: 2_000 });
  const [first, second] = await listSegments(folder.dir);
  const bytes = await Deno.readFile(second.path);
  const kept = (await Deno.readTextFile(first.path)).split("\n").length - 1;
  await Deno.remove(second.path);
  assertEquals((await verifyAudit(folder.dir)).firstBadSeq, kept + 1);
  await Deno.writeFile(second.path, bytes.slice(0, -10));
  assertEquals(await exitOf(folder.dir), 10);
  await Deno.writeFile(second.path, bytes);
  assertEquals(await exitOf(folder.dir), 0);
});

Deno.test("F28 a tail cut off in whole lines is exit 11 against head.json, and against a head kept elsewhere", async () => {
  await using folder = await writtenFolder(5);
  const lines = await folder.lines();
  const sound = await verifyAudit(folder.dir);
  assert(sound.last !== undefined);
  await folder.rewrite(() => lines.slice(0, -1).map((line) => `${line}\n`).join(""));
  assertEquals(await exitOf(folder.dir), 11);

  await Deno.remove(`${folder.dir}/head.json`);
  assertEquals(await exitOf(folder.dir), 0);
  assertEquals((await verifyAudit(folder.dir, { head: sound.last })).exit, 11);
  assertEquals((await verifyAudit(folder.dir, { head: { seq: 6, hash: "0".repeat(64) } })).exit, 11);
});

Deno.test("F28 a log rolled back and written anew is sound by itself and exit 11 against a head kept elsewhere", async () => {
  await using folder = await writtenFolder(5);
  const kept = (await verifyAudit(folder.dir)).last;
  assert(kept !== undefined);
  await using other = await auditFolder();
  const { log } = await other.open();
  for (let call = 1; call <= 8; call++) log.append(denial("chat-b", call));
  await log.close();
  assertEquals(await exitOf(other.dir), 0);
  const verdict = await verifyAudit(other.dir, { head: kept });
  assertEquals(verdict.exit, 11);
  assertStringIncludes(verdict.text, "Rolled back");
  assertEquals((await verifyAudit(folder.dir, { head: kept })).exit, 0);
});

Deno.test("F28 a last line torn at any byte is exit 12 with or without head.json, and 11 against that line's head kept elsewhere", async () => {
  await using folder = await writtenFolder(2);
  const kept = (await verifyAudit(folder.dir)).last;
  const lines = await folder.lines();
  const whole = lines.map((line) => `${line}\n`).join("");
  const before = new TextEncoder().encode(lines.slice(0, -1).map((line) => `${line}\n`).join("")).length;
  const bytes = new TextEncoder().encode(whole);
  for (const cut of [1, 2, Math.floor((before + bytes.length) / 2) - before, bytes.length - before - 1]) {
    await folder.rewrite(() => bytes.slice(0, before + cut));
    const verdict = await verifyAudit(folder.dir);
    assertEquals([cut, verdict.exit], [cut, 12]);
    assertStringIncludes(verdict.notes.join(), "it had been whole once");
    assertEquals((await verifyAudit(folder.dir, { head: kept })).exit, 11);
  }
  await Deno.remove(`${folder.dir}/head.json`);
  assertEquals(await exitOf(folder.dir), 12);
});

Deno.test("verification that cannot run is exit 20: no folder, no log, an unreadable head", async () => {
  await using folder = await writtenFolder(1);
  assertEquals(await exitOf(`${folder.dir}/nowhere`), 20);
  await Deno.writeTextFile(`${folder.dir}/head.json`, "{");
  assertEquals(await exitOf(folder.dir), 20);

  const empty = await Deno.makeTempDir();
  try {
    assertEquals(await exitOf(empty), 20);
    // Emptied, but for its head: cut short.
    await Deno.writeTextFile(`${empty}/head.json`, JSON.stringify({ seq: 3, hash: "0".repeat(64) }));
    assertEquals(await exitOf(empty), 11);
  } finally {
    await Deno.remove(empty, { recursive: true });
  }
});

Deno.test("a pruned log is verified from where it begins, and says so; without its prune record it is exit 10", async () => {
  await using folder = await writtenFolder(30, { segmentBytesMax: 2_000 });
  const { log } = await folder.open({ segmentBytesMax: 2_000 });
  const dropped = await log.prune("2027-01-01");
  await log.close();
  assert(dropped.length > 5);
  const verdict = await verifyAudit(folder.dir);
  assertEquals([verdict.exit, verdict.firstSeq], [0, dropped[dropped.length - 1].seq + 1]);
  assertStringIncludes(verdict.notes.join(), "Pruned");
  // A head kept elsewhere may be the last one dropped; of those before it nothing can be said.
  const [{ seq, hash }, last] = [dropped[0], dropped[dropped.length - 1]];
  assertEquals((await verifyAudit(folder.dir, { head: { seq: last.seq, hash: last.hash } })).exit, 0);
  assertEquals((await verifyAudit(folder.dir, { head: { seq: seq - 1, hash } })).exit, 20);

  await using other = await writtenFolder(30, { segmentBytesMax: 2_000 });
  await Deno.remove((await listSegments(other.dir))[0].path);
  assertEquals((await verifyAudit(other.dir)).firstBadSeq, 1);
  assertEquals(await exitOf(other.dir), 10);
});

Deno.test("verification reads and changes nothing, and finds files beside the log of no concern", async () => {
  await using folder = await writtenFolder(3);
  await Deno.writeTextFile(`${folder.dir}/launches.jsonl`, "not of the chain\n");
  await Deno.writeTextFile(`${folder.dir}/audit-000001.jsonl.bak`, "x");
  const before = await snapshot(folder.dir);
  assertEquals(await exitOf(folder.dir), 0);
  assertEquals(await snapshot(folder.dir), before);
});

async function snapshot(dir: string): Promise<[string, string, number | undefined][]> {
  const files: [string, string, number | undefined][] = [];
  for await (const { name } of Deno.readDir(dir)) {
    const path = `${dir}/${name}`;
    files.push([name, await Deno.readTextFile(path), (await Deno.stat(path)).mtime?.getTime()]);
  }
  return files.sort();
}

Deno.test("a log that a newer Boxmaker went on with is exit 20 by name, and one whose version number was changed is not taken for that", async () => {
  await using folder = await writtenFolder(4);
  const lines = await folder.lines();
  const newer = (line: string) => line.replace('"v":1', '"v":2');
  // As a later version writes: each line of the new format links the one before it.
  let prev = "";
  const written = lines.map((line, at) => {
    const next = at < 3 ? line : newer(line.replace(/"prev":"[0-9a-f]{64}"/, `"prev":"${prev}"`));
    prev = sha256(`${next}\n`);
    return next;
  });
  await folder.rewrite(() => written.map((line) => `${line}\n`).join(""));
  await Deno.writeTextFile(`${folder.dir}/head.json`, JSON.stringify({ seq: 5, hash: prev }));
  const verdict = await verifyAudit(folder.dir);
  assertEquals([verdict.exit, verdict.text], [
    20,
    "Could not run: from seq 4 on, the log has format version 2, newer than this Boxmaker reads (1); use the newer one.",
  ]);
  const { log } = await folder.open();
  assertStringIncludes(log.failure ?? "", "seq 4: format version 2 is newer than this Boxmaker reads (1)");
  await log.close();

  await folder.rewrite(() => lines.map((line, at) => `${at === 2 ? newer(line) : line}\n`).join(""));
  const changed = await verifyAudit(folder.dir);
  assertEquals([changed.exit, changed.firstBadSeq], [10, 4]);
  await folder.rewrite(() => lines.map((line) => `${line}\n`).join(""));
  await Deno.writeTextFile(
    `${folder.dir}/head.json`,
    JSON.stringify({ seq: 5, hash: sha256(`${lines[4]}\n`) }),
  );
  await folder.rewrite(() => lines.map((line, at) => `${at === 4 ? newer(line) : line}\n`).join(""));
  assertEquals(await exitOf(folder.dir), 11);
});
