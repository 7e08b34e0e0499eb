// What the chat reads in session logs while it runs: the records that matter to it, as they are written. It asks loopd alone; a log that
// cannot be followed takes nothing from the conversation but what is shown beside it.

import { delay, systemClock } from "../../core/clock.ts";
import { isSessionId, type SessionId } from "../../core/ids.ts";
import { isJsonObject } from "../../core/json.ts";
import { type Label, labelSchema } from "../../core/labels.ts";
import { ask, followLog, logAnswerSchema, type LogRecord, Refusal } from "./client.ts";
import { CommandFailure, type Context } from "./command.ts";

export interface ModelCall {
  readonly call: number;
  readonly name: string;
  readonly arguments: string;
}

export interface RequestFacts {
  readonly cacheN: number;
  readonly promptN: number;
  readonly predictedN: number;
  readonly lostN: number;
  readonly firstTokenMs: number;
}

/** A record as far as the chat shows it. */
export type ChatRecord =
  | { readonly kind: "user"; readonly text: string }
  | {
    readonly kind: "assistant";
    readonly content: string;
    readonly calls: readonly ModelCall[];
    readonly facts: RequestFacts;
  }
  | { readonly kind: "spawn"; readonly call: number; readonly child: SessionId; readonly task: string }
  | {
    readonly kind: "result";
    readonly call: number;
    readonly tool: string;
    readonly status: string;
    readonly code: string | undefined;
    readonly label: Label | undefined;
  }
  | { readonly kind: "end"; readonly status: string; readonly reason: string };

/** `undefined` for kinds that the chat does not show. */
export function readRecord(record: LogRecord): ChatRecord | undefined {
  switch (record.kind) {
    case "user":
      return { kind: "user", text: textOf(record.text) };
    case "assistant":
      return {
        kind: "assistant",
        content: textOf(record.content),
        calls: Array.isArray(record.calls) ? record.calls.flatMap(readCall) : [],
        facts: readFacts(record),
      };
    case "spawn": {
      const child = textOf(record.child);
      if (!isSessionId(child)) return undefined;
      return { kind: "spawn", call: numberOf(record.call), child, task: textOf(record.task) };
    }
    case "result":
      return {
        kind: "result",
        call: numberOf(record.call),
        tool: textOf(record.tool),
        status: textOf(record.status),
        code: record.code === undefined ? undefined : textOf(record.code),
        label: labelSchema.safeParse(record.label).data,
      };
    case "end": {
      // "cancelled" is both: what by is the reason then.
      const reason = record.reason === record.status ? record.detail : record.reason;
      return { kind: "end", status: textOf(record.status), reason: textOf(reason) };
    }
    default:
      return undefined;
  }
}

/** All records until now; none of a session that begins with its first message. */
export async function readLog(context: Context, session: SessionId): Promise<LogRecord[]> {
  try {
    const request = { method: "GET", path: `/v1/sessions/${session}/log` } as const;
    return (await ask(context, "loopd", request, logAnswerSchema)).records;
  } catch (error) {
    if (error instanceof Refusal && error.code === "unknown-session") return [];
    throw error;
  }
}

/** Number of the last record; 0 before the first. */
export function lastSeq(records: readonly LogRecord[]): number {
  return numberOf(records.at(-1)?.seq);
}

/** A child's id is on record a moment before its log is there. */
const bornTriesMax = 100;
const bornPauseMs = 50;

/** How far a log was read: the number of the last record. */
export interface Position {
  seq: number;
}

/** Records behind the position, which moves along, until the signal. Ends early where loopd goes away or refuses. */
export async function* newRecords(
  context: Context,
  session: SessionId,
  { position, signal }: { position: Position; signal: AbortSignal },
): AsyncGenerator<ChatRecord> {
  for (let tries = 1; !signal.aborted; tries++) {
    try {
      for await (const record of followLog(context, session, signal)) {
        if (numberOf(record.seq) <= position.seq) continue;
        position.seq = numberOf(record.seq);
        const read = readRecord(record);
        if (read !== undefined) yield read;
      }
      return;
    } catch (error) {
      if (!(error instanceof CommandFailure)) throw error;
      const unborn = error instanceof Refusal && error.code === "unknown-session";
      if (!unborn || tries >= bornTriesMax) return;
    }
    await delay(systemClock, bornPauseMs, signal).catch(() => {});
  }
}

function readCall(value: unknown): ModelCall[] {
  if (!isJsonObject(value)) return [];
  return [{ call: numberOf(value.call), name: textOf(value.name), arguments: textOf(value.arguments) }];
}

function readFacts({ timings, lostN, firstTokenMs }: LogRecord): RequestFacts {
  const { cacheN, promptN, predictedN } = isJsonObject(timings) ? timings : {};
  return {
    cacheN: numberOf(cacheN),
    promptN: numberOf(promptN),
    predictedN: numberOf(predictedN),
    lostN: numberOf(lostN),
    firstTokenMs: numberOf(firstTokenMs),
  };
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function numberOf(value: unknown): number {
  return typeof value === "number" ? value : 0;
}
