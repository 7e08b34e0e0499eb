// The records of the audit log: one strict schema for each kind, as docs/protocol.md has them, and what every line carries.
// It says what a record is. It reads no file, hashes nothing and knows no role.

import { z } from "zod";
import { formatVersions } from "../format_versions.ts";
import { callIdSchema, sessionIdSchema } from "../ids.ts";
import { labelSchema } from "../labels.ts";
import { taintCauses } from "../protocol/broker.ts";
import { hashSchema } from "../protocol/common.ts";

export const auditVersion = formatVersions.audit;

/** How a request that left ended: docs/protocol.md says what each means. */
export const outcomes = ["answered", "http", "timeout", "unreachable", "unknown", "unusable"] as const;
export type Outcome = typeof outcomes[number];

/** What befell an approval: `asked` opens it, each of the others ends it. */
export const approvalStates = ["asked", "approved", "denied", "expired", "void"] as const;
export type ApprovalState = typeof approvalStates[number];

const seqSchema = z.int().min(1);
const line = { v: z.literal(auditVersion), seq: seqSchema, prev: hashSchema, time: z.iso.datetime() };
const call = { session: sessionIdSchema, call: callIdSchema, tool: z.string(), label: labelSchema };
/** UTC day, `2026-12-01`. */
const daySchema = z.string().regex(/^\d{4}-\d{2}-\d{2}$/);

/** Opens each segment: the fold of the log so far, in as many parts as its size needs. */
const ledgerRecordSchema = z.strictObject({
  ...line,
  kind: z.literal("ledger"),
  part: z.int().min(1),
  parts: z.int().min(1),
  sessions: z.array(z.strictObject({
    session: sessionIdSchema,
    label: labelSchema,
    /** The calls that were decided, as closed ranges in rising order. */
    calls: z.array(z.tuple([callIdSchema, callIdSchema])),
  })),
  /** Calls that an intent or an approval opened and no decision has closed, with the seq of that record. */
  open: z.array(z.strictObject({ session: sessionIdSchema, call: callIdSchema, seq: seqSchema })),
  /** What was sent under each grant on the last day it was used. */
  spent: z.array(z.strictObject({ grantSha256: hashSchema, day: daySchema, count: z.int().min(1) })),
});

const recordSchemas = [
  z.strictObject({ ...line, kind: z.literal("start"), pid: z.int() }),
  z.strictObject({
    ...line,
    kind: z.literal("config"),
    /** Hash of grants.toml as it is now in force. */
    grantsSha256: hashSchema,
    grants: z.int().min(0),
    /** Where allowed bodies go from here on. */
    consultUrl: z.string().optional(),
    honchoUrl: z.string().optional(),
  }),
  z.strictObject({ ...line, kind: z.literal("label"), session: sessionIdSchema, label: labelSchema }),
  z.strictObject({
    ...line,
    kind: z.literal("intent"),
    ...call,
    /** Place of the grant in grants.toml, from 1. */
    grant: z.int().min(1),
    body: z.string(),
    bodySha256: hashSchema,
    grantSha256: hashSchema.optional(),
  }),
  z.strictObject({
    ...line,
    kind: z.literal("decision"),
    ...call,
    verdict: z.enum(["allow", "deny"]),
    code: z.string().optional(),
    cause: z.enum(taintCauses).optional(),
    /** The grant that decided, or the one that came nearest. */
    grant: z.int().min(1).optional(),
    /** Seq of the intent it closes. */
    intent: seqSchema.optional(),
    body: z.string().optional(),
    bodySha256: hashSchema.optional(),
    question: z.string().optional(),
    outcome: z.enum(outcomes).optional(),
    /** HTTP status of the reply's head. */
    status: z.int().optional(),
    answer: z.string().optional(),
    elapsedMs: z.number().min(0).optional(),
    /** The label that the answer carries. */
    answerLabel: labelSchema.optional(),
    /** The model that the reply named, where it is not the one that was asked. */
    replyModel: z.string().optional(),
    /** For the owner: what was wrong with the reply or the arguments, or what the nearest grant lacks. */
    reason: z.string().optional(),
  }),
  z.strictObject({
    ...line,
    kind: z.literal("approval"),
    ...call,
    grant: z.int().min(1),
    state: z.enum(approvalStates),
    /** With `asked`: the whole body that would leave. */
    body: z.string().optional(),
    bodySha256: hashSchema,
    expiresAt: z.iso.datetime().optional(),
    reason: z.string().optional(),
  }),
  ledgerRecordSchema,
  z.strictObject({ ...line, kind: z.literal("retire"), session: sessionIdSchema }),
  z.strictObject({
    ...line,
    kind: z.literal("recovery"),
    segment: z.string(),
    /** The torn end that was cut off. */
    cutBytes: z.int().min(0),
    cutSha256: hashSchema,
    /** head.json named the torn record: it had been whole once, so more than a crash cut it. */
    headNamedIt: z.boolean().optional(),
  }),
  z.strictObject({ ...line, kind: z.literal("stop") }),
  z.strictObject({
    ...line,
    kind: z.literal("prune"),
    before: z.string(),
    /** The segments dropped, oldest first, each with its last record. */
    segments: z.array(z.strictObject({ segment: z.string(), seq: seqSchema, hash: hashSchema })).min(1),
  }),
] as const;

export const auditRecordSchema = z.discriminatedUnion("kind", recordSchemas);
export type AuditRecord = z.infer<typeof auditRecordSchema>;
export type AuditKind = AuditRecord["kind"];
export type RecordOf<K extends AuditKind> = Extract<AuditRecord, { kind: K }>;

/** A record before the log numbers, links and dates it. Its keys are written in the order in which they stand here. */
export type NewAuditRecord = WithoutLine<AuditRecord>;
type WithoutLine<R> = R extends AuditRecord ? Omit<R, "v" | "seq" | "prev" | "time"> : never;

export const auditKinds: readonly AuditKind[] = recordSchemas.map((schema) => schema.shape.kind.value);

/** Position and hash of one record: `head.json`, and what an owner writes down elsewhere. */
export interface AuditHead {
  readonly seq: number;
  readonly hash: string;
}
export const auditHeadFileSchema: z.ZodType<AuditHead> = z.strictObject({ seq: seqSchema, hash: hashSchema });
