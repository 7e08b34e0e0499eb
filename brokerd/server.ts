// What brokerd answers, and to whom: one table, each row a path, who may call it, and its handler. Who calls is which socket it came in
// on (a Unix socket here knows no peer); each socket serves its own rows and answers 404 to the rest, so that no agent reaches a row
// of the owner's. Requests are parsed here once; what is decided stands in the files that the handlers call.

import type { Context, Hono } from "hono";
import { z } from "zod";
import { readAuditPage } from "../core/audit/read.ts";
import { auditKinds } from "../core/audit/record.ts";
import { verifyAudit } from "../core/audit/verify.ts";
import { ProtocolError } from "../core/errors.ts";
import { callIdSchema, sessionIdSchema } from "../core/ids.ts";
import { callRequestSchema, labelRequestSchema } from "../core/protocol/broker.ts";
import { emptySchema, protocolVersion } from "../core/protocol/common.ts";
import { approvalDecisionSchema, checkRequestSchema, retireRequestSchema } from "../core/protocol/owner.ts";
import { createApp, parseWith, readJson } from "../core/wire/server.ts";
import { STATUS_CODE } from "@std/http";
import { deniedAnswer } from "./answers.ts";
import { AuditUnavailable } from "./audit_log.ts";
import type { Broker } from "./broker.ts";
import { checkCall } from "./check.ts";

/** loopd on broker.sock, the owner on owner.sock. */
export type Caller = "loopd" | "owner";

interface Row {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly callers: readonly Caller[];
  readonly handle: (c: Context, broker: Broker) => Promise<object>;
}

/** Records in one page of the log, and their bytes. */
const pageRecordsMax = 1_000;
const pageRecordsDefault = 100;
const pageBytesMax = 16 * 1_048_576;
/** Of the log, walked for one page: a rare session or tool is found over several, and the owner is never kept waiting for the whole log. */
const pageScanBytesMax = 64 * 1_048_576;

const callPathSchema = z.strictObject({
  session: sessionIdSchema,
  call: z.string().regex(/^[1-9]\d{0,15}$/).transform(Number).pipe(callIdSchema),
});
const count = (max: number) => z.string().regex(/^\d{1,15}$/).transform(Number).pipe(z.int().min(1).max(max));
const auditQuerySchema = z.strictObject({
  before: count(Number.MAX_SAFE_INTEGER).optional(),
  limit: count(pageRecordsMax).optional(),
  session: sessionIdSchema.optional(),
  tool: z.string().max(64).optional(),
  kind: z.enum(auditKinds).optional(),
});
const pruneRequestSchema = z.strictObject({
  before: z.string().regex(/^\d{4}-\d{2}-\d{2}$/, "wanted a day as 2026-12-01"),
});

const rows: readonly Row[] = [
  {
    method: "GET",
    path: "/v1/hello",
    callers: ["loopd"],
    handle: async (_c, { config, log, toolset }) => ({
      ...greeting(log.failure),
      // Without [consult] nothing is ever waited for.
      consultTimeoutMs: config.consult?.timeoutMs ?? 0,
      tools: [...toolset.values()].map((tool) => tool.description),
    }),
  },
  {
    method: "POST",
    path: "/v1/call",
    callers: ["loopd"],
    handle: async (c, { calls }) =>
      await calls.call(await readJson(c, callRequestSchema), () => c.req.raw.signal),
  },
  {
    method: "GET",
    path: "/v1/calls/:session/:call",
    callers: ["loopd"],
    handle: async (c, { calls }) => {
      const { session, call } = parseWith(callPathSchema, c.req.param());
      return await calls.state(session, call);
    },
  },
  {
    method: "POST",
    path: "/v1/label",
    callers: ["loopd"],
    handle: async (c, { ledger, log }) => {
      const { session, label } = await readJson(c, labelRequestSchema);
      const joined = ledger.state(session, label);
      await log.commit();
      return { label: joined };
    },
  },
  {
    method: "GET",
    path: "/v1/hello",
    callers: ["owner"],
    handle: async (_c, { log }) => greeting(log.failure),
  },
  {
    method: "GET",
    path: "/v1/approvals",
    callers: ["owner"],
    handle: async (_c, { approvals }) => ({ approvals: approvals.list() }),
  },
  {
    method: "POST",
    path: "/v1/approvals/:id",
    callers: ["owner"],
    handle: async (c, { approvals }) => {
      const { decision, bodySha256 } = await readJson(c, approvalDecisionSchema);
      await approvals.decide(c.req.param("id") ?? "", decision, bodySha256);
      return {};
    },
  },
  {
    method: "GET",
    path: "/v1/ledger",
    callers: ["owner"],
    handle: async (_c, { fold }) => ({ sessions: fold.labels() }),
  },
  {
    method: "GET",
    path: "/v1/audit/head",
    callers: ["owner"],
    // Of an empty log, seq 0 and 64 zeros: what the first record will name as its prev.
    handle: async (_c, { log }) => log.head ?? { seq: 0, hash: "0".repeat(64) },
  },
  {
    method: "GET",
    path: "/v1/audit",
    callers: ["owner"],
    handle: async (c, { log }) => {
      const { before, limit, ...wanted } = parseWith(auditQuerySchema, c.req.query());
      const keys = Object.entries(wanted).filter(([, value]) => value !== undefined);
      return await readAuditPage(log.dir, {
        matches: (record) => keys.every(([key, value]) => record[key] === value),
        holding: keys.map(([key, value]) => `"${key}":${JSON.stringify(value)}`),
        before,
        recordsMax: limit ?? pageRecordsDefault,
        bytesMax: pageBytesMax,
        scanBytesMax: pageScanBytesMax,
      });
    },
  },
  {
    method: "POST",
    path: "/v1/audit/verify",
    callers: ["owner"],
    handle: async (c, { log }) => {
      await readJson(c, emptySchema);
      return await verifyAudit(log.dir);
    },
  },
  {
    method: "POST",
    path: "/v1/audit/prune",
    callers: ["owner"],
    handle: async (c, { log }) => {
      const { before } = await readJson(c, pruneRequestSchema);
      return { segments: await log.prune(before) };
    },
  },
  {
    method: "POST",
    path: "/v1/check",
    callers: ["owner"],
    handle: async (c, broker) => checkCall(broker, await readJson(c, checkRequestSchema)),
  },
  {
    method: "POST",
    path: "/v1/retire",
    callers: ["owner"],
    handle: async (c, { log, fold, calls }) => {
      const { session } = await readJson(c, retireRequestSchema);
      if (calls.isRunning([session, ...fold.family(session)])) {
        throw new ProtocolError(
          "busy",
          STATUS_CODE.Conflict,
          `a call of ${session} or of a session below it is under way; retire it when that has ended`,
        );
      }
      log.append({ kind: "retire", session });
      await log.commit();
      return { session };
    },
  },
  {
    method: "POST",
    path: "/v1/probe",
    callers: ["owner"],
    handle: async (c, broker) => {
      await readJson(c, emptySchema);
      return { findings: await broker.probe() };
    },
  },
  {
    method: "POST",
    path: "/v1/grants/reload",
    callers: ["owner"],
    handle: async (c, broker) => {
      await readJson(c, emptySchema);
      return await broker.reloadGrants();
    },
  },
];

function greeting(denyAll: string | undefined) {
  return { protocol: protocolVersion, role: "brokerd", ...(denyAll === undefined ? {} : { denyAll }) };
}

/** The rows of one caller as an app. `onBug` hears of our own faults. */
export function brokerApp(caller: Caller, broker: Broker, onBug: (error: unknown) => void): Hono {
  const app = createApp(onBug);
  for (const { method, path, callers, handle } of rows) {
    if (!callers.includes(caller)) continue;
    app.on(method, path, async (c) => {
      try {
        return c.json(withStatus(path, await handle(c, broker)));
      } catch (error) {
        // Well formed, and refused because nothing can be recorded: an ordinary answer.
        if (error instanceof AuditUnavailable) return c.json(deniedAnswer("AuditUnavailable"));
        throw error;
      }
    });
  }
  return app;
}

// Every well-formed request is answered with a status; a hello says what it is instead.
function withStatus(path: string, answer: object): object {
  return "status" in answer || path === "/v1/hello" ? answer : { status: "ok", ...answer };
}
