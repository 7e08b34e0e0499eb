// What the audit log says so far: labels, decided calls, calls still open, what was spent. Built by applying records in log order,
// at start from the last segment and then record by record as they are appended, so it cannot differ from the log.
// It decides nothing, appends nothing and reads no file.
//
// Memory: one entry for each living session, its decided calls as ranges, and for calls decided in the current segment the place of
// their record. Places are dropped when a new segment begins; an older answer is then looked for in the log itself.

import type { AuditRecord, NewAuditRecord, RecordOf } from "../core/audit/record.ts";
import { ancestorSessionIds, type CallId, type SessionId } from "../core/ids.ts";
import { joinLabels, type Label, publicTrusted } from "../core/labels.ts";
import { CallRanges } from "./call_ranges.ts";

/** Where a record stands in the log's files. */
export interface RecordPlace {
  readonly segment: number;
  readonly offset: number;
  readonly length: number;
}

interface SessionEntry {
  label: Label;
  readonly calls: CallRanges;
  readonly places: Map<CallId, RecordPlace>;
}

export interface OpenCall {
  readonly session: SessionId;
  readonly call: CallId;
  /** Of the intent or the approval that opened it. */
  readonly seq: number;
  /** Where that stands; unknown when it was opened before the last segment that a start has read. */
  readonly place?: RecordPlace;
}

type LedgerRecord = Extract<NewAuditRecord, { kind: "ledger" }>;

/** Size of one part of a ledger record, well below the bound of a line. */
const partBytesMax = 1_048_576;
/** A session with more takes several rows, which the fold joins. */
const rangesPerRowMax = 10_000;

export class Fold {
  readonly #sessions = new Map<SessionId, SessionEntry>();
  readonly #open = new Map<string, OpenCall>();
  readonly #spent = new Map<string, { day: string; count: number }>();

  apply(record: AuditRecord, place: RecordPlace): void {
    switch (record.kind) {
      case "ledger":
        return this.#applyLedger(record);
      case "label":
        return this.#raise(record.session, record.label);
      case "intent":
        this.#openCall(record, place);
        if (record.grantSha256 !== undefined) this.#spend(record.grantSha256, record.time.slice(0, 10));
        return;
      case "approval":
        if (record.state === "asked") this.#openCall(record, place);
        return;
      case "decision": {
        this.#open.delete(callKey(record.session, record.call));
        const entry = this.#entry(record.session);
        entry.calls.add(record.call);
        entry.places.set(record.call, place);
        return;
      }
      case "retire":
        for (const id of this.family(record.session)) this.#sessions.delete(id);
        return;
    }
  }

  /** `undefined` for a session that no statement has named. */
  label(session: SessionId): Label | undefined {
    return this.#sessions.get(session)?.label;
  }

  get sessionCount(): number {
    return this.#sessions.size;
  }

  labels(): { session: SessionId; label: Label }[] {
    return [...this.#sessions].map(([session, { label }]) => ({ session, label }));
  }

  /** The session and every living one below it. */
  family(session: SessionId): SessionId[] {
    return [...this.#sessions.keys()].filter((id) =>
      id === session || ancestorSessionIds(id).includes(session)
    );
  }

  isDecided(session: SessionId, call: CallId): boolean {
    return this.#sessions.get(session)?.calls.has(call) ?? false;
  }

  /** Where the decision stands, if it was made in the current segment. */
  decisionPlace(session: SessionId, call: CallId): RecordPlace | undefined {
    return this.#sessions.get(session)?.places.get(call);
  }

  openCalls(): OpenCall[] {
    return [...this.#open.values()];
  }

  /** Bodies sent under a grant on `day`. A clock that was set back does not give a spent day anew. */
  spent(grantSha256: string, day: string): number {
    const entry = this.#spent.get(grantSha256);
    return entry === undefined || entry.day < day ? 0 : entry.count;
  }

  /** The fold as the records that open a new segment. From then on places belong to that segment. */
  snapshot(): LedgerRecord[] {
    const parts: { sessions: LedgerRecord["sessions"]; bytes: number }[] = [{ sessions: [], bytes: 0 }];
    for (const row of this.#ledgerRows()) {
      const bytes = JSON.stringify(row).length;
      if (parts[parts.length - 1].bytes + bytes > partBytesMax) parts.push({ sessions: [], bytes: 0 });
      const part = parts[parts.length - 1];
      part.sessions.push(row);
      part.bytes += bytes;
    }
    return parts.map(({ sessions }, index) => ({
      kind: "ledger",
      part: index + 1,
      parts: parts.length,
      sessions,
      open: index > 0 ? [] : this.openCalls().map(({ session, call, seq }) => ({ session, call, seq })),
      spent: index > 0
        ? []
        : [...this.#spent].map(([grantSha256, { day, count }]) => ({ grantSha256, day, count })),
    }));
  }

  *#ledgerRows(): Generator<LedgerRecord["sessions"][number]> {
    for (const [session, { label, calls }] of this.#sessions) {
      const ranges = calls.ranges();
      let at = 0;
      do {
        yield { session, label: { ...label }, calls: ranges.slice(at, at + rangesPerRowMax) };
        at += rangesPerRowMax;
      } while (at < ranges.length);
    }
  }

  forgetPlaces(): void {
    for (const entry of this.#sessions.values()) entry.places.clear();
  }

  #applyLedger(record: RecordOf<"ledger">): void {
    for (const { session, label, calls } of record.sessions) {
      const entry = this.#entry(session);
      entry.label = joinLabels(entry.label, label);
      for (const [from, to] of calls) entry.calls.addRange(from, to);
    }
    for (const open of record.open) this.#open.set(callKey(open.session, open.call), open);
    for (const { grantSha256, day, count } of record.spent) this.#spent.set(grantSha256, { day, count });
  }

  // Only its name: the body stays in the log.
  #openCall({ session, call, seq }: OpenCall, place: RecordPlace): void {
    this.#open.set(callKey(session, call), { session, call, seq, place });
  }

  #raise(session: SessionId, label: Label): void {
    const entry = this.#entry(session);
    entry.label = joinLabels(entry.label, label);
  }

  #spend(grantSha256: string, day: string): void {
    const entry = this.#spent.get(grantSha256);
    if (entry === undefined || entry.day < day) this.#spent.set(grantSha256, { day, count: 1 });
    else entry.count++;
  }

  #entry(session: SessionId): SessionEntry {
    let entry = this.#sessions.get(session);
    if (entry === undefined) {
      entry = { label: publicTrusted, calls: new CallRanges(), places: new Map() };
      this.#sessions.set(session, entry);
    }
    return entry;
  }
}

/** One text for a (session, call) pair; a session id holds no `/`. */
export function callKey(session: SessionId, call: CallId): string {
  return `${session}/${call}`;
}
