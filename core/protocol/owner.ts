// owner.sock: what the owner's programs ask of brokerd. No agent role holds a grant for this socket, so no agent can decide for its owner.

import { z } from "zod";
import { callIdSchema, sessionIdSchema } from "../ids.ts";
import { labelSchema } from "../labels.ts";
import { argumentsSchema, denialCodes, taintCauses } from "./broker.ts";
import { hashSchema } from "./common.ts";

export const approvalSchema = z.strictObject({
  id: z.string(),
  status: z.literal("pending"),
  session: sessionIdSchema,
  /** From the parent up to the root. */
  ancestors: z.array(sessionIdSchema),
  call: callIdSchema,
  tool: z.string(),
  label: labelSchema,
  /** Index of the grant in grants.toml, from 1. */
  grant: z.int(),
  /** The exact text whose UTF-8 bytes would leave. */
  body: z.string(),
  bodySha256: hashSchema,
  expiresAt: z.string(),
});
export type Approval = z.infer<typeof approvalSchema>;
export const approvalsAnswerSchema = z.strictObject({ approvals: z.array(approvalSchema) });

/** `POST /v1/approvals/:id`. Binds only while `bodySha256` is that of the pending call. */
export const approvalDecisionSchema = z.strictObject({
  decision: z.enum(["approve", "deny"]),
  bodySha256: hashSchema,
});

/** `POST /v1/check`: what would be decided. Nothing is sent and nothing is recorded. */
export const checkRequestSchema = z.strictObject({
  tool: z.string().min(1).max(64),
  session: sessionIdSchema.optional(),
  label: labelSchema,
  arguments: argumentsSchema.optional(),
});
export type CheckRequest = z.infer<typeof checkRequestSchema>;

export const checkAnswerSchema = z.strictObject({
  status: z.literal("ok"),
  verdict: z.enum(["allow", "ask", "deny"]),
  code: z.union([z.enum(denialCodes), z.literal("invalid-arguments")]).optional(),
  cause: z.enum(taintCauses).optional(),
  /** The label decided on: the one asked about joined with the ledger's for the session. */
  label: labelSchema,
  /** The grant that decides, or the one that came nearest, from 1 in file order. */
  grant: z.int().optional(),
  /** For a refusal: what the nearest grant lacks, for the owner to read. */
  lacks: z.string().optional(),
  /** With arguments: the exact body and its hash. */
  body: z.string().optional(),
  bodySha256: hashSchema.optional(),
  text: z.string(),
});
export type CheckAnswer = z.infer<typeof checkAnswerSchema>;

/** `GET /v1/ledger`. */
export const ledgerAnswerSchema = z.strictObject({
  sessions: z.array(z.strictObject({ session: sessionIdSchema, label: labelSchema })),
});

/** `GET /v1/audit/head`: the last record's seq and hash, to write down elsewhere. */
export const auditHeadSchema = z.strictObject({ seq: z.int().min(0), hash: hashSchema });

/** `GET /v1/audit?before&limit&session&tool&kind`: newest last. A page may end before it is full; `before` goes on. */
export const auditPageSchema = z.strictObject({
  records: z.array(z.record(z.string(), z.unknown())),
  /** Ask again with `before` = this for the records before; absent at the beginning. */
  before: z.int().optional(),
});

export const retireRequestSchema = z.strictObject({ session: sessionIdSchema });
