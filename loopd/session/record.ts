// The records of one session's log: what is written, in which shape, and nothing else. `log.ts` makes them durable, `session.ts` folds them.

import { z } from "zod";
import { formatVersions } from "../../core/format_versions.ts";
import { callIdSchema, sessionIdSchema } from "../../core/ids.ts";
import { labelSchema } from "../../core/labels.ts";

/** Format of the log; a newer one is refused, never guessed at. */
export const sessionLogVersion = formatVersions.session;

const common = { v: z.literal(sessionLogVersion), seq: z.int().min(1), time: z.string() };

export const modelCallSchema = z.strictObject({
  call: callIdSchema,
  name: z.string(),
  /** The model's own JSON text of one object, checked before it is stored and never re-serialised. */
  arguments: z.string(),
});
export type ModelCall = z.infer<typeof modelCallSchema>;

/** Token counts of one request as the server reports them (facts/llama-server.md 3a). */
export const timingsSchema = z.strictObject({
  cacheN: z.int().min(0),
  promptN: z.int().min(0),
  predictedN: z.int().min(0),
});
export type Timings = z.infer<typeof timingsSchema>;

/** `raw`: as the model wrote them. `structured`: content, thinking and tool calls apart, for the server to render. */
export type HistoryMode = RecordOf<"history">["mode"];

export const turnEnds = ["completed", "failed", "cancelled"] as const;
export type TurnEnd = typeof turnEnds[number];

export const failureReasons = [
  "model-error",
  "overflow",
  "silent",
  "cut",
  "bad-arguments",
  "empty",
  "iterations",
  "interrupted",
  "cancelled",
  "expired",
] as const;
/** Why a turn failed, as a completion message names it. */
export type FailureReason = typeof failureReasons[number];

export const sessionRecordSchema = z.discriminatedUnion("kind", [
  z.strictObject({
    ...common,
    kind: z.literal("open"),
    session: sessionIdSchema,
    parent: sessionIdSchema.nullable(),
    /** The label it starts at: its class from the owner or the configuration, a child's from its parent (S12). */
    label: labelSchema,
  }),
  z.strictObject({
    ...common,
    kind: z.literal("epoch"),
    epoch: z.int().min(1),
    /** The frozen baseline: what every request of this epoch begins with (B2). */
    system: z.string(),
    /** The tools array as its exact JSON text, so that it stays byte-equal over restarts. */
    tools: z.string(),
    /** After a compaction: what stands for the records up to `coversTo`; those behind it go on as they were said. */
    summary: z.string().optional(),
    coversTo: z.int().optional(),
    /** The open turn's user text, where its record is among the covered ones. */
    request: z.string().optional(),
  }),
  /** How model messages go back to the server from here on; structured before the first such record. */
  z.strictObject({ ...common, kind: z.literal("history"), mode: z.enum(["raw", "structured"]) }),
  z.strictObject({ ...common, kind: z.literal("user"), turn: z.int().min(1), text: z.string() }),
  z.strictObject({
    ...common,
    kind: z.literal("assistant"),
    turn: z.int().min(1),
    /** The text as the model wrote it, where the session's history is raw; what follows was read from it. */
    raw: z.string().optional(),
    content: z.string(),
    thinking: z.string(),
    calls: z.array(modelCallSchema),
    slot: z.int(),
    timings: timingsSchema,
    /** Tokens of this session's own prefix that the server computed again, beyond what the law of the prefix allows (facts 2.1). */
    lostN: z.int().min(0),
    /** Milliseconds in the slot's queue, from request to first token, and in all. */
    queuedMs: z.number(),
    firstTokenMs: z.number(),
    elapsedMs: z.number(),
  }),
  z.strictObject({
    ...common,
    kind: z.literal("spawn"),
    call: callIdSchema,
    child: sessionIdSchema,
    task: z.string(),
  }),
  z.strictObject({
    ...common,
    kind: z.literal("result"),
    call: callIdSchema,
    /** The inner tool's name where `call_tool` named one. */
    tool: z.string(),
    status: z.enum(["ok", "denied", "error"]),
    code: z.string().optional(),
    text: z.string(),
    label: labelSchema,
  }),
  z.strictObject({
    ...common,
    kind: z.literal("end"),
    turn: z.int().min(1),
    status: z.enum(turnEnds),
    reason: z.enum(failureReasons).optional(),
    detail: z.string().optional(),
  }),
  /** A short form of a tool's output that was too long for the context; the full text lies beside the log. */
  z.strictObject({ ...common, kind: z.literal("output-summary"), call: callIdSchema, text: z.string() }),
  /** The role stopped in order while the turn was open. */
  z.strictObject({ ...common, kind: z.literal("pause"), turn: z.int().min(1) }),
  /** The turn went on after a restart. Those after a crash are counted: a session that ends loopd twice is not tried a third time. */
  z.strictObject({
    ...common,
    kind: z.literal("resume"),
    turn: z.int().min(1),
    after: z.enum(["stop", "crash"]),
  }),
  z.strictObject({ ...common, kind: z.literal("repair"), text: z.string() }),
]);
export type SessionRecord = z.infer<typeof sessionRecordSchema>;
export type RecordOf<K extends SessionRecord["kind"]> = Extract<SessionRecord, { kind: K }>;

/** A record before the log numbers and dates it. */
export type NewRecord = SessionRecord extends infer R
  ? R extends SessionRecord ? Omit<R, "v" | "seq" | "time"> : never
  : never;
