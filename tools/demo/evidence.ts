// What a proof is read from: the sessions' logs and the audit log as the CLI shows them, and the bytes at the recorder.
// It computes and compares; whether that proves anything the caller says.

import { z } from "zod";
import { sha256 } from "../../core/audit/chain.ts";
import { type AuditRecord, auditRecordSchema } from "../../core/audit/record.ts";
import { exitCodes } from "../../core/errors.ts";
import { callIdSchema } from "../../core/ids.ts";
import { labelSchema } from "../../core/labels.ts";
import type { ConsultRequest } from "../stubs/consult_endpoint.ts";
import type { Bx } from "./bx.ts";

const countSchema = z.int().min(0);

const loggedRequestSchema = z.strictObject({
  slot: z.int(),
  timings: z.strictObject({ cacheN: countSchema, promptN: countSchema, predictedN: countSchema }),
  calls: z.array(z.strictObject({ call: callIdSchema, name: z.string(), arguments: z.string() })),
});
/** One request of a session to the model, as loopd kept what the server said of it. */
export type LoggedRequest = z.infer<typeof loggedRequestSchema>;

const loggedResultSchema = z.strictObject({
  call: callIdSchema,
  tool: z.string(),
  status: z.enum(["ok", "denied", "error"]),
  text: z.string(),
  label: labelSchema,
});
export type LoggedResult = z.infer<typeof loggedResultSchema>;

export interface SessionEvidence {
  readonly requests: readonly LoggedRequest[];
  readonly results: readonly LoggedResult[];
}

export async function readSession(bx: Bx, session: string): Promise<SessionEvidence> {
  const requests: LoggedRequest[] = [];
  const results: LoggedResult[] = [];
  for (const { kind, ...record } of await bx.json(["log", session])) {
    if (kind === "assistant") {
      const { slot, timings, calls } = record;
      requests.push(loggedRequestSchema.parse({ slot, timings, calls }));
    } else if (kind === "result") {
      const { call, tool, status, text, label } = record;
      results.push(loggedResultSchema.parse({ call, tool, status, text, label }));
    }
  }
  return { requests, results };
}

/** What a session's prefix was worth to its next request, in model tokens. */
export interface KeptPrefix {
  /** Of the request that made the call: cached, computed and generated. */
  readonly previousTotal: number;
  /** What a byte-exact continuation finds: all but the last sampled token. */
  readonly lawN: number;
  /** What the next request found. */
  readonly cacheN: number;
  /** Beyond the law: tokens of the session's own prefix that the server computed again. */
  readonly lostN: number;
  /** All that the next request had computed, its new messages included. */
  readonly computedN: number;
  /** Length of the message that made the call, which a template may write anew. */
  readonly callN: number;
}

/** The request that made `call`, against the one after it; `undefined` where there is none. */
export function keptPrefix(requests: readonly LoggedRequest[], call: number): KeptPrefix | undefined {
  const at = requests.findIndex(({ calls }) => calls.some((each) => each.call === call));
  const calling = requests[at]?.timings;
  const next = requests[at + 1]?.timings;
  if (calling === undefined || next === undefined) return undefined;
  const previousTotal = calling.cacheN + calling.promptN + calling.predictedN;
  return {
    previousTotal,
    lawN: previousTotal - 1,
    cacheN: next.cacheN,
    lostN: Math.max(0, previousTotal - 1 - next.cacheN),
    computedN: next.promptN,
    callN: calling.predictedN,
  };
}

export async function readAuditLog(bx: Bx): Promise<AuditRecord[]> {
  return (await bx.json(["audit", "show"])).map((record) => auditRecordSchema.parse(record));
}

/** One consult that left: what the audit log says was sent, and what arrived. */
export interface SentBody {
  readonly session: string;
  readonly body: string;
  readonly auditSha256: string;
  readonly wireSha256: string | undefined;
  /** The bytes at the recorder are the UTF-8 of the intent's body and of the decision's, and both hashes say so. */
  readonly equal: boolean;
}

/** Each intent with the request that arrived in its place; consults run one after another here. */
export function sentBodies(
  audit: readonly AuditRecord[],
  requests: readonly Pick<ConsultRequest, "body">[],
): SentBody[] {
  const intents = audit.filter((record) => record.kind === "intent");
  const decisions = audit.filter((record) => record.kind === "decision");
  return intents.map((intent, index) => {
    const wire = requests[index]?.body;
    const decision = decisions.find((record) => record.intent === intent.seq);
    const auditSha256 = sha256(intent.body);
    const wireSha256 = wire === undefined ? undefined : sha256(wire);
    return {
      session: intent.session,
      body: intent.body,
      auditSha256,
      wireSha256,
      equal: wire !== undefined && bytesEqual(wire, new TextEncoder().encode(intent.body)) &&
        decision?.body === intent.body && intent.bodySha256 === auditSha256 &&
        decision.bodySha256 === auditSha256,
    };
  });
}

function bytesEqual(left: Uint8Array, right: Uint8Array): boolean {
  return left.length === right.length && left.every((byte, at) => byte === right[at]);
}

/** What `bx audit verify` says. */
export async function readAuditVerdict(bx: Bx): Promise<{ ok: boolean; text: string }> {
  const { code, stdout, stderr } = await bx.run(["audit", "verify"]);
  const [said = ""] = (stdout.trim() || stderr.trim()).split("\n");
  return { ok: code === exitCodes.done, text: `audit verify: ${said} (exit ${code})` };
}
