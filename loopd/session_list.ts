// All sessions by when they last changed, for lists that are read a page at a time: kept in memory from one look at the disk, summaries
// read on demand within a bound. Read only; the store and the archive own the sessions.

import type { Clock } from "../core/clock.ts";
import { UsageError } from "../core/errors.ts";
import { isSessionId, parentSessionId, type SessionId, sessionKind } from "../core/ids.ts";
import type { SessionListRow } from "../core/protocol/loop.ts";
import type { LoopdConfig } from "../core/config/loopd_toml.ts";
import type { Holds } from "./holds.ts";
import { laneOf } from "./root_turns.ts";
import { sessionLogPath } from "./session/log.ts";
import { SessionSummary } from "./session/summary.ts";

/** Log bytes that one page may read; rows whose logs are longer get their summary from a later page. */
const pageReadBytesMax = 4 * 1_048_576;
/** Logs looked at together when the list is first made. */
const looksAtOnce = 64;
/** Summaries kept; the one longest unread gives way. */
const summariesMax = 20_000;

export interface SessionListOptions {
  readonly directory: string;
  readonly clock: Clock;
  readonly slots: LoopdConfig["slots"];
  readonly holds: Holds;
}

export interface ListQuery {
  readonly limit: number;
  /** The last session of the page before. */
  readonly after?: SessionId;
  /** Only this one's children; "" for those that have no parent. */
  readonly parent?: SessionId | "";
  /** Only this one. */
  readonly session?: SessionId;
}

export class SessionList {
  readonly #options: SessionListOptions;
  /** When each log last changed, in milliseconds. */
  readonly #changed = new Map<SessionId, number>();
  readonly #summaries = new Map<SessionId, SessionSummary>();
  #loading: Promise<void> | undefined;
  #newestFirst: SessionId[] | undefined;
  #childCounts: Map<SessionId, number> | undefined;

  constructor(options: SessionListOptions) {
    this.#options = options;
  }

  /** Looks at the disk, once; the first page waits for it. */
  load(): Promise<void> {
    return this.#loading ??= this.#look();
  }

  /** A session's log grew. */
  note(id: SessionId): void {
    if (!this.#changed.has(id)) this.#childCounts = undefined;
    this.#changed.set(id, this.#options.clock.now());
    this.#newestFirst = undefined;
  }

  async page(
    { limit, after, parent, session }: ListQuery,
  ): Promise<{ sessions: SessionListRow[]; after?: SessionId }> {
    await this.load();
    const wanted = session !== undefined
      ? [session].filter((id) => this.#changed.has(id))
      : parent === undefined
      ? this.#sorted()
      : this.#sorted().filter((id) => (this.#listedParent(id) ?? "") === parent);
    const from = after === undefined ? 0 : wanted.indexOf(after) + 1;
    const sessions: SessionListRow[] = [];
    let bytesLeft = pageReadBytesMax;
    for (let at = from; at < wanted.length && sessions.length < limit;) {
      const next = wanted.slice(at, at + limit - sessions.length);
      at += next.length;
      const known = await Promise.all(next.map((id) => this.#isKnown(id)));
      for (const [index, id] of next.entries()) {
        const read = await this.#row(id, { isKnown: known[index], bytesMax: bytesLeft });
        if (read === undefined) continue;
        bytesLeft -= read.bytes;
        sessions.push(read.row);
      }
      if (at < wanted.length && sessions.length === limit) return { sessions, after: next[next.length - 1] };
    }
    return { sessions };
  }

  async #look(): Promise<void> {
    const ids: SessionId[] = [];
    for await (const entry of Deno.readDir(this.#options.directory)) {
      if (entry.isDirectory && isSessionId(entry.name)) ids.push(entry.name);
    }
    for (let at = 0; at < ids.length; at += looksAtOnce) {
      await Promise.all(
        ids.slice(at, at + looksAtOnce).map(async (id) => {
          const stat = await Deno.stat(sessionLogPath(this.#options.directory, id)).catch(() => undefined);
          // What was noted meanwhile is newer.
          if (stat !== undefined && !this.#changed.has(id)) this.#changed.set(id, stat.mtime?.getTime() ?? 0);
        }),
      );
    }
    this.#newestFirst = undefined;
    this.#childCounts = undefined;
  }

  #sorted(): SessionId[] {
    return this.#newestFirst ??= [...this.#changed].sort(([a, aMs], [b, bMs]) =>
      bMs - aMs || (a < b ? -1 : 1)
    ).map(([id]) => id);
  }

  // A child whose parent is not there stands among the roots, or nobody would find it.
  #listedParent(id: SessionId): SessionId | undefined {
    const parent = parentSessionId(id);
    return parent === undefined || parent === "malformed" || !this.#changed.has(parent) ? undefined : parent;
  }

  #children(id: SessionId): number {
    if (this.#childCounts === undefined) {
      this.#childCounts = new Map();
      for (const child of this.#changed.keys()) {
        const parent = this.#listedParent(child);
        if (parent !== undefined) this.#childCounts.set(parent, (this.#childCounts.get(parent) ?? 0) + 1);
      }
    }
    return this.#childCounts.get(id) ?? 0;
  }

  /** Whether the session's summary is there and whole. A log that is gone is found out when its row is made. */
  async #isKnown(id: SessionId): Promise<boolean> {
    return await this.#summaries.get(id)?.isWhole().catch(() => false) ?? false;
  }

  async #row(
    id: SessionId,
    { isKnown, bytesMax }: { isKnown: boolean; bytesMax: number },
  ): Promise<{ row: SessionListRow; bytes: number } | undefined> {
    const { directory, holds, slots } = this.#options;
    const summary = this.#summaries.get(id) ?? new SessionSummary(sessionLogPath(directory, id));
    let read: { bytes: number; whole: boolean };
    try {
      read = isKnown ? { bytes: 0, whole: true } : await summary.readOn(bytesMax);
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) {
        this.#drop(id);
        return undefined;
      }
      // A log of a newer format is listed, and left to whoever opens it to refuse.
      if (!(error instanceof UsageError)) throw error;
      read = { bytes: 0, whole: false };
    }
    this.#keep(id, summary);
    if (read.whole && summary.empty) return undefined;
    const turn = holds.get(id);
    const { promptTokens, cachedTokens } = summary.usage;
    return {
      bytes: read.bytes,
      row: {
        session: id,
        parent: this.#listedParent(id) ?? null,
        kind: sessionKind(id) ?? "unknown",
        status: turn !== undefined
          ? turn.waitsFor === undefined ? "running" : "waiting"
          : !read.whole
          ? null
          : summary.lastEnd ?? (summary.turns > 0 ? "waiting" : "idle"),
        slot: laneOf(id).background ? slots.background : slots.main,
        changed: new Date(this.#changed.get(id) ?? 0).toISOString(),
        children: this.#children(id),
        title: summary.title,
        summary: !read.whole ? null : {
          label: summary.label,
          turns: summary.turns,
          cachedShare: promptTokens === 0 ? null : Math.round(cachedTokens / promptTokens * 10_000) / 10_000,
          usage: summary.usage,
        },
      },
    };
  }

  #keep(id: SessionId, summary: SessionSummary): void {
    this.#summaries.delete(id);
    this.#summaries.set(id, summary);
    if (this.#summaries.size > summariesMax) {
      this.#summaries.delete(this.#summaries.keys().next().value ?? id);
    }
  }

  #drop(id: SessionId): void {
    this.#changed.delete(id);
    this.#summaries.delete(id);
    this.#newestFirst = undefined;
    this.#childCounts = undefined;
  }
}
