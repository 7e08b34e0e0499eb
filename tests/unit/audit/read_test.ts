// The log as it is read: filtered forwards, and in pages from the end.

import { assertEquals } from "@std/assert";
import { readAudit, readAuditPage } from "../../../core/audit/read.ts";
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
