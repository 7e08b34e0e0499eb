// Where pages get what they show: loop.sock, owner.sock, and for the roles the launcher's own records. One question at a time to each for all
// who look, its answer kept for a moment: however many pages are open, a role is asked no faster. Changes nothing but by `decide`.

import { z } from "zod";
import { permissionReports, type RoleReport } from "../launch/permissions.ts";
import type { AuditKind } from "../../core/audit/record.ts";
import { auditKinds } from "../../core/audit/record.ts";
import { describeError } from "../../core/errors.ts";
import type { HomePaths } from "../../core/home.ts";
import type { SessionId } from "../../core/ids.ts";
import { isJsonObject } from "../../core/json.ts";
import { errorAnswerSchema } from "../../core/protocol/common.ts";
import {
  logPageAnswerSchema,
  sessionListAnswerSchema,
  type SessionListRow,
  type SlotHistoryAnswer,
  slotHistoryAnswerSchema,
  type StatusAnswer,
  statusAnswerSchema,
} from "../../core/protocol/loop.ts";
import {
  type Approval,
  approvalsAnswerSchema,
  auditHeadSchema,
  auditPageSchema,
} from "../../core/protocol/owner.ts";
import { PeerUnreachable, requestJson, type SocketRequest } from "../../core/wire/client.ts";

/** What stands in the way of an answer, for the owner to read. */
export class Unavailable extends Error {
  override readonly name = "Unavailable";
  constructor(text: string, readonly httpStatus = 503) {
    super(text);
  }
}

type Peer = "loopd" | "brokerd";

/** Longest silence of a role; verifying a long log has its own. */
const answerTimeoutMs = 20_000;
const verifyTimeoutMs = 600_000;

/** How long an answer stands for all who ask. loopd asks the inference server for its status, so that is asked seldom. */
const keptMs = { moment: 250, audit: 2_500, status: 10_000, roles: 10_000 };
/** Different questions whose answers are kept. */
const keptAnswersMax = 64;

export const auditRecordSchema = z.record(z.string(), z.unknown());
export type ShownRecord = z.infer<typeof auditRecordSchema>;

const helloSchema = z.strictObject({
  protocol: z.int(),
  role: z.string(),
  denyAll: z.string().optional(),
});

const verdictSchema = z.strictObject({
  exit: z.int(),
  text: z.string(),
  notes: z.array(z.string()),
  records: z.int(),
  firstSeq: z.int().optional(),
  last: auditHeadSchema.optional(),
  firstBadSeq: z.int().optional(),
});
export type Verdict = z.infer<typeof verdictSchema>;

export interface Verification {
  readonly startedAt: string;
  readonly endedAt?: string;
  readonly verdict?: Verdict;
  readonly problem?: string;
}

export interface AuditQuery {
  readonly before?: number;
  readonly limit: number;
  readonly session?: SessionId;
  readonly tool?: string;
  readonly kind?: AuditKind;
}

export function isAuditKind(text: string): text is AuditKind {
  return auditKinds.some((kind) => kind === text);
}

export class Sources {
  readonly #paths: HomePaths;
  readonly #kept = new Map<string, { readonly answer: Promise<unknown>; readonly until: number }>();
  #verification: Verification | undefined;
  #roles: { readonly reports: RoleReport[]; readonly countedAt: string } | undefined;
  #countingRoles: Promise<void> | undefined;
  #countAgainAt = 0;

  constructor(paths: HomePaths) {
    this.#paths = paths;
  }

  get home(): string {
    return this.#paths.home;
  }

  slots(): Promise<SlotHistoryAnswer> {
    return this.#keep("moment", "loopd", "/v1/slots/history", slotHistoryAnswerSchema);
  }

  status(): Promise<StatusAnswer> {
    return this.#keep("status", "loopd", "/v1/status", statusAnswerSchema);
  }

  sessions(query: { limit: number; after?: string; parent?: string; session?: string }) {
    return this.#keep("moment", "loopd", `/v1/sessions?${queryText(query)}`, sessionListAnswerSchema);
  }

  async session(id: SessionId): Promise<SessionListRow | undefined> {
    return (await this.sessions({ limit: 1, session: id })).sessions.at(0);
  }

  log(id: SessionId, query: { before?: number; limit: number }) {
    return this.#keep("moment", "loopd", `/v1/sessions/${id}/log?${queryText(query)}`, logPageAnswerSchema);
  }

  async approvals(): Promise<readonly Approval[]> {
    return (await this.#keep("moment", "brokerd", "/v1/approvals", approvalsAnswerSchema)).approvals;
  }

  /** One that waits. An answer that was kept may be older than the call, so where it does not name it brokerd is asked again. */
  async approval(id: string): Promise<Approval | undefined> {
    const known = (await this.approvals()).find((approval) => approval.id === id);
    if (known !== undefined) return known;
    const request = { method: "GET", path: "/v1/approvals" } as const;
    return (await this.#ask("brokerd", request, approvalsAnswerSchema)).approvals.find((approval) =>
      approval.id === id
    );
  }

  audit(query: AuditQuery) {
    return this.#keep("audit", "brokerd", `/v1/audit?${queryText(query)}`, auditPageSchema);
  }

  /** One record of the audit log. */
  async record(seq: number): Promise<ShownRecord | undefined> {
    const { records } = await this.audit({ before: seq + 1, limit: 1 });
    return records.find((record) => record.seq === seq);
  }

  head() {
    return this.#keep("moment", "brokerd", "/v1/audit/head", auditHeadSchema);
  }

  brokerHello() {
    return this.#keep("moment", "brokerd", "/v1/hello", helloSchema);
  }

  /** Throws Unavailable where the approval is gone or is for another body by now. */
  async decide(id: string, decision: "approve" | "deny", bodySha256: string): Promise<void> {
    const path = `/v1/approvals/${encodeURIComponent(id)}`;
    await this.#ask("brokerd", { method: "POST", path, body: { decision, bodySha256 } }, auditRecordSchema);
    this.#kept.clear();
  }

  get verification(): Verification | undefined {
    return this.#verification;
  }

  /** Begins one, unless one runs. It goes on when nobody looks any more. */
  verify(): void {
    if (this.#verification !== undefined && this.#verification.endedAt === undefined) return;
    const startedAt = new Date().toISOString();
    this.#verification = { startedAt };
    const request = {
      method: "POST",
      path: "/v1/audit/verify",
      body: {},
      timeoutMs: verifyTimeoutMs,
    } as const;
    this.#ask("brokerd", request, verdictSchema).then(
      (verdict) => ({ verdict }),
      (error) => ({ problem: describeError(error) }),
    ).then((end) => this.#verification = { startedAt, endedAt: new Date().toISOString(), ...end });
  }

  /** The last count of what roles used. Counting reads every permission file, so it runs beside the pages and never as often as it takes. */
  roles(): { readonly reports: RoleReport[]; readonly countedAt: string } | undefined {
    if (this.#countingRoles === undefined && Date.now() >= this.#countAgainAt) {
      const startedMs = Date.now();
      this.#countingRoles = permissionReports(this.#paths).then((reports) => {
        this.#roles = { reports, countedAt: new Date().toISOString() };
      }, (error) => {
        if (!(error instanceof Deno.errors.NotFound)) console.error(`console: ${describeError(error)}`);
      }).finally(() => {
        this.#countingRoles = undefined;
        this.#countAgainAt = Date.now() + Math.max(keptMs.roles, 20 * (Date.now() - startedMs));
      });
    }
    return this.#roles;
  }

  /** Resolves when a count that runs has ended. */
  async rolesCounted(): Promise<void> {
    await this.#countingRoles;
  }

  #keep<T>(howLong: keyof typeof keptMs, peer: Peer, path: string, schema: z.ZodType<T>): Promise<T> {
    const key = `${peer} ${path}`;
    const now = performance.now();
    const kept = this.#kept.get(key);
    if (kept !== undefined && kept.until > now) return kept.answer as Promise<T>;
    const answer = this.#ask(peer, { method: "GET", path }, schema);
    this.#kept.delete(key);
    this.#kept.set(key, { answer, until: now + keptMs[howLong] });
    if (this.#kept.size > keptAnswersMax) this.#kept.delete(this.#kept.keys().next().value ?? key);
    return answer;
  }

  async #ask<T>(peer: Peer, request: SocketRequest, schema: z.ZodType<T>): Promise<T> {
    const socket = peer === "loopd" ? this.#paths.loopSocket : this.#paths.ownerSocket;
    const { httpStatus, body } = await requestJson(socket, { timeoutMs: answerTimeoutMs, ...request }).catch(
      (error) => {
        if (!(error instanceof PeerUnreachable)) throw error;
        const text = error.sent ? `${peer} did not answer to its end.` : `${peer} is not running.`;
        throw new Unavailable(`${text} Both roles are started with: deno task up`);
      },
    );
    if (httpStatus !== 200) {
      const refused = errorAnswerSchema.safeParse(body);
      throw new Unavailable(
        refused.success ? `${peer} refused: ${refused.data.text}` : `${peer} refused without saying why.`,
        httpStatus,
      );
    }
    const parsed = schema.safeParse(body);
    if (parsed.success) return parsed.data;
    const bare = schema.safeParse(withoutStatus(body));
    if (bare.success) return bare.data;
    throw new Unavailable(
      `${peer}'s answer does not fit this console; start both roles again with: deno task up`,
    );
  }
}

// Every well-formed request is answered with a `status`; most schemas describe what stands beside it.
function withoutStatus(body: unknown): unknown {
  if (!isJsonObject(body)) return body;
  const { status: _, ...rest } = body;
  return rest;
}

function queryText(query: object): string {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value !== undefined) words.set(key, `${value}`);
  return words.toString();
}
