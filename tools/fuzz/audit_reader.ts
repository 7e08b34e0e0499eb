// Fuzzes what reads an audit log: verification, the stream of records and the newest page, on folders that are spoilt in their bytes, their
// names and their order. No reader may throw or linger, and nothing that was altered may be called sound.

import { Buffer } from "node:buffer";
import { join } from "node:path";
import { encodeRecord, sha256 } from "../../core/audit/chain.ts";
import { readAudit, readAuditPage } from "../../core/audit/read.ts";
import type { AuditHead, NewAuditRecord } from "../../core/audit/record.ts";
import { segmentAt } from "../../core/audit/segments.ts";
import { verifyAudit } from "../../core/audit/verify.ts";
import { parseSessionId } from "../../core/ids.ts";
import type { Findings } from "./findings.ts";
import { type Random, spoil } from "./random.ts";

/** One folder has some dozens of lines: whoever takes this long over it goes in circles. */
const readMsMax = 5_000;
const segmentsMax = 4;
const recordsPerSegmentMax = 12;

type Files = Map<string, Uint8Array<ArrayBuffer>>;

export async function fuzzAuditReader(
  { random, findings, over }: { random: Random; findings: Findings; over: () => boolean },
): Promise<void> {
  const dir = await Deno.makeTempDir({ prefix: "bx-fuzz-audit-" });
  try {
    while (!over()) {
      const sound = writeLog(random);
      const spoilt = random.chance(10) ? sound : spoilFolder(sound, random);
      for await (const { name } of Deno.readDir(dir)) await Deno.remove(join(dir, name));
      for (const [name, bytes] of spoilt) await Deno.writeFile(join(dir, name), bytes);
      await readAll(dir, { sound, spoilt, findings, head: headOf(sound) });
    }
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
}

async function readAll(
  dir: string,
  { sound, spoilt, findings, head }: { sound: Files; spoilt: Files; findings: Findings; head: AuditHead },
): Promise<void> {
  const shown = describe(spoilt);
  const began = performance.now();
  try {
    const { exit, last } = await verifyAudit(dir);
    findings.count(`audit folders: exit ${exit}`);
    if (exit === 0 && !isBeginning(sound, spoilt)) findings.add("an altered log was called sound", shown);
    if (same(sound, spoilt) && exit !== 0) findings.add(`a sound log was called exit ${exit}`, shown);
    // A head that was kept elsewhere vouches for every byte up to it.
    const kept = await verifyAudit(dir, { head });
    if (kept.exit === 0 && !sameLog(sound, spoilt)) {
      findings.add("an altered log was called sound against a head kept elsewhere", shown);
    }
    let lines = 0;
    for await (const _ of readAudit(dir)) lines++;
    const page = await readAuditPage(dir, { matches: () => true, recordsMax: 7, bytesMax: 10_000 });
    if (page.records.length > 7) findings.add("a page over its bound", shown);
    if (exit === 0 && last !== undefined && lines < last.seq - 1 && !isPruned(spoilt)) {
      findings.add(`of ${last.seq} records ${lines} were shown`, shown);
    }
  } catch (error) {
    findings.add(`an audit reader threw ${error}`, shown);
  }
  if (performance.now() - began > readMsMax) findings.addLate("an audit reader lingered", shown, began);
}

/** A sound log of some segments with its head. */
function writeLog(random: Random): Files {
  const files: Files = new Map();
  let head: AuditHead | undefined;
  for (let number = 1 + random.below(segmentsMax), at = 1; at <= number; at++) {
    const lines: Uint8Array[] = [];
    const append = (fields: NewAuditRecord) => {
      const time = new Date(Date.UTC(2026, 11, 1, 12, 0, random.below(60))).toISOString();
      const { bytes, record, hash } = encodeRecord(fields, { head, time });
      head = { seq: record.seq, hash };
      lines.push(bytes);
    };
    append({ kind: "ledger", part: 1, parts: 1, sessions: [], open: [], spent: [] });
    for (let records = random.below(recordsPerSegmentMax); records > 0; records--) append(anyRecord(random));
    files.set(segmentAt("", at).name, concat(lines));
  }
  files.set("head.json", new TextEncoder().encode(`${JSON.stringify(head)}\n`));
  return files;
}

function anyRecord(random: Random): NewAuditRecord {
  const session = parseSessionId(random.pick(["chat-a", "sub-chat-a-1", "job-b"]));
  const label = { class: "private", untrusted: random.chance(2) } as const;
  const body = JSON.stringify({ question: random.text(80) });
  const call = { session, call: 1 + random.below(1_000), tool: "consult", label } as const;
  return random.pick<NewAuditRecord>([
    { kind: "label", session, label },
    { kind: "intent", ...call, grant: 1, body, bodySha256: sha256(body) },
    { kind: "decision", ...call, verdict: "deny", code: "NoGrant", body, bodySha256: sha256(body) },
    { kind: "start", pid: random.below(100_000) },
    { kind: "retire", session },
  ]);
}

function spoilFolder(sound: Files, random: Random): Files {
  const files: Files = new Map(sound);
  const names = [...files.keys()];
  const name = random.pick(names);
  const bytes = files.get(name)!;
  switch (random.below(9)) {
    case 0:
      files.delete(name);
      break;
    case 1: {
      const other = random.pick(names);
      files.set(name, files.get(other)!);
      files.set(other, bytes);
      break;
    }
    case 2:
      files.set(name, bytes.slice(0, random.below(bytes.length + 1)));
      break;
    case 3: {
      const lines = linesOf(bytes);
      const [from, to] = [random.below(lines.length), random.below(lines.length)];
      [lines[from], lines[to]] = [lines[to], lines[from]];
      files.set(name, concat(lines));
      break;
    }
    case 4: {
      const lines = linesOf(bytes);
      lines.splice(random.below(lines.length), 1);
      files.set(name, concat(lines));
      break;
    }
    case 5:
      files.set(`audit-${String(random.below(12)).padStart(6, "0")}.jsonl`, spoil(bytes, random));
      break;
    case 6:
      files.delete("head.json");
      files.set(name === "head.json" ? names[0] : name, spoil(bytes, random));
      break;
    default:
      files.set(name, spoil(bytes, random));
  }
  return files;
}

function headOf(files: Files): AuditHead {
  return JSON.parse(new TextDecoder().decode(files.get("head.json")));
}

/** All segments as one text, in the order of their names. */
function logText(files: Files): string {
  return [...files].filter(([name]) => /^audit-\d{6,}\.jsonl$/.test(name))
    .sort(([a], [b]) => numberOf(a) - numberOf(b)).map(([, bytes]) => latin1(bytes)).join("");
}

function numberOf(name: string): number {
  return Number(/\d+/.exec(name)?.[0]);
}

// Whole lines of the sound log, none left out before them. Without its head.json a log may lack its end, and its last line is vouched for
// by nothing: docs/threats.md says so.
function isBeginning(sound: Files, spoilt: Files): boolean {
  if (sameLog(sound, spoilt)) return true;
  if (spoilt.has("head.json")) return logText(sound).startsWith(logText(spoilt)) && headFits(spoilt);
  const lines = logText(spoilt).split("\n").slice(0, -1);
  const before = lines.slice(0, -1).map((line) => `${line}\n`).join("");
  return logText(sound).startsWith(before);
}

/** The head names a record that is there: then nothing is missing that it knew. */
function headFits(files: Files): boolean {
  const { seq } = headOf(files);
  return logText(files).split("\n").slice(0, -1).length >= seq;
}

function sameLog(sound: Files, spoilt: Files): boolean {
  return logText(sound) === logText(spoilt);
}

function same(sound: Files, spoilt: Files): boolean {
  return sameLog(sound, spoilt) && spoilt.has("head.json") &&
    latin1(spoilt.get("head.json")!) === latin1(sound.get("head.json")!);
}

function isPruned(files: Files): boolean {
  return !files.has("audit-000001.jsonl");
}

function describe(files: Files): string {
  return [...files].map(([name, bytes]) => `${name} (${bytes.length}): ${latin1(bytes).slice(0, 120)}`).join(
    " | ",
  );
}

function linesOf(bytes: Uint8Array): Uint8Array[] {
  return latin1(bytes).split(/(?<=\n)/).map((line) => new Uint8Array(Buffer.from(line, "latin1")));
}

function latin1(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("latin1");
}

function concat(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
