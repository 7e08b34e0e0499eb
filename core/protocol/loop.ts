// loop.sock: what the owner's programs ask of loopd.

import { z } from "zod";
import { callIdSchema, sessionIdSchema } from "../ids.ts";
import { classSchema, labelSchema } from "../labels.ts";
import { protocolVersion } from "./common.ts";

export const loopHelloSchema = z.strictObject({
  protocol: z.literal(protocolVersion),
  role: z.literal("loopd"),
});

export const newSessionRequestSchema = z.strictObject({ class: classSchema.optional() });
export const newSessionAnswerSchema = z.strictObject({ session: sessionIdSchema });

export const sessionStatuses = ["idle", "running", "waiting", "completed", "failed", "cancelled"] as const;

export const usageSchema = z.strictObject({
  /** Tokens of all prompts, cached ones included. */
  promptTokens: z.int(),
  cachedTokens: z.int(),
  completionTokens: z.int(),
});
export type Usage = z.infer<typeof usageSchema>;

/** One row of `bx sessions`. */
export const sessionRowSchema = z.strictObject({
  session: sessionIdSchema,
  parent: sessionIdSchema.nullable(),
  kind: z.string(),
  /** `running` or `waiting` (for a slot, a child, an approval) while held; else how its last turn ended; `idle` before the first. */
  status: z.enum(sessionStatuses),
  label: labelSchema,
  /** The slot its requests go to. */
  slot: z.int(),
  turns: z.int(),
  /** Of all prompt tokens so far, the share that the server did not compute again; null before the first request. */
  cachedShare: z.number().nullable(),
  /** Of all its own requests so far; a child's are the child's. */
  usage: usageSchema,
});
export type SessionRow = z.infer<typeof sessionRowSchema>;
export const sessionsAnswerSchema = z.strictObject({ sessions: z.array(sessionRowSchema) });

/** One row of `GET /v1/sessions?limit&after&parent&session`. */
export const sessionListRowSchema = z.strictObject({
  session: sessionIdSchema,
  parent: sessionIdSchema.nullable(),
  kind: z.string(),
  /** Null like `summary`. */
  status: z.enum(sessionStatuses).nullable(),
  slot: z.int(),
  /** When its log last grew. */
  changed: z.string(),
  children: z.int(),
  /** Beginning of the first text it was given. */
  title: z.string(),
  /** What takes reading the whole log; null until a later page has read that far. */
  summary: z.strictObject({
    label: labelSchema,
    turns: z.int(),
    cachedShare: z.number().nullable(),
    usage: usageSchema,
  }).nullable(),
});
export type SessionListRow = z.infer<typeof sessionListRowSchema>;
/** Newest first. */
export const sessionListAnswerSchema = z.strictObject({
  sessions: z.array(sessionListRowSchema),
  /** Ask again with `after` = this for those that changed earlier; absent at the end. */
  after: sessionIdSchema.optional(),
});

/** `GET /v1/sessions/:id/log?before&limit`: newest last. */
export const logPageAnswerSchema = z.strictObject({
  records: z.array(z.record(z.string(), z.unknown())),
  /** Ask again with `before` = this for the records before; absent at the beginning. */
  before: z.int().optional(),
});

export const turnRequestSchema = z.strictObject({
  text: z.string().min(1, { error: "is empty; wanted a message" }),
});

export const turnCallSchema = z.strictObject({
  call: callIdSchema,
  /** The inner tool's name where `call_tool` named one. */
  tool: z.string(),
  status: z.enum(["ok", "denied", "error"]),
  code: z.string().optional(),
});
export type TurnCall = z.infer<typeof turnCallSchema>;

/** The object of `send --json`, carried by the `done` event. */
export const turnOutcomeSchema = z.strictObject({
  session: sessionIdSchema,
  status: z.enum(["completed", "failed", "cancelled"]),
  /** The final text; of a failed turn, empty. */
  content: z.string(),
  /** Why it failed: one of the reasons of a completion message, then detail. */
  reason: z.string().optional(),
  label: labelSchema,
  calls: z.array(turnCallSchema),
  usage: usageSchema,
});
export type TurnOutcome = z.infer<typeof turnOutcomeSchema>;

/** What `POST /v1/sessions/:id/turns` streams; `event` is the SSE event name. */
export const turnEventSchema = z.discriminatedUnion("event", [
  z.strictObject({ event: z.literal("delta"), data: z.strictObject({ text: z.string() }) }),
  z.strictObject({ event: z.literal("thinking"), data: z.strictObject({ text: z.string() }) }),
  z.strictObject({
    event: z.literal("call"),
    data: z.strictObject({ call: callIdSchema, tool: z.string(), arguments: z.string() }),
  }),
  z.strictObject({
    event: z.literal("result"),
    data: z.strictObject({
      call: callIdSchema,
      tool: z.string(),
      status: z.enum(["ok", "denied", "error"]),
      code: z.string().optional(),
      text: z.string(),
      label: labelSchema,
    }),
  }),
  z.strictObject({ event: z.literal("done"), data: turnOutcomeSchema }),
]);
export type TurnEvent = z.infer<typeof turnEventSchema>;

export const slotRowSchema = z.strictObject({
  slot: z.int(),
  use: z.enum(["main", "background"]),
  state: z.enum(["idle", "busy", "draining"]),
  holder: sessionIdSchema.optional(),
  /** Who waits, in the order in which they will be served. */
  queue: z.array(z.strictObject({ session: sessionIdSchema, priority: z.string(), waitedMs: z.number() })),
});

/** One stretch of time in which a slot was held for one request, or drained after one. */
export const slotSpanSchema = z.strictObject({
  slot: z.int(),
  state: z.enum(["busy", "draining"]),
  session: sessionIdSchema.optional(),
  priority: z.string().optional(),
  /** Milliseconds in the queue before `start`. */
  queuedMs: z.number().optional(),
  start: z.string(),
  /** Null while it goes on. */
  end: z.string().nullable(),
  how: z.enum(["settled", "abandoned"]).optional(),
  /** Tokens of the prompt that the slot still held, that were computed, and that were computed again. */
  kept: z.strictObject({ cacheN: z.int(), promptN: z.int(), lostN: z.int() }).optional(),
});
export type SlotSpan = z.infer<typeof slotSpanSchema>;

/** `GET /v1/slots/history`: the last hour, oldest first, from memory; nothing from before `since`, when loopd started. */
export const slotHistoryAnswerSchema = z.strictObject({
  time: z.string(),
  since: z.string(),
  slots: z.array(slotRowSchema),
  held: z.array(sessionRowSchema),
  spans: z.array(slotSpanSchema),
});
export type SlotHistoryAnswer = z.infer<typeof slotHistoryAnswerSchema>;

export const scheduleRowSchema = z.strictObject({
  name: z.string(),
  session: sessionIdSchema,
  next: z.string().nullable(),
  lastStart: z.string().nullable(),
  lastSkip: z.strictObject({ time: z.string(), reason: z.string() }).nullable(),
});
export type ScheduleRow = z.infer<typeof scheduleRowSchema>;

/** `GET /v1/status`. */
export const statusAnswerSchema = z.strictObject({
  inference: z.strictObject({
    url: z.string(),
    remote: z.boolean(),
    reachable: z.boolean(),
    totalSlots: z.int().optional(),
    text: z.string().optional(),
  }),
  broker: z.strictObject({ reachable: z.boolean(), text: z.string().optional() }),
  slots: z.array(slotRowSchema),
  held: z.array(sessionRowSchema),
  schedule: z.array(scheduleRowSchema),
  sessions: z.int(),
});
export type StatusAnswer = z.infer<typeof statusAnswerSchema>;
