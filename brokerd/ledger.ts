// brokerd's own book of labels: what loopd states is joined with what is written here, so a claim can only raise.
// A session is born by its first statement; a child is born at its parent's label; raising a child raises its ancestors.
// Every change is a `label` record appended before anything is decided or released on the strength of it.
//
// The order between a decision and a raise of the same family: from reading the fold to appending the record nothing awaits, so the
// two cannot cross, and the label in a record is the fold of the log up to it. That is the one lock; the log's order is its order.

import { ProtocolError } from "../core/errors.ts";
import { ancestorSessionIds, parentSessionId, type SessionId } from "../core/ids.ts";
import { joinLabels, type Label, labelsEqual, publicTrusted } from "../core/labels.ts";
import { STATUS_CODE } from "@std/http";
import type { AuditLog } from "./audit_log.ts";
import type { Fold } from "./fold.ts";

/** Living sessions; each costs a row in memory and in every segment's opening. Retired ones do not count. */
export const ledgerSessionsMax = 200_000;

export class Ledger {
  readonly #fold: Fold;
  readonly #log: AuditLog;
  /** Hears of each session whose label rose, at once. */
  readonly #onRaise: (session: SessionId) => void;

  constructor({ fold, log, onRaise }: { fold: Fold; log: AuditLog; onRaise: (session: SessionId) => void }) {
    this.#fold = fold;
    this.#log = log;
    this.#onRaise = onRaise;
  }

  /**
   * What a caller states of a session, joined with the book; the joined label. Durable after the next commit. Throws ProtocolError
   * `unknown-session` (400) for a `sub-` id that names no known parent.
   */
  state(session: SessionId, stated: Label): Label {
    const before = this.#fold.label(session);
    const joined = joinLabels(before ?? this.#birthLabel(session), stated);
    if (before === undefined || !labelsEqual(before, joined)) this.#write(session, joined);
    return joined;
  }

  /** Joins `label` into a known session and its ancestors. */
  raise(session: SessionId, label: Label): void {
    this.state(session, label);
  }

  #birthLabel(session: SessionId): Label {
    const parent = parentSessionId(session);
    const label = parent === undefined
      ? publicTrusted
      : parent === "malformed"
      ? undefined
      : this.#fold.label(parent);
    if (label === undefined) {
      throw new ProtocolError(
        "unknown-session",
        STATUS_CODE.BadRequest,
        `${session} names no parent session that is known; state its parent first`,
      );
    }
    if (this.#fold.sessionCount >= ledgerSessionsMax) {
      throw new ProtocolError(
        "too-many-sessions",
        STATUS_CODE.ServiceUnavailable,
        `the ledger holds ${ledgerSessionsMax} sessions; retire some (bx retire)`,
      );
    }
    return label;
  }

  // Ancestors first: no record ever shows a child above its parent.
  #write(session: SessionId, label: Label): void {
    const raised: SessionId[] = [];
    for (const ancestor of ancestorSessionIds(session).reverse()) {
      const before = this.#fold.label(ancestor);
      if (before === undefined) continue;
      const joined = joinLabels(before, label);
      if (labelsEqual(before, joined)) continue;
      this.#log.append({ kind: "label", session: ancestor, label: joined });
      raised.push(ancestor);
    }
    this.#log.append({ kind: "label", session, label: { class: label.class, untrusted: label.untrusted } });
    for (const id of [...raised, session]) this.#onRaise(id);
  }
}
