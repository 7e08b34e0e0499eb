// How commands speak to the roles: one request, an answer parsed by its schema, and every way it can fail told in the owner's words.
// loop.sock is loopd's, owner.sock brokerd's; nothing here retries.

import { z } from "zod";
import { exitCodes } from "../../core/errors.ts";
import { errorAnswerSchema } from "../../core/protocol/common.ts";
import { type TurnEvent, turnEventSchema } from "../../core/protocol/loop.ts";
import type { SessionId } from "../../core/ids.ts";
import { isJsonObject } from "../../core/json.ts";
import {
  PeerRefused,
  PeerUnreachable,
  requestEvents,
  requestJson,
  type SocketRequest,
} from "../../core/wire/client.ts";
import { CommandFailure, type Context } from "./command.ts";
import { visibleLine } from "./render.ts";

/** Which role is asked; each serves one socket that the owner's programs may reach. */
export type Peer = "loopd" | "brokerd";

/** Longest silence of a role on a request that streams nothing; a probe of the inference server takes the longest. */
const answerTimeoutMs = 60_000;

export function socketOf(context: Context, peer: Peer): string {
  return peer === "loopd" ? context.home.loopSocket : context.home.ownerSocket;
}

/** The answer to one request. Throws CommandFailure: exit 3 where the role does not run, 1 where it refuses. */
export async function ask<T>(
  context: Context,
  peer: Peer,
  request: SocketRequest,
  schema: z.ZodType<T>,
): Promise<T> {
  const answer = await requestJson(socketOf(context, peer), { timeoutMs: answerTimeoutMs, ...request })
    .catch((error) => {
      throw failureOf(context, peer, error);
    });
  if (answer.httpStatus !== 200) throw refusalOf(peer, answer.httpStatus, answer.body);
  const parsed = schema.safeParse(answer.body);
  if (parsed.success) return parsed.data;
  const bare = schema.safeParse(withoutStatus(answer.body));
  if (!bare.success) throw misfit(peer, request.path);
  return bare.data;
}

// Every well-formed request is answered with a `status`; most schemas describe what stands beside it.
function withoutStatus(body: unknown): unknown {
  if (!isJsonObject(body)) return body;
  const { status, ...rest } = body;
  return status === "ok" ? rest : body;
}

/** Answers of which nothing is read but that they came. */
export const doneSchema = z.record(z.string(), z.unknown());

/** Runs one turn. Ends after `done`, or when `signal` says so; throws CommandFailure where the stream ends without it. */
export async function* turnEvents(
  context: Context,
  session: SessionId,
  text: string,
  signal?: AbortSignal,
): AsyncGenerator<TurnEvent> {
  const path = `/v1/sessions/${session}/turns`;
  const events = requestEvents(socketOf(context, "loopd"), { method: "POST", path, body: { text }, signal });
  try {
    for await (const { event, data } of events) {
      const parsed = turnEventSchema.safeParse({ event, data });
      if (!parsed.success) throw misfit("loopd", path);
      yield parsed.data;
      if (parsed.data.event === "done") return;
    }
  } catch (error) {
    if (signal?.aborted) return;
    throw failureOf(context, "loopd", error);
  }
  throw new CommandFailure(
    exitCodes.failed,
    `the stream of ${session}'s turn ended without an outcome; see how it stands with: bx log ${session}`,
  );
}

const followedRecordSchema = z.record(z.string(), z.unknown());
export type LogRecord = z.infer<typeof followedRecordSchema>;
export const logAnswerSchema = z.strictObject({ records: z.array(followedRecordSchema) });

/** The records of a session from the first, then live ones until the signal. */
export async function* followLog(
  context: Context,
  session: SessionId,
  signal: AbortSignal,
): AsyncGenerator<LogRecord> {
  const path = `/v1/sessions/${session}/log?follow=1`;
  try {
    for await (
      const { event, data } of requestEvents(socketOf(context, "loopd"), { method: "GET", path, signal })
    ) {
      if (event !== "record") continue;
      const parsed = followedRecordSchema.safeParse(data);
      if (!parsed.success) throw misfit("loopd", path);
      yield parsed.data;
    }
  } catch (error) {
    if (signal.aborted) return;
    throw failureOf(context, "loopd", error);
  }
}

/** The failure to report for what was caught; a CommandFailure is itself. */
export function failureOf(context: Context, peer: Peer, error: unknown): unknown {
  if (error instanceof PeerRefused) {
    return refusalOf(peer, error.httpStatus, { status: "error", code: error.code, text: error.message });
  }
  if (!(error instanceof PeerUnreachable)) return error;
  if (error.sent) {
    return new CommandFailure(
      exitCodes.failed,
      `${peer} did not answer to its end; it may have acted, and an open turn goes on by itself when the role is back (bx log ID): ${
        visibleLine(error.message, 300)
      }`,
    );
  }
  return new CommandFailure(
    exitCodes.notRunning,
    `${peer} is not running: nothing answers on ${
      visibleLine(error.socketPath, 300)
    }; start both roles with: ` +
      `deno task up --home ${visibleLine(context.home.home, 300)}`,
    "roles-not-running",
  );
}

/** A refusal that the peer stated; `code` lets a command tell one kind from another. */
export class Refusal extends CommandFailure {
  constructor(peer: Peer, readonly httpStatus: number, readonly code: string, text: string) {
    super(exitCodes.failed, `${peer} refused: ${visibleLine(text, 600)} (${visibleLine(code, 60)})`);
  }
}

function refusalOf(peer: Peer, httpStatus: number, body: unknown): CommandFailure {
  const parsed = errorAnswerSchema.safeParse(body);
  return parsed.success
    ? new Refusal(peer, httpStatus, parsed.data.code, parsed.data.text)
    : new Refusal(peer, httpStatus, `http-${httpStatus}`, "without saying why");
}

function misfit(peer: Peer, path: string): CommandFailure {
  return new CommandFailure(
    exitCodes.failed,
    `${peer}'s answer to ${path} does not fit this bx; both must come from one checkout: restart the roles with deno task up`,
  );
}
