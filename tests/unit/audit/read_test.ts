// The log as it is read: filtered forwards, and in pages from the end.

import { assert, assertEquals } from "@std/assert";
import type { Envelope } from "../../../core/audit/line.ts";
import { readAudit, readAuditPage } from "../../../core/audit/read.ts";
import { auditLineBytesMax } from "../../../core/limits.ts";
import { readLinesBackwards } from "../../../core/read_lines.ts";
import { type AuditFolder, auditFolder, denial, writtenFolder } from "../../support/audit_folder.ts";

const all = () => true;

async function seqs(folder: AuditFolder, options: Partial<Parameters<typeof readAuditPage>[1]>) {
  const page = await readAuditPage(folder.dir, { matches: all, recordsMax: 100, bytesMax: 1e9, ...options });
  return { seqs: page.records.map(({ seq }) => seq), before: page.before };
}

Deno.test("a page holds the newest records that match, newest last, across segments, and says where to go on", async () => {
  await using folder = await writtenFolder(30, { segmentBytesMax: 2_000 });
  const everything = (await seqs(folder, {})).seqs;
  assertEquals(everything, everything.map((_, at) => at + 1));
  const last = everything.length;
  assertEquals(await seqs(folder, { recordsMax: 3 }), { seqs: [last - 2, last - 1, last], before: last - 2 });
  assertEquals(await seqs(folder, { recordsMax: 2, before: 3 }), { seqs: [1, 2], before: undefined });
  assertEquals(await seqs(folder, { before: 1 }), { seqs: [], before: undefined });
  const calls = (await readAuditPage(folder.dir, {
    matches: (record) => record.kind === "decision" && Number(record.call) % 10 === 0,
    recordsMax: 2,
    bytesMax: 1e9,
  })).records.map(({ call }) => call);
  assertEquals(calls, [20, 30]);
});

Deno.test("a page keeps its bound in bytes, and always holds one record", async () => {
  await using folder = await writtenFolder(10);
  const lines = await folder.lines();
  const bytes = lines.slice(-3).reduce((sum, line) => sum + new TextEncoder().encode(line).length + 1, 0);
  assertEquals((await seqs(folder, { bytesMax: bytes })).seqs, [9, 10, 11]);
  assertEquals((await seqs(folder, { bytesMax: bytes - 1 })).seqs, [10, 11]);
  assertEquals((await seqs(folder, { bytesMax: 1 })).seqs, [11]);
});

Deno.test("reading forwards filters by session, tool and time, and passes on what it cannot read with its place", async () => {
  await using folder = await auditFolder();
  const { log } = await folder.open();
  log.append(denial("chat-a", 1));
  log.append(denial("chat-b", 1));
  log.append(denial("chat-a", 2));
  await log.close();
  const read = async (filter: Parameters<typeof readAudit>[1]) => {
    const found: unknown[] = [];
    for await (const line of readAudit(folder.dir, filter)) {
      found.push("record" in line ? line.record.seq : line.unreadable.offset);
    }
    return found;
  };
  assertEquals(await read({}), [1, 2, 3, 4]);
  assertEquals(await read({ session: "chat-a" }), [2, 4]);
  assertEquals(await read({ tool: "consult", session: "chat-b" }), [3]);
  assertEquals(await read({ tool: "other" }), []);
  assertEquals(await read({ since: "2026-12-01T12:00:00.000Z" }), [1, 2, 3, 4]);
  assertEquals(await read({ since: "2026-12-01T12:00:00.001Z" }), []);
  const lines = await folder.lines();
  await folder.rewrite(() => `${lines[0]}\nno record\n${lines[2]}\n{"torn`);
  const first = new TextEncoder().encode(lines[0]).length + 1;
  const torn = first + "no record\n".length + new TextEncoder().encode(lines[2]).length + 1;
  assertEquals(await read({}), [1, first, 3, torn]);
});

Deno.test("a page stops where it has walked its bound, and the next one goes on from there", async () => {
  await using folder = await auditFolder();
  const { log } = await folder.open({ segmentBytesMax: 4_000 });
  log.append(denial("chat-rare", 1));
  for (let call = 1; call <= 40; call++) log.append(denial("chat-a", call));
  await log.close();
  const rare = {
    matches: (record: Envelope) => record.session === "chat-rare",
    holding: ['"session":"chat-rare"'],
  };
  const pages: { seqs: number[]; before: number | undefined }[] = [];
  for (let before: number | undefined = Infinity; before !== undefined;) {
    const page = await seqs(folder, { ...rare, before, scanBytesMax: 3_000 });
    pages.push(page);
    before = page.before;
  }
  assertEquals(pages.flatMap((page) => page.seqs), [2]);
  assert(pages.length > 3);
  assertEquals((await seqs(folder, rare)).seqs, [2]);
});

Deno.test("a segment reads the same backwards as forwards, whatever the lengths of its lines, its torn end left out", async () => {
  const dir = await Deno.makeTempDir();
  try {
    const path = `${dir}/lines`;
    const mebibyte = 1_048_576;
    const cases = [
      [],
      [1],
      [1, 1, 1],
      [mebibyte],
      [mebibyte, mebibyte],
      [mebibyte - 1, 1, mebibyte + 1, 2],
      [5, 3 * mebibyte + 7, 5],
      [5, 4 * mebibyte, 5],
      [1, 2 * mebibyte, mebibyte - 1, 1],
    ];
    for (const lengths of cases) {
      for (const torn of ["", "torn", "t".repeat(mebibyte + 3)]) {
        const lines = lengths.map((length, at) => `${String.fromCharCode(97 + at).repeat(length - 1)}\n`);
        await Deno.writeTextFile(path, lines.join("") + torn);
        const read: string[] = [];
        for await (const { lines: some } of readLinesBackwards(path, auditLineBytesMax)) {
          read.push(...some.map((line) => line.toString()));
        }
        assert(
          read.length === lines.length && read.every((line, at) => line === lines[lines.length - 1 - at]),
        );
      }
    }
    await Deno.writeTextFile(
      path,
      `a\n${"b".repeat(auditLineBytesMax)}\nc\n${"d".repeat(auditLineBytesMax - 1)}\n`,
    );
    const kept: number[] = [];
    for await (const { lines: some } of readLinesBackwards(path, auditLineBytesMax)) {
      kept.push(...some.map((line) => line.length));
    }
    assertEquals(kept, [auditLineBytesMax, 2, 2]);
    // Of stretches without what is looked for one line each is given; no line that holds it is left out.
    const many = Array.from(
      { length: 30 },
      (_, at) => `${at} ${at % 10 === 0 ? "rare" : "x"}${"y".repeat(200_000)}\n`,
    );
    await Deno.writeTextFile(path, many.join(""));
    const found: string[] = [];
    let given = 0;
    for await (const { lines: some } of readLinesBackwards(path, auditLineBytesMax, ["rare"])) {
      given += some.length;
      found.push(
        ...some.map((line) => line.toString().slice(0, 7)).filter((start) => start.includes("rare")),
      );
    }
    assertEquals(found, ["20 rare", "10 rare", "0 rarey"]);
    assert(given < many.length);
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
});
