// Audit logs of any length, written with the product's own encoder and in its own form: segments that open with a ledger, one chain, a head.

import { join } from "node:path";
import { encodeRecord } from "../../core/audit/chain.ts";
import type { AuditHead, NewAuditRecord } from "../../core/audit/record.ts";
import { segmentAt } from "../../core/audit/segments.ts";
import { sha256 } from "../../core/audit/chain.ts";
import { auditSegmentBytesMax } from "../../core/limits.ts";
import type { SessionId } from "../../core/ids.ts";

const sessions = Array.from({ length: 100 }, (_, index) => `chat-gen${index}` as SessionId);
const label = { class: "private", untrusted: false } as const;
const flushBytes = 4 * 1_048_576;

export interface GeneratedLog {
  readonly bytes: number;
  readonly segments: number;
}

/** `records` denied consults in an empty audit folder; `lastSegmentRecords` of them open a segment of their own. */
export async function writeAuditLog(
  dir: string,
  records: number,
  { lastSegmentRecords = 0 } = {},
): Promise<GeneratedLog> {
  const body = JSON.stringify({
    model: "big",
    messages: [{ role: "user", content: "What is 2+2, one word." }],
    temperature: 0.6,
  });
  const bodySha256 = sha256(body);
  const started = Date.parse("2026-12-01T00:00:00Z");
  let head: AuditHead | undefined;
  let total = 0;
  let segment = 0;
  let segmentBytes = 0;
  let file: Deno.FsFile | undefined;
  let pending: Uint8Array[] = [];
  let pendingBytes = 0;

  const flush = async () => {
    for (const bytes of pending) {
      for (let at = 0; at < bytes.length;) at += await file!.write(bytes.subarray(at));
    }
    pending = [];
    pendingBytes = 0;
  };
  const write = async (record: NewAuditRecord, seq: number) => {
    const encoded = encodeRecord(record, { head, time: new Date(started + seq).toISOString() });
    head = { seq: encoded.record.seq, hash: encoded.hash };
    pending.push(encoded.bytes);
    pendingBytes += encoded.bytes.length;
    segmentBytes += encoded.bytes.length;
    total += encoded.bytes.length;
    if (pendingBytes > flushBytes) await flush();
  };
  const begin = async (calls: number) => {
    await flush();
    file?.close();
    segmentBytes = 0;
    file = await Deno.open(segmentAt(dir, ++segment).path, { write: true, createNew: true, mode: 0o600 });
    const decided = Math.floor(calls / sessions.length);
    await write({
      kind: "ledger",
      part: 1,
      parts: 1,
      sessions: calls === 0
        ? []
        : sessions.map((session) => ({ session, label, calls: [[1, Math.max(1, decided)]] })),
      open: [],
      spent: [],
    }, calls);
  };
  await begin(0);
  for (const session of sessions) await write({ kind: "label", session, label }, 0);
  for (let call = 0; call < records; call++) {
    const isLast = lastSegmentRecords > 0 && call > 0 && call === records - lastSegmentRecords;
    if (isLast || segmentBytes > auditSegmentBytesMax - 2_048) await begin(call);
    await write({
      kind: "decision",
      session: sessions[call % sessions.length],
      call: Math.floor(call / sessions.length) + 1,
      tool: "consult",
      label,
      verdict: "deny",
      code: "NoGrant",
      body,
      bodySha256,
      reason: "lacks a grant for consult",
    }, call);
  }
  await flush();
  file?.close();
  await Deno.writeTextFile(join(dir, "head.json"), `${JSON.stringify(head)}\n`, { mode: 0o600 });
  return { bytes: total, segments: segment };
}
