// broker.sock: what loopd asks of brokerd. brokerd listens; nobody but loopd holds this socket.

import { z } from "zod";
import { callIdSchema, sessionIdSchema } from "../ids.ts";
import { isJsonObject, type JsonObject } from "../json.ts";
import { labelSchema } from "../labels.ts";
import { protocolVersion } from "./common.ts";

/** JSON Schema of a tool's arguments, as the model reads it. */
const parametersSchema = z.record(z.string(), z.unknown());

export const brokeredToolSchema = z.strictObject({
  name: z.string(),
  description: z.string(),
  parameters: parametersSchema,
});
export type BrokeredTool = z.infer<typeof brokeredToolSchema>;

export const brokerHelloSchema = z.strictObject({
  status: z.literal("ok").optional(),
  protocol: z.literal(protocolVersion),
  role: z.literal("brokerd"),
  /** `[consult] timeout_ms`: the longest a call of loopd's may have to wait (C9). */
  consultTimeoutMs: z.int(),
  /** Set while the audit log cannot be written or does not verify: every call is denied. */
  denyAll: z.string().optional(),
  tools: z.array(brokeredToolSchema),
});
export type BrokerHello = z.infer<typeof brokerHelloSchema>;

/** A tool's arguments as they came, every key kept: z.record would drop `__proto__`, and the tool's own schema could not refuse it. */
export const argumentsSchema: z.ZodType<JsonObject> = z.custom<JsonObject>(isJsonObject, {
  error: "wanted an object",
});

/** `POST /v1/call`. `label` is what loopd states; brokerd decides on its join with the ledger's. */
export const callRequestSchema = z.strictObject({
  session: sessionIdSchema,
  call: callIdSchema,
  tool: z.string().min(1).max(64),
  arguments: argumentsSchema,
  label: labelSchema,
});
export type CallRequest = z.infer<typeof callRequestSchema>;

export const denialCodes = [
  "NotConfigured",
  "NoGrant",
  "TaintTooHigh",
  "BudgetSpent",
  "ApprovalDenied",
  "ApprovalExpired",
  "AuditUnavailable",
] as const;
export type DenialCode = typeof denialCodes[number];
export const taintCauses = ["class", "untrusted"] as const;
export type TaintCause = typeof taintCauses[number];

/** What the model may read of a call's end, and the label it then carries. */
export const callAnswerSchema = z.discriminatedUnion("status", [
  z.strictObject({ status: z.literal("ok"), text: z.string(), label: labelSchema }),
  z.strictObject({
    status: z.literal("denied"),
    code: z.enum(denialCodes),
    cause: z.enum(taintCauses).optional(),
    runbook: z.string().optional(),
    text: z.string(),
  }),
  z.strictObject({ status: z.literal("error"), code: z.string(), text: z.string() }),
]);
export type CallAnswer = z.infer<typeof callAnswerSchema>;

/** `GET /v1/calls/:session/:call`: the answer, or where the call stands. */
export const callStateSchema = z.union([
  callAnswerSchema,
  z.strictObject({ status: z.literal("waiting"), approval: z.string() }),
  z.strictObject({ status: z.literal("running") }),
  z.strictObject({ status: z.literal("unknown") }),
]);
export type CallState = z.infer<typeof callStateSchema>;

/** `POST /v1/label`. */
export const labelRequestSchema = z.strictObject({ session: sessionIdSchema, label: labelSchema });
export type LabelRequest = z.infer<typeof labelRequestSchema>;
/** The session's label in the ledger after the join, durable by then. */
export const labelAnswerSchema = z.strictObject({ status: z.literal("ok"), label: labelSchema });
