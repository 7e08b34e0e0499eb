// The serving side of a Unix socket: one hono app on one 0600 socket, bodies bounded, every refusal in the one pinned shape.
// It knows no route and no role.

import { type Context, Hono } from "hono";
import { HTTPException } from "hono/http-exception";
import type { z } from "zod";
import { BugError, describeError, ProtocolError, UsageError } from "../errors.ts";
import { parseJson } from "../json.ts";
import { requestBodyBytesMax } from "../limits.ts";
import { describeMisfit } from "../misfit.ts";
import { errorAnswer } from "../protocol/common.ts";
import { STATUS_CODE } from "@std/http";

export interface Listener {
  /** Stops listening and drops connections, streams included. The socket file is removed. */
  close(): Promise<void>;
}

/** A hono app whose unknown paths, refusals and own faults answer `{status: "error", code, text}`. `onBug` hears of our own faults. */
export function createApp(onBug: (error: unknown) => void): Hono {
  const app = new Hono();
  app.notFound((c) =>
    c.json(errorAnswer("unknown-path", `no such path: ${c.req.method} ${shown(c.req.path)}`), 404)
  );
  app.onError((error, c) => {
    if (error instanceof ProtocolError) {
      return c.json(errorAnswer(error.code, error.message), error.httpStatus);
    }
    if (error instanceof HTTPException) {
      return c.json(errorAnswer("bad-request", error.message), STATUS_CODE.BadRequest);
    }
    onBug(error);
    return c.json(errorAnswer("internal", "this role met a fault of its own; its log says which"), 500);
  });
  return app;
}

/** The parsed body, or a ProtocolError: 413 past `requestBodyBytesMax`, 400 for bad JSON or a body that does not fit `schema`. */
export async function readJson<T>(c: Context, schema: z.ZodType<T>): Promise<T> {
  const parsed = parseJson(await readBody(c));
  if (parsed === undefined) {
    throw new ProtocolError(
      "bad-json",
      STATUS_CODE.BadRequest,
      "the body is not JSON (or nests too deep); wanted one JSON object",
    );
  }
  return parseWith(schema, parsed.value);
}

/** `value` as `schema` has it, or a ProtocolError that names each place that does not fit. */
export function parseWith<T>(schema: z.ZodType<T>, value: unknown): T {
  const result = schema.safeParse(value, { error: describeMisfit });
  if (result.success) return result.data;
  const issues = result.error.issues.slice(0, 5).map((issue) =>
    `${issue.path.join(".") || "body"}: ${issue.message}`
  );
  // An unknown key is named, and its name is the peer's.
  throw new ProtocolError("bad-request", STATUS_CODE.BadRequest, printable(issues.join("; ").slice(0, 500)));
}

async function readBody(c: Context): Promise<string> {
  const declared = c.req.header("content-length");
  if (Number(declared ?? 0) > requestBodyBytesMax) throw tooLarge();
  let bytes;
  try {
    // A body of a declared length cannot be longer: it is read at one go, at a third of what walking its stream costs.
    bytes = declared !== undefined && c.req.header("transfer-encoding") === undefined
      ? await c.req.raw.bytes()
      : await readStream(c.req.raw.body);
  } catch (error) {
    if (error instanceof ProtocolError) throw error;
    // The caller left in the middle, or its framing is broken: its own affair, and no fault of this role's.
    throw new ProtocolError("bad-request", STATUS_CODE.BadRequest, "the body broke off");
  }
  try {
    return utf8.decode(bytes);
  } catch {
    throw new ProtocolError("bad-json", STATUS_CODE.BadRequest, "the body is not UTF-8");
  }
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

function tooLarge(): ProtocolError {
  return new ProtocolError(
    "too-large",
    STATUS_CODE.ContentTooLarge,
    `the body is over ${requestBodyBytesMax} bytes`,
  );
}

async function readStream(stream: ReadableStream<Uint8Array> | null): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of stream ?? []) {
    length += chunk.length;
    if (length > requestBodyBytesMax) throw tooLarge();
    chunks.push(chunk);
  }
  return chunks.length === 1 ? chunks[0] : concat(chunks, length);
}

function concat(chunks: Uint8Array[], length: number): Uint8Array {
  const whole = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    whole.set(chunk, at);
    at += chunk.length;
  }
  return whole;
}

function shown(path: string): string {
  return printable(path.slice(0, 100)).replaceAll(" ", "?");
}

function printable(text: string): string {
  return text.replace(/[^\x20-\x7e]/g, "?");
}

/**
 * Listens on `path` and serves `app`. A socket file that nobody serves any more (a crash left it) is replaced; one that is served is a
 * UsageError. The file is made 0600 before the first request is answered; the directory must be 0700 already.
 */
export async function listenOnSocket(path: string, app: Hono): Promise<Listener> {
  await removeStaleSocket(path);
  const abort = new AbortController();
  const server = Deno.serve(
    { path, signal: abort.signal, onListen: () => {}, onError: serveFailed },
    app.fetch,
  );
  Deno.chmodSync(path, 0o600);
  return {
    // An abort, not shutdown(): shutdown waits for live event streams, which end only with their turn (facts/deno.md).
    async close() {
      abort.abort();
      await server.finished;
      await Deno.remove(path).catch(ignoreNotFound);
    },
  };
}

async function removeStaleSocket(path: string): Promise<void> {
  try {
    await Deno.lstat(path);
  } catch (error) {
    return ignoreNotFound(error);
  }
  try {
    (await Deno.connect({ transport: "unix", path })).close();
  } catch {
    return await Deno.remove(path).catch(ignoreNotFound);
  }
  throw new UsageError([{
    file: path,
    text: "another process serves this socket; stop it first",
    runbook: "home",
  }]);
}

function ignoreNotFound(error: unknown): void {
  if (!(error instanceof Deno.errors.NotFound)) throw error;
}

// What reaches here escaped the app's own handler: the response stream broke, mostly because the peer left.
function serveFailed(error: unknown): Response {
  if (error instanceof BugError) throw error;
  return Response.json(errorAnswer("internal", describeError(error).slice(0, 200)), { status: 500 });
}
