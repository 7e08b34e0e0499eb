// What a run leaves behind, read with every role stopped: the session logs, the audit log, the notes, and the bodies at the recorder.
// Reads; judges nothing (checks.ts does).

import { join } from "node:path";
import { z } from "zod";
import { readAudit } from "../../core/audit/read.ts";
import { type AuditRecord, auditRecordSchema } from "../../core/audit/record.ts";
import type { HomePaths } from "../../core/home.ts";
import { callIdSchema, isSessionId, type SessionId, sessionIdSchema } from "../../core/ids.ts";
import { parseJsonObject } from "../../core/json.ts";
import { labelSchema } from "../../core/labels.ts";

const turnSchema = z.int().min(1);
const schemas = {
  open: z.strictObject({ parent: sessionIdSchema.nullable(), label: labelSchema }),
  user: z.strictObject({ turn: turnSchema, text: z.string() }),
  assistant: z.strictObject({
    turn: turnSchema,
    calls: z.array(z.strictObject({ call: callIdSchema, name: z.string(), arguments: z.string() })),
  }),
  spawn: z.strictObject({ call: callIdSchema, child: sessionIdSchema }),
  result: z.strictObject({
    call: callIdSchema,
    tool: z.string(),
    status: z.enum(["ok", "denied", "error"]),
    code: z.string().optional(),
    text: z.string(),
    label: labelSchema,
  }),
  end: z.strictObject({ turn: turnSchema, status: z.string(), detail: z.string().optional() }),
};
type Kind = keyof typeof schemas;

/** The part of a session's record that the soak looks at. */
export type LogRecord =
  & { readonly seq: number; readonly time: string }
  & (
    | { [K in Kind]: { readonly kind: K } & Readonly<z.infer<(typeof schemas)[K]>> }[Kind]
    | { readonly kind: "other" }
  );

export interface LogReading {
  readonly records: readonly LogRecord[];
  /** The last line has no end, or a line is no record in its place. */
  readonly damage?: string;
}

/** A session's log, also while somebody writes it: a torn end is passed over and said. */
export async function readLog(paths: HomePaths, session: SessionId): Promise<LogReading> {
  const lines = (await readText(join(paths.sessions, session, "log.jsonl"))).split("\n");
  const torn = lines.pop();
  const records: LogRecord[] = [];
  for (const [index, line] of lines.entries()) {
    const record = parseJsonObject(line);
    if (record?.seq !== index + 1) {
      return { records, damage: `line ${index + 1} is no record of that number` };
    }
    records.push(parseRecord(record));
  }
  return { records, ...(torn === "" ? {} : { damage: "the last line has no end" }) };
}

function parseRecord(record: Readonly<Record<string, unknown>>): LogRecord {
  const { kind } = record;
  const place = { seq: Number(record.seq), time: String(record.time) };
  if (typeof kind !== "string" || !(kind in schemas)) return { ...place, kind: "other" };
  const schema = schemas[kind as Kind];
  const picked = Object.fromEntries(Object.keys(schema.shape).map((key) => [key, record[key]]));
  return { ...place, kind, ...schema.parse(picked) } as LogRecord;
}

export interface Evidence {
  readonly logs: ReadonlyMap<SessionId, LogReading>;
  readonly audit: readonly AuditRecord[];
  readonly notes: string;
}

export async function readEvidence(paths: HomePaths): Promise<Evidence> {
  const logs = new Map<SessionId, LogReading>();
  for await (const { name } of Deno.readDir(paths.sessions)) {
    if (isSessionId(name)) logs.set(name, await readLog(paths, name));
  }
  const audit: AuditRecord[] = [];
  for await (const shown of readAudit(paths.audit)) {
    if ("record" in shown) audit.push(auditRecordSchema.parse(shown.record));
  }
  return { logs, audit, notes: await readText(paths.notes) };
}

async function readText(path: string): Promise<string> {
  try {
    return await Deno.readTextFile(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return "";
    throw error;
  }
}
