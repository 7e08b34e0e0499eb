// All sessions of this home: found on disk, opened once, created with their first epoch in one durable write.

import { STATUS_CODE } from "@std/http";
import type { Clock } from "../../core/clock.ts";
import { assertOurs, describeError, ProtocolError, UsageError } from "../../core/errors.ts";
import { isSessionId, parentSessionId, type SessionId } from "../../core/ids.ts";
import type { Label } from "../../core/labels.ts";
import { createSessionLog, openSessionLog, sessionLogPath } from "./log.ts";
import { Session } from "./session.ts";

export interface SessionStoreOptions {
  readonly directory: string;
  readonly clock: Clock;
  /** What a new epoch begins with, for a session at this label. */
  readonly freezeBaseline: (label: Label) => Promise<{ system: string; tools: string }>;
  /** Hears that a session's log grew. */
  readonly onAppend: (session: SessionId) => void;
}

/** Sessions kept open beyond those in use; each costs one file handle and its messages. */
const idleOpenMax = 32;

/** What a request hears that names a session which is not there. */
export function unknownSession(id: SessionId, text = `no session is named ${id}`): ProtocolError {
  return new ProtocolError("unknown-session", STATUS_CODE.NotFound, text);
}

interface OpenSession {
  readonly opening: Promise<Session>;
  /** Once it is open. */
  session?: Session;
}

export class SessionStore {
  #options: SessionStoreOptions;
  /** Longest unused first. */
  #open = new Map<SessionId, OpenSession>();

  constructor(options: SessionStoreOptions) {
    this.#options = options;
  }

  /** Whether the session began. A crash may leave a log without its first records: `create` begins that session. */
  async exists(id: SessionId): Promise<boolean> {
    try {
      // Looked at first: an id that is not there at all is not to be in anybody's way who creates it.
      if (!(await Deno.stat(sessionLogPath(this.#options.directory, id))).isFile) return false;
      await this.get(id);
      return true;
    } catch (error) {
      // Any other fault is for whoever opens it.
      return !(error instanceof Deno.errors.NotFound);
    }
  }

  /** The one Session object of this id, repaired on disk where its log was torn. Throws NotFound, also for one that never began. */
  get(id: SessionId): Promise<Session> {
    return this.#once(id, async () => {
      const session = await this.#openExisting(id);
      if (session.epoch === 0) {
        await session.close();
        throw new Deno.errors.NotFound(`session ${id} never began`);
      }
      return session;
    });
  }

  /** A new session with its first epoch. Throws AlreadyExists. */
  create(id: SessionId, label: Label): Promise<Session> {
    return this.#once(id, async () => {
      const { directory, clock } = this.#options;
      const session = await createSessionLog(directory, id, clock).then(
        (log) => new Session(id, log, []),
        async (error) => {
          if (!(error instanceof Deno.errors.AlreadyExists)) throw error;
          return await this.#openExisting(id);
        },
      );
      // A crash may leave a log without its first records: that session never began, and begins now.
      if (session.epoch !== 0) {
        await session.close();
        throw new Deno.errors.AlreadyExists(`session ${id} exists already`);
      }
      await this.#begin(session, label).catch(async (error) => {
        await session.close();
        throw error;
      });
      this.#options.onAppend(id);
      return session;
    });
  }

  /** A new epoch: a fresh baseline, then the summary, then what `coversTo` leaves standing. The label stays what it is. */
  async newEpoch(
    session: Session,
    cut: { summary: string; coversTo: number; request?: string },
  ): Promise<void> {
    await session.append({
      kind: "epoch",
      epoch: session.epoch + 1,
      ...await this.#options.freezeBaseline(session.label),
      ...cut,
    });
  }

  /** Every session on disk, by name. */
  async ids(): Promise<SessionId[]> {
    const ids: SessionId[] = [];
    for await (const entry of Deno.readDir(this.#options.directory)) {
      if (entry.isDirectory && isSessionId(entry.name)) ids.push(entry.name);
    }
    return ids.sort();
  }

  /** Whether a turn may be open there, told by the end of the log alone: a start must not read every log in full. */
  async mayBeOpen(id: SessionId): Promise<boolean> {
    const last = await lastLine(sessionLogPath(this.#options.directory, id));
    // A torn line ends nothing, whatever it was to be, and a later epoch may begin in the middle of a turn.
    return last !== undefined && !(last.endsWith("\n") && /"kind":("end"|"epoch","epoch":1,)/.test(last));
  }

  /**
   * Closes sessions that nobody uses, but never those used last: who was just given one may not have begun to use it. `inUse` says which
   * must stay.
   */
  async trim(inUse: (id: SessionId) => boolean): Promise<void> {
    const closing: Promise<void>[] = [];
    let older = this.#open.size - idleOpenMax;
    // Chosen without waiting: between looking at a session and letting it go nobody can take it up.
    for (const [id, { session }] of this.#open) {
      if (older-- <= 0) break;
      if (session === undefined || inUse(id) || session.followed) continue;
      this.#open.delete(id);
      closing.push(session.close());
    }
    await Promise.all(closing);
  }

  /** Closes one session, which nobody may be using, and takes it from its place; whoever asks for it meanwhile waits. */
  async remove(id: SessionId, takeAway: () => Promise<void>): Promise<void> {
    const open = this.#open.get(id);
    const removing = (async () => {
      await closed(open);
      await takeAway();
    })();
    // It opens for nobody: who waited for it looks at the disk again.
    const entry: OpenSession = {
      opening: removing.then(() => Promise.reject(new Deno.errors.NotFound(`session ${id} was taken away`))),
    };
    this.#open.set(id, entry);
    await entry.opening.catch(() => {});
    if (this.#open.get(id) === entry) this.#open.delete(id);
    await removing;
  }

  async close(): Promise<void> {
    for (const open of this.#open.values()) await closed(open);
    this.#open.clear();
  }

  async #release(id: SessionId): Promise<void> {
    const open = this.#open.get(id);
    this.#open.delete(id);
    await closed(open);
  }

  async #once(id: SessionId, open: () => Promise<Session>): Promise<Session> {
    const already = this.#open.get(id);
    if (already !== undefined) {
      // Last used, last trimmed; before anything is waited for, so that it is not trimmed meanwhile.
      this.#open.delete(id);
      this.#open.set(id, already);
      // What another caller asked for may fail where this one does not: to create goes on where to get ends.
      const session = already.session ?? await already.opening.catch(() => undefined);
      const isStillOpen = this.#open.get(id) === already;
      if (session !== undefined && !session.broken && isStillOpen) return session;
      if (isStillOpen) await this.#release(id);
      return await this.#once(id, open);
    }
    const entry: OpenSession = {
      opening: open().then((session) => {
        session.onAppend = () => this.#options.onAppend(id);
        entry.session = session;
        return session;
      }),
    };
    this.#open.set(id, entry);
    entry.opening.catch(() => {
      if (this.#open.get(id) === entry) this.#open.delete(id);
    });
    return await entry.opening;
  }

  async #openExisting(id: SessionId): Promise<Session> {
    const { log, records } = await openSessionLog(this.#options.directory, id, this.#options.clock).catch(
      (error) => {
        // One session that a newer Boxmaker wrote is refused to whoever asks for it; the role serves the others.
        if (!(error instanceof UsageError)) throw error;
        throw new ProtocolError("newer-format", STATUS_CODE.Conflict, error.message);
      },
    );
    const [first] = records;
    if (first?.kind === "open" && first.session !== id) {
      await log.close();
      // A directory that was copied or renamed by hand: refused to whoever asks for it, and left as it is.
      throw new ProtocolError(
        "other-session",
        STATUS_CODE.Conflict,
        `the log in sessions/${id} is that of ${first.session}; give the directory its name back, or remove it`,
      );
    }
    try {
      return new Session(id, log, records);
    } catch (error) {
      await log.close();
      // What a file holds is no assumption of ours: records that are sound each by itself and do not follow from one another.
      throw new ProtocolError(
        "damaged-session",
        STATUS_CODE.Conflict,
        `the log in sessions/${id} does not fit together (${
          describeError(error)
        }); put back a copy of it, or remove it`,
      );
    }
  }

  async #begin(session: Session, label: Label): Promise<void> {
    const parent = parentSessionId(session.id);
    assertOurs(
      parent !== "malformed",
      `a session that is created names its parent in full, ${session.id} does not`,
    );
    await session.append(
      { kind: "open", session: session.id, parent: parent ?? null, label },
      { kind: "epoch", epoch: 1, ...await this.#options.freezeBaseline(label) },
    );
  }
}

/** One that never came to be open has nothing to close. */
async function closed(open: OpenSession | undefined): Promise<void> {
  await open?.opening.then((session) => session.close(), () => {});
}

const lastLineBytesMax = 4_096;

// The last line where it is short, else its end: an `end` record is always short enough.
async function lastLine(path: string): Promise<string | undefined> {
  let file;
  try {
    file = await Deno.open(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
  try {
    const { size } = await file.stat();
    await file.seek(Math.max(0, size - lastLineBytesMax), Deno.SeekMode.Start);
    const buffer = new Uint8Array(lastLineBytesMax);
    const length = await file.read(buffer) ?? 0;
    const text = new TextDecoder().decode(buffer.subarray(0, length));
    return text.slice(text.lastIndexOf("\n", text.length - 2) + 1);
  } finally {
    file.close();
  }
}
