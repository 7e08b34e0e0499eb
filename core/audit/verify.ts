// Whether an audit log is what was written: every line walked, every hash computed anew, the end held against the heads that are known.
// Needs the folder and nothing else: no role, no key, no network. Reads in bounded memory and changes nothing.
//
// What it can claim: with `head.json` alone, accident and lazy truncation show. Whoever can write the whole folder can rewrite it and
// its head; only a head that the owner wrote down elsewhere (`head`) shows that.

import { type CheckedLine, checkLine, type Envelope } from "./line.ts";
import { type AuditHead, auditRecordSchema, auditVersion, type RecordOf } from "./record.ts";
import { type Line, listSegments, readHeadFile, readLines, type Segment } from "./segments.ts";
import { firstPrev } from "./chain.ts";
import { delay, systemClock } from "../clock.ts";

export interface AuditVerdict {
  /** 0 sound, 10 altered, 11 cut short or rolled back, 12 torn last line, 20 could not run. */
  readonly exit: 0 | 10 | 11 | 12 | 20;
  /** For a person; one sentence each. */
  readonly text: string;
  readonly notes: readonly string[];
  /** Lines that fitted. */
  readonly records: number;
  /** First and last of those. */
  readonly firstSeq: number | undefined;
  readonly last: AuditHead | undefined;
  /** With exit 10: the first position whose line does not fit. */
  readonly firstBadSeq: number | undefined;
}

export interface VerifyOptions {
  /** What the owner wrote down elsewhere. */
  readonly head?: AuditHead;
}

/** A live log's last line may be seen half written; a line that does not grow in this time is torn. */
const tornGraceMs = 50;
const tornLooksMax = 20;

/**
 * Walks the log in `dir`. A missing `head.json` is no fault by itself (a folder may be copied without it) and is said in a note: the end
 * cannot be judged then. An empty folder is exit 20, since there is nothing whose soundness could be claimed; exit 11 if a head is known.
 */
export async function verifyAudit(dir: string, options: VerifyOptions = {}): Promise<AuditVerdict> {
  const walk = new Walk();
  try {
    // The head is read before the log: a log ahead of its head is normal, so a live one cannot look rolled back.
    const headFile = await readHeadFile(dir);
    if (headFile === "unreadable") return walk.verdict(20, "head.json is there and names no head");
    const heads = [
      { head: headFile, name: "head.json" },
      { head: options.head, name: "the head that was given" },
      // The head of an empty log, which every log goes on from, holds nothing against it.
    ].flatMap(({ head, name }) => head === undefined || head.seq === 0 ? [] : [{ head, name }]);
    if (headFile === undefined) {
      walk.notes.push("There is no head.json: whether the end was cut off cannot be told from this folder.");
    }
    for (const { head } of heads) walk.wanted.set(head.seq, undefined);
    const segments = await listSegments(dir);
    for (const segment of segments) {
      const bad = await walk.segment(segment, segment === segments.at(-1));
      if (bad !== undefined) {
        return walk.verdict(
          10,
          `Altered: the first bad seq is ${bad.seq} (in ${segment.name}): ${bad.reason}.`,
          bad.seq,
        );
      }
    }
    return walk.judge(heads, options.head);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return walk.verdict(20, `Could not run: there is no ${dir}.`);
    return walk.verdict(20, `Could not run on ${dir}: ${error instanceof Error ? error.message : error}`);
  }
}

class Walk {
  readonly notes: string[] = [];
  /** Hash of each seq that a known head names, once it was passed. */
  readonly wanted = new Map<number, string | undefined>();
  #records = 0;
  #firstSeq: number | undefined;
  /** Of a log that does not begin at 1: what its first line says came before. */
  #firstPrev: string | undefined;
  #pruned: RecordOf<"prune">["segments"] = [];
  #last: AuditHead | undefined;
  /** The first line of a later format. */
  #newer: { seq: number; version: number } | undefined;
  #torn: { segment: string; bytes: number } | undefined;

  /** The first line that does not fit, or `undefined`. A torn end of the last segment is kept for `judge`. */
  async segment(segment: Segment, isLast: boolean): Promise<{ seq: number; reason: string } | undefined> {
    let from = 0;
    for (let look = 1;; look++) {
      let torn: Line | undefined;
      for await (const lines of readLines(segment.path, from)) {
        for (const line of lines) {
          if (line.torn) {
            torn = line;
            break;
          }
          const seq = this.#place(line).seq;
          const checked = checkLine(line, this.#place(line));
          if (checked.ok) this.#pass(checked);
          else if (checked.newer !== undefined) this.#passNewer(seq, line, checked.newer);
          else return { seq, reason: checked.reason };
        }
      }
      if (torn === undefined) return undefined;
      if (!isLast) return { seq: this.#nextSeq(), reason: "the line has no end" };
      this.#torn = { segment: segment.name, bytes: torn.bytes.length };
      from = torn.offset;
      const size = from + torn.bytes.length;
      // Whether a writer is at work on it: only a line that stays as it is counts as torn.
      await delay(systemClock, tornGraceMs);
      if (look === tornLooksMax || (await Deno.stat(segment.path)).size === size) return undefined;
      this.#torn = undefined;
    }
  }

  #nextSeq(): number {
    return (this.#last?.seq ?? 0) + 1;
  }

  #place(line: Line): { seq: number; prev: string | undefined } {
    if (this.#last !== undefined) return { seq: this.#last.seq + 1, prev: this.#last.hash };
    // A pruned log begins later: its first line is believed until a prune record vouches for it, or none does.
    const seq = firstSeqOf(line);
    return seq === undefined || seq <= 1 ? { seq: 1, prev: firstPrev } : { seq, prev: undefined };
  }

  #pass({ envelope, hash }: CheckedLine & { ok: true }): void {
    if (this.#records === 0) {
      this.#firstSeq = envelope.seq;
      this.#firstPrev = envelope.prev;
    }
    this.#records++;
    this.#last = { seq: envelope.seq, hash };
    if (this.wanted.has(envelope.seq)) this.wanted.set(envelope.seq, hash);
    if (envelope.kind === "prune") this.#notePrune(envelope);
  }

  // A line of a later format keeps the chain: what does not fit it is still found, and a changed version number with it.
  #passNewer(seq: number, line: Line, { version, hash }: { version: number; hash: string }): void {
    if (this.#records === 0) {
      this.#firstSeq = seq;
      this.#firstPrev = /"prev":"([0-9a-f]{64})"/.exec(new TextDecoder().decode(line.bytes))?.[1];
    }
    this.#records++;
    this.#newer ??= { seq, version };
    this.#last = { seq, hash };
    if (this.wanted.has(seq)) this.wanted.set(seq, hash);
  }

  #notePrune(envelope: Envelope): void {
    const record = auditRecordSchema.safeParse(envelope);
    if (record.success && record.data.kind === "prune") {
      this.#pruned = [...this.#pruned, ...record.data.segments];
    }
  }

  judge(heads: readonly { head: AuditHead; name: string }[], given: AuditHead | undefined): AuditVerdict {
    const first = this.#firstSeq ?? 1;
    if (this.#newer !== undefined) {
      const verdict = heads.map(({ head, name }) => this.#against(head, name, head === given))
        .find((verdict) => verdict !== undefined);
      return verdict ?? this.verdict(
        20,
        `Could not run: from seq ${this.#newer.seq} on, the log has format version ${this.#newer.version}, newer than this Boxmaker ` +
          `reads (${auditVersion}); use the newer one.`,
      );
    }
    if (first > 1) {
      const dropped = this.#pruned.find(({ seq, hash }) => seq === first - 1 && hash === this.#firstPrev);
      if (dropped === undefined) {
        return this.verdict(
          10,
          `Altered: the first bad seq is 1: the log begins at ${first}, and no prune record says that what came before was dropped.`,
          1,
        );
      }
      this.notes.push(
        `Pruned: records 1 to ${dropped.seq} were dropped and recorded; verified from ${first} on.`,
      );
    }
    for (const { head, name } of heads) {
      const verdict = this.#against(head, name, head === given);
      if (verdict !== undefined) return verdict;
    }
    if (this.#torn !== undefined) {
      return this.verdict(
        12,
        `Torn: the last line of ${this.#torn.segment} (${this.#torn.bytes} bytes after seq ${
          this.#last?.seq ?? 0
        }) has no end; brokerd cuts and records that at its next start.`,
      );
    }
    if (this.#last === undefined) return this.verdict(20, "Could not run: there is no audit log here.");
    return this.verdict(0, `Sound: ${this.#records} records, from seq ${first} to ${this.#last.seq}.`);
  }

  #against(head: AuditHead, name: string, isGiven: boolean): AuditVerdict | undefined {
    const lastSeq = this.#last?.seq ?? 0;
    if (head.seq > lastSeq) {
      // head.json naming the very line that is torn now: the tear is the finding, and the text says that it had been whole.
      if (!isGiven && this.#torn !== undefined && head.seq === lastSeq + 1) {
        this.notes.push(`head.json names seq ${head.seq}, the torn line: it had been whole once.`);
        return undefined;
      }
      return this.verdict(
        11,
        `Cut short: the log ends at seq ${lastSeq}, and ${name} names seq ${head.seq}.`,
      );
    }
    const hash = this.wanted.get(head.seq);
    if (hash === head.hash) return undefined;
    if (hash !== undefined) {
      return this.verdict(
        11,
        `Rolled back: seq ${head.seq} has another hash here than ${name} names, so what followed was written anew.`,
      );
    }
    const dropped = this.#pruned.find(({ seq }) => seq === head.seq);
    if (dropped?.hash === head.hash) return undefined;
    return this.verdict(20, `Could not run: ${name} names seq ${head.seq}, which was pruned.`);
  }

  verdict(exit: AuditVerdict["exit"], text: string, firstBadSeq?: number): AuditVerdict {
    return {
      exit,
      text,
      notes: this.notes,
      records: this.#records,
      firstSeq: this.#firstSeq,
      last: this.#last,
      firstBadSeq,
    };
  }
}

function firstSeqOf(line: Line): number | undefined {
  const match = /^\{"v":\d+,"seq":(\d+),/.exec(new TextDecoder().decode(line.bytes.subarray(0, 64)));
  return match === null ? undefined : Number(match[1]);
}
