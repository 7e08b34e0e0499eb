// loop.sock: one row a method, each with its handler. Who may call is told by the socket: the owner's programs, nobody else.

import { type Context, Hono } from "hono";
import { streamSSE } from "hono/streaming";
import { z } from "zod";
import { STATUS_CODE } from "@std/http";
import { ProtocolError, UsageError } from "../core/errors.ts";
import { isSessionId, type SessionId, sessionIdSchema } from "../core/ids.ts";
import { emptySchema, protocolVersion } from "../core/protocol/common.ts";
import { newSessionRequestSchema, type TurnEvent, turnRequestSchema } from "../core/protocol/loop.ts";
import { userTextBytesMax } from "../core/limits.ts";
import { utf8Length } from "../core/text.ts";
import { createApp, parseWith, readJson } from "../core/wire/server.ts";
import type { Archive } from "./archive.ts";
import { newChatId, openOrCreate } from "./new_session.ts";
import { probe } from "./probe.ts";
import type { RootTurns } from "./root_turns.ts";
import type { Scheduler } from "./scheduler.ts";
import type { Services } from "./services.ts";
import { readSessionLog, sessionLogPath } from "./session/log.ts";
import { readLogPage } from "./session/log_page.ts";
import type { SessionList } from "./session_list.ts";
import type { SessionRecord } from "./session/record.ts";
import { unknownSession } from "./session/store.ts";
import { sessionRow, sessionRows, slotHistory, status } from "./status.ts";

/** Of all of `doctor`'s questions together: a small device computes a prompt of a thousand tokens for seconds. */
const probeTimeoutMs = 120_000;

/** Rows of one page of the list, records of one page of a log, and their bytes. */
const listRowsMax = 500;
const listRowsDefault = 50;
const logPageRecordsMax = 1_000;
const logPageRecordsDefault = 100;
const logPageBytesMax = 4 * 1_048_576;

const count = (max: number) => z.string().regex(/^[1-9]\d{0,15}$/).transform(Number).pipe(z.int().max(max));
const listQuerySchema = z.strictObject({
  limit: count(listRowsMax).optional(),
  after: sessionIdSchema.optional(),
  parent: z.union([z.literal(""), sessionIdSchema]).optional(),
  session: sessionIdSchema.optional(),
});
const logQuerySchema = z.strictObject({
  follow: z.string().optional(),
  before: count(Number.MAX_SAFE_INTEGER).optional(),
  limit: count(logPageRecordsMax).optional(),
});

export interface LoopServerOptions {
  readonly services: Services;
  readonly turns: RootTurns;
  readonly scheduler: Scheduler;
  readonly archive: Archive;
  readonly list: SessionList;
  readonly sessionsDirectory: string;
  readonly onBug: (error: unknown) => void;
}

export function loopServer(options: LoopServerOptions): Hono {
  const { services, turns, scheduler, archive, list, sessionsDirectory } = options;
  const app = createApp(options.onBug);

  app.get("/v1/hello", (c) => c.json({ protocol: protocolVersion, role: "loopd" }));
  app.get("/v1/status", async (c) => c.json({ status: "ok", ...await status(services, scheduler) }));
  app.get("/v1/slots/history", (c) => c.json({ status: "ok", ...slotHistory(services) }));
  app.get("/v1/sessions", async (c) => {
    if (Object.keys(c.req.query()).length === 0) {
      return c.json({ status: "ok", sessions: await sessionRows(services) });
    }
    const { limit = listRowsDefault, ...query } = parseWith(listQuerySchema, c.req.query());
    return c.json({ status: "ok", ...await list.page({ limit, ...query }) });
  });

  app.post("/v1/sessions", async (c) => {
    const { class: sensitivity } = await readJson(c, newSessionRequestSchema);
    const label = { class: sensitivity ?? services.config.session.class, untrusted: false };
    const session = await services.store.create(newChatId(), label);
    return c.json({ status: "ok", session: session.id });
  });

  app.post("/v1/sessions/:id/turns", async (c) => {
    const id = sessionIdOf(c);
    const { text } = await readJson(c, turnRequestSchema);
    if (utf8Length(text) > userTextBytesMax) {
      throw new ProtocolError(
        "too-large",
        STATUS_CODE.ContentTooLarge,
        `text is over ${userTextBytesMax} bytes`,
      );
    }
    const session = await openOrCreate(id, services, sessionsDirectory);
    const events = eventQueue();
    const outcome = turns.begin(session, text, events.push);
    outcome.then(events.end, events.fail);
    return streamSSE(c, async (stream) => {
      for await (const { event, data } of events.read()) {
        await stream.writeSSE({ event, data: JSON.stringify(data) });
      }
    });
  });

  app.post("/v1/sessions/:id/cancel", async (c) => {
    const id = sessionIdOf(c);
    await readJson(c, emptySchema);
    await mustExist(id, services);
    return c.json({ status: "ok", cancelled: await turns.cancel(id) });
  });

  app.get("/v1/sessions/:id", async (c) => {
    const id = sessionIdOf(c);
    const row = await sessionRow(id, services);
    if (row === undefined) throw unknownSession(id);
    return c.json(row);
  });

  app.get("/v1/sessions/:id/log", async (c) => {
    const id = sessionIdOf(c);
    const { follow, before, limit } = parseWith(logQuerySchema, c.req.query());
    if (before !== undefined || limit !== undefined) {
      const path = sessionLogPath(sessionsDirectory, id);
      const page = await readLogPage(path, {
        before,
        recordsMax: limit ?? logPageRecordsDefault,
        bytesMax: logPageBytesMax,
      }).catch((error) => refuseLog(id, error));
      return c.json({ status: "ok", ...page });
    }
    await mustExist(id, services);
    if (follow === undefined) {
      const path = sessionLogPath(sessionsDirectory, id);
      const records = await readSessionLog(path).catch((error) => refuseLog(id, error));
      return c.json({ status: "ok", records });
    }
    return streamSSE(c, async (stream) => {
      for await (const record of followLog(id, services, sessionsDirectory, stream.onAbort.bind(stream))) {
        await stream.writeSSE({ event: "record", data: JSON.stringify(record) });
      }
    });
  });

  app.post("/v1/sessions/:id/retire", async (c) => {
    const id = sessionIdOf(c);
    await readJson(c, emptySchema);
    await archive.retire(id);
    return c.json({ status: "ok", session: id });
  });

  app.post("/v1/sessions/:id/forget", async (c) => {
    const id = sessionIdOf(c);
    await readJson(c, emptySchema);
    await archive.forget(id);
    return c.json({ status: "ok", session: id });
  });

  app.post("/v1/probe", async (c) => {
    await readJson(c, emptySchema);
    return c.json({ status: "ok", findings: await probe(services, AbortSignal.timeout(probeTimeoutMs)) });
  });

  return app;
}

function sessionIdOf(c: Context): SessionId {
  const id = c.req.param("id") ?? "";
  if (!isSessionId(id)) {
    throw new ProtocolError(
      "bad-session-id",
      STATUS_CODE.BadRequest,
      "a session id is 1 to 64 characters of a-z, 0-9 and -",
    );
  }
  return id;
}

async function mustExist(id: SessionId, services: Services): Promise<void> {
  if (!await services.store.exists(id)) throw unknownSession(id);
}

function refuseLog(id: SessionId, error: unknown): never {
  if (error instanceof Deno.errors.NotFound) throw unknownSession(id);
  if (!(error instanceof UsageError)) throw error;
  throw new ProtocolError("newer-format", STATUS_CODE.Conflict, error.message);
}

// Between a turn that emits and a reader that may be slow or gone: a reader that is gone leaves the turn running.
function eventQueue() {
  const events: TurnEvent[] = [];
  let ended: { error?: unknown } | undefined;
  let wake = () => {};
  return {
    push(event: TurnEvent) {
      events.push(event);
      wake();
    },
    end() {
      ended = {};
      wake();
    },
    fail(error: unknown) {
      ended = { error };
      wake();
    },
    async *read(): AsyncGenerator<TurnEvent> {
      for (;;) {
        yield* events.splice(0);
        if (events.length > 0) continue;
        if (ended !== undefined) return;
        await new Promise<void>((resolve) => wake = resolve);
      }
    },
  };
}

// From the first record, then live. The session is followed before its log is read, and what both saw is told by its number.
async function* followLog(
  id: SessionId,
  services: Services,
  sessionsDirectory: string,
  onAbort: (listener: () => void) => void,
): AsyncGenerator<SessionRecord> {
  const session = await services.store.get(id);
  const live: SessionRecord[] = [];
  let gone = false;
  let wake = () => {};
  const unfollow = session.follow((record) => {
    live.push(record);
    wake();
  });
  onAbort(() => {
    gone = true;
    wake();
  });
  try {
    let seq = 0;
    for (const record of await readSessionLog(sessionLogPath(sessionsDirectory, id))) {
      seq = record.seq;
      yield record;
    }
    while (!gone) {
      for (const record of live.splice(0)) if (record.seq > seq) yield record;
      if (live.length === 0 && !gone) await new Promise<void>((resolve) => wake = resolve);
    }
  } finally {
    unfollow();
  }
}
