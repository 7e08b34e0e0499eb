// Calls that wait for the owner. Each is bound to its session, call, label, grant and exact body; it is decided once, and ends by itself
// when its time is over or when anything it is bound to changes. It waits and records; what follows from an approval is the call's.

import type { ApprovalState } from "../core/audit/record.ts";
import type { Clock } from "../core/clock.ts";
import type { Grant } from "../core/config/grants_toml.ts";
import { ProtocolError } from "../core/errors.ts";
import { ancestorSessionIds, type CallId, type SessionId } from "../core/ids.ts";
import type { Label } from "../core/labels.ts";
import type { Approval } from "../core/protocol/owner.ts";
import { STATUS_CODE } from "@std/http";
import type { AuditLog } from "./audit_log.ts";

/** The call as it would leave. */
export interface Asked {
  readonly session: SessionId;
  readonly call: CallId;
  readonly tool: string;
  readonly label: Label;
  readonly grant: Grant;
  readonly body: string;
  readonly bodySha256: string;
}

export interface ApprovalEnd {
  readonly state: Exclude<ApprovalState, "asked">;
  /** For the owner's log. */
  readonly reason?: string;
}

interface Pending {
  readonly id: string;
  readonly asked: Asked;
  readonly expiresAtMs: number;
  readonly end: (end: ApprovalEnd) => void;
  /** Its record is durable: from then on the owner sees it and may decide. */
  listed: boolean;
}

export class Approvals {
  readonly #log: AuditLog;
  readonly #clock: Clock;
  readonly #expireMs: number;
  readonly #pending = new Map<string, Pending>();

  constructor({ log, clock, expireMinutes }: { log: AuditLog; clock: Clock; expireMinutes: number }) {
    this.#log = log;
    this.#clock = clock;
    this.#expireMs = Math.max(1, Math.round(expireMinutes * 60_000));
  }

  /**
   * Asks the owner, durably, and waits. `onListed` gets the approval's id as soon as the owner can see it. `closed` aborts when nobody waits
   * for the call any more.
   */
  async wait(
    asked: Asked,
    { closed, onListed }: { closed: AbortSignal; onListed: (id: string) => void },
  ): Promise<ApprovalEnd> {
    const expiresAtMs = this.#clock.now() + this.#expireMs;
    const { session, call, tool, label, grant, body, bodySha256 } = asked;
    const seq = this.#log.append({
      kind: "approval",
      session,
      call,
      tool,
      label,
      grant: grant.index,
      state: "asked",
      body,
      bodySha256,
      expiresAt: new Date(expiresAtMs).toISOString(),
    });
    // Pending from here on, so that a raise while the record is being written voids it as well.
    const id = `a${seq}`;
    const { promise, resolve } = Promise.withResolvers<ApprovalEnd>();
    const pending: Pending = {
      id,
      asked,
      expiresAtMs,
      end: (end) => this.#end(pending, end, resolve),
      listed: false,
    };
    this.#pending.set(id, pending);
    const onClosed = () => pending.end({ state: "void", reason: "the call was closed while it waited" });
    closed.addEventListener("abort", onClosed, { once: true });
    if (closed.aborted) onClosed();
    const cancelExpiry = this.#expireLater(pending);
    try {
      await this.#log.commit();
      if (this.#pending.has(id)) {
        pending.listed = true;
        onListed(id);
      }
      return await promise;
    } finally {
      this.#pending.delete(id);
      cancelExpiry();
      closed.removeEventListener("abort", onClosed);
    }
  }

  list(): Approval[] {
    return [...this.#pending.values()].filter(({ listed }) => listed).map(({ id, asked, expiresAtMs }) => ({
      id,
      status: "pending",
      session: asked.session,
      ancestors: ancestorSessionIds(asked.session),
      call: asked.call,
      tool: asked.tool,
      label: asked.label,
      grant: asked.grant.index,
      body: asked.body,
      bodySha256: asked.bodySha256,
      expiresAt: new Date(expiresAtMs).toISOString(),
    }));
  }

  /** The owner's word, durable when it resolves. Throws ProtocolError: 404 for one not pending, 409 for another body's hash. */
  async decide(id: string, decision: "approve" | "deny", bodySha256: string): Promise<void> {
    const pending = this.#pending.get(id);
    if (!pending?.listed) {
      throw new ProtocolError(
        "no-such-approval",
        STATUS_CODE.NotFound,
        `no approval ${id.slice(0, 32)} is pending`,
      );
    }
    if (pending.asked.bodySha256 !== bodySha256) {
      throw new ProtocolError(
        "other-body",
        STATUS_CODE.Conflict,
        `approval ${id} is for the body with SHA-256 ${pending.asked.bodySha256}, not the one given`,
      );
    }
    pending.end({ state: decision === "approve" ? "approved" : "denied", reason: "the owner's decision" });
    await this.#log.commit();
  }

  /** Ends every pending approval that `matches`. */
  void(matches: (asked: Asked) => boolean, reason: string): void {
    for (const pending of [...this.#pending.values()]) {
      if (matches(pending.asked)) pending.end({ state: "void", reason });
    }
  }

  #end(pending: Pending, end: ApprovalEnd, resolve: (end: ApprovalEnd) => void): void {
    // Valid once: whoever comes second finds it gone.
    if (!this.#pending.delete(pending.id)) return;
    resolve(end);
    if (this.#log.failure !== undefined) return;
    const { session, call, tool, label, grant, bodySha256 } = pending.asked;
    this.#log.append({
      kind: "approval",
      session,
      call,
      tool,
      label,
      grant: grant.index,
      state: end.state,
      bodySha256,
      reason: end.reason,
    });
  }

  // A timer may be shorter than the time asked for (its count has 32 bits): what counts is the clock.
  #expireLater(pending: Pending): () => void {
    let cancel = () => {};
    const arm = () => {
      const leftMs = pending.expiresAtMs - this.#clock.now();
      if (leftMs <= 0) return pending.end({ state: "expired", reason: "nobody decided in time" });
      cancel = this.#clock.schedule(leftMs, arm);
    };
    arm();
    return () => cancel();
  }
}
