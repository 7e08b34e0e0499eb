// What the consult endpoint does with a request: the proper answer, and every fault that a peer can show.
// Owns: the kinds of behaviour and the bytes that each writes. Never records anything, and never waits for
// longer than its connection lives.

import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { z } from "zod";
import { concat, type Connection, utf8 } from "./wire.ts";

const fillerBytes = 64 * 1024;
const endlessBytesDefault = 64 * 1024 * 1024;
const questionCharactersShown = 60;

export type Behaviour =
  /** A proper completion. `model` defaults to the one that was asked for. */
  | { kind: "answer"; content?: string | ((question: string) => string); model?: string }
  | { kind: "status"; status: number; body?: string; headers?: Record<string, string> }
  | { kind: "redirect"; status: 301 | 302 | 303 | 307 | 308; location: string }
  /** A TCP reset; with `orderly`, a plain close instead. */
  | { kind: "reset"; when: "before-body" | "in-body" | "after-body" | "in-reply"; orderly?: boolean }
  /** The proper answer in small parts; before each, `step` is awaited or `everyMs` waited. */
  | { kind: "drip"; partBytes?: number; everyMs?: number; step?: (part: number) => Promise<void> | void }
  /** Nothing until `release()`, then the proper answer. With `head`, the reply's head comes at once. */
  | { kind: "silence"; head?: boolean }
  | { kind: "endless-headers"; bytesMax?: number }
  /** A proper completion of at least that many bytes; without `declared`, no length is announced. */
  | { kind: "huge"; bytes: number; declared?: boolean }
  | { kind: "encoded"; encoding: "gzip" | "br" | "deflate" }
  | { kind: "html" }
  | { kind: "empty" }
  /** The question as the answer. */
  | { kind: "echo" }
  | { kind: "wrong-model" }
  /** Two whole replies in one write. */
  | { kind: "two-replies" }
  /** No content-length: the body ends with the connection. */
  | { kind: "until-close" }
  | { kind: "chunked" }
  /** Announces more bytes than it sends. */
  | { kind: "short" }
  /** Any JSON with status 200. */
  | { kind: "json"; value: unknown }
  /** Exactly these bytes, then the connection closes. */
  | { kind: "raw"; bytes: string | Uint8Array<ArrayBuffer> };

const kind = <K extends Behaviour["kind"]>(name: K) => z.literal(name);
const count = z.int().min(0);
const headersSchema = z.record(z.string(), z.string());

const behaviourSchema = z.discriminatedUnion("kind", [
  z.strictObject({ kind: kind("answer"), content: z.string().optional(), model: z.string().optional() }),
  z.strictObject({
    kind: kind("status"),
    status: z.int().min(100).max(599),
    body: z.string().optional(),
    headers: headersSchema.optional(),
  }),
  z.strictObject({
    kind: kind("redirect"),
    status: z.literal([301, 302, 303, 307, 308]),
    location: z.string(),
  }),
  z.strictObject({
    kind: kind("reset"),
    when: z.enum(["before-body", "in-body", "after-body", "in-reply"]),
    orderly: z.boolean().optional(),
  }),
  z.strictObject({ kind: kind("drip"), partBytes: z.int().min(1).optional(), everyMs: count.optional() }),
  z.strictObject({ kind: kind("silence"), head: z.boolean().optional() }),
  z.strictObject({ kind: kind("endless-headers"), bytesMax: count.optional() }),
  z.strictObject({ kind: kind("huge"), bytes: count, declared: z.boolean().optional() }),
  z.strictObject({ kind: kind("encoded"), encoding: z.enum(["gzip", "br", "deflate"]) }),
  z.strictObject({ kind: kind("html") }),
  z.strictObject({ kind: kind("empty") }),
  z.strictObject({ kind: kind("echo") }),
  z.strictObject({ kind: kind("wrong-model") }),
  z.strictObject({ kind: kind("two-replies") }),
  z.strictObject({ kind: kind("until-close") }),
  z.strictObject({ kind: kind("chunked") }),
  z.strictObject({ kind: kind("short") }),
  z.strictObject({ kind: kind("json"), value: z.unknown() }),
  z.strictObject({ kind: kind("raw"), bytes: z.string() }),
]);

/** Parses the JSON form of a behaviour: the same objects, without functions. */
export function parseBehaviour(json: string): Behaviour {
  const parsed = behaviourSchema.safeParse(JSON.parse(json));
  if (!parsed.success) throw new Error(`the behaviour does not fit: ${z.prettifyError(parsed.error)}`);
  return parsed.data;
}

/** What a behaviour is given to work with. */
export interface Exchange {
  connection: Connection;
  question: string;
  /** The model that the request names. */
  model: string;
  /** Settles when silence is to end. */
  released: Promise<void>;
}

/** Does what `behaviour` says after the body was read. Says whether the connection may serve another request. */
export async function perform(behaviour: Behaviour, exchange: Exchange): Promise<boolean> {
  const { connection } = exchange;
  switch (behaviour.kind) {
    case "answer":
      return await reply(connection, answerJson(exchange, behaviour));
    case "echo":
      return await reply(connection, answerJson(exchange, { content: exchange.question }));
    case "wrong-model":
      return await reply(connection, answerJson(exchange, { model: `not-${exchange.model}` }));
    case "json":
      return await reply(connection, JSON.stringify(behaviour.value));
    case "empty":
      return await reply(connection, "");
    case "html":
      return await reply(connection, "<!doctype html><title>Welcome</title><p>Please sign in.", {
        headers: { "content-type": "text/html" },
      });
    case "status":
      return await reply(connection, behaviour.body ?? "", behaviour);
    case "redirect": {
      const { status, location } = behaviour;
      return await reply(connection, "", { status, headers: { location } });
    }
    case "encoded":
      return await reply(connection, encode(behaviour.encoding, answerJson(exchange)), {
        headers: { "content-encoding": behaviour.encoding },
      });
    case "two-replies": {
      const one = message(utf8(answerJson(exchange)));
      await connection.write(concat([one, one]));
      return true;
    }
    case "chunked":
      return await sendChunked(exchange);
    case "silence":
      return await staySilent(behaviour, exchange);
    case "drip":
      return await drip(behaviour, exchange);
    case "huge":
      return await sendHuge(behaviour, exchange);
    case "endless-headers":
      await sendEndlessHeaders(behaviour, connection);
      return false;
    case "short": {
      const whole = message(utf8(answerJson(exchange)));
      await connection.write(whole.subarray(0, whole.byteLength - 10));
      return false;
    }
    case "until-close":
      await connection.write(concat([
        head(200, { "content-type": "application/json", connection: "close" }),
        utf8(answerJson(exchange)),
      ]));
      return false;
    case "raw":
      await connection.write(behaviour.bytes);
      return false;
    case "reset":
      if (behaviour.when === "in-reply") {
        await connection.write(message(utf8(answerJson(exchange))).subarray(0, -10));
      }
      leave(behaviour, connection);
      return false;
  }
}

/** Ends the connection as a `reset` behaviour wants it. */
export function leave(behaviour: { orderly?: boolean }, connection: Connection): void {
  if (behaviour.orderly) connection.destroy();
  else connection.reset();
}

function answerJson(
  exchange: Exchange,
  wanted: { content?: string | ((question: string) => string); model?: string } = {},
): string {
  const { question, model } = exchange;
  const { content = defaultAnswer } = wanted;
  return JSON.stringify({
    id: "chatcmpl-sink",
    object: "chat.completion",
    created: Math.floor(Date.now() / 1000),
    model: wanted.model ?? model,
    choices: [{
      index: 0,
      message: { role: "assistant", content: typeof content === "string" ? content : content(question) },
      finish_reason: "stop",
    }],
    usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
  });
}

function defaultAnswer(question: string): string {
  return `stub answer to: ${[...question].slice(0, questionCharactersShown).join("")}`;
}

async function reply(
  connection: Connection,
  body: string | Uint8Array<ArrayBuffer>,
  options: { status?: number; headers?: Record<string, string> } = {},
): Promise<boolean> {
  await connection.write(message(typeof body === "string" ? utf8(body) : body, options));
  return true;
}

function message(
  body: Uint8Array<ArrayBuffer>,
  options: { status?: number; headers?: Record<string, string> } = {},
): Uint8Array<ArrayBuffer> {
  const headers = {
    "content-type": "application/json",
    ...options.headers,
    "content-length": String(body.byteLength),
  };
  return concat([head(options.status ?? 200, headers), body]);
}

function head(status: number, headers: Record<string, string>): Uint8Array<ArrayBuffer> {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return utf8(`HTTP/1.1 ${status} Stub\r\n${lines.join("")}\r\n`);
}

function encode(encoding: "gzip" | "br" | "deflate", text: string): Uint8Array<ArrayBuffer> {
  const compress = { gzip: gzipSync, br: brotliCompressSync, deflate: deflateSync }[encoding];
  return new Uint8Array(compress(utf8(text)));
}

async function sendChunked(exchange: Exchange): Promise<boolean> {
  const { connection } = exchange;
  await connection.write(head(200, { "content-type": "application/json", "transfer-encoding": "chunked" }));
  const body = utf8(answerJson(exchange));
  for (const part of [body.subarray(0, 7), body.subarray(7)]) {
    await connection.write(
      concat([utf8(`${part.byteLength.toString(16)}\r\n`), new Uint8Array(part), utf8("\r\n")]),
    );
  }
  await connection.write("0\r\n\r\n");
  return true;
}

async function staySilent(
  behaviour: Extract<Behaviour, { kind: "silence" }>,
  exchange: Exchange,
): Promise<boolean> {
  const { connection, released } = exchange;
  const body = utf8(answerJson(exchange));
  const whole = message(body);
  const headBytes = behaviour.head ? whole.byteLength - body.byteLength : 0;
  if (headBytes > 0) await connection.write(whole.subarray(0, headBytes));
  await unlessGone(connection, released);
  return await connection.write(whole.subarray(headBytes));
}

async function drip(behaviour: Extract<Behaviour, { kind: "drip" }>, exchange: Exchange): Promise<boolean> {
  const { connection } = exchange;
  const { partBytes = 1, everyMs = 50, step } = behaviour;
  const whole = message(utf8(answerJson(exchange)));
  for (let at = 0; at < whole.byteLength && !connection.gone.aborted; at += partBytes) {
    if (step !== undefined) await unlessGone(connection, step(at / partBytes));
    else await pause(connection, everyMs);
    await connection.write(whole.subarray(at, at + partBytes));
  }
  return !connection.gone.aborted;
}

async function sendHuge(
  behaviour: Extract<Behaviour, { kind: "huge" }>,
  exchange: Exchange,
): Promise<boolean> {
  const { connection } = exchange;
  const { bytes, declared = true } = behaviour;
  const mark = "@filler@";
  const [before, after] = answerJson(exchange, { content: mark }).split(mark);
  const headers = { "content-type": "application/json" };
  await connection.write(
    head(
      200,
      declared
        ? { ...headers, "content-length": String(before.length + bytes + after.length) }
        : { ...headers, connection: "close" },
    ),
  );
  await connection.write(before);
  for (let left = bytes; left > 0 && !connection.gone.aborted; left -= fillerBytes) {
    await connection.write("x".repeat(Math.min(left, fillerBytes)));
  }
  await connection.write(after);
  return declared;
}

async function sendEndlessHeaders(
  behaviour: Extract<Behaviour, { kind: "endless-headers" }>,
  connection: Connection,
): Promise<void> {
  const lines = `x-filler: ${"x".repeat(1000)}\r\n`.repeat(16);
  let left = behaviour.bytesMax ?? endlessBytesDefault;
  await connection.write("HTTP/1.1 200 Stub\r\n");
  while (left > 0 && await connection.write(lines)) left -= lines.length;
}

/** What `work` gives, or undefined when the peer leaves before. */
export async function unlessGone<T>(connection: Connection, work: T | Promise<T>): Promise<T | undefined> {
  const { gone } = connection;
  if (gone.aborted) return undefined;
  const leaving = Promise.withResolvers<undefined>();
  const leave = () => leaving.resolve(undefined);
  gone.addEventListener("abort", leave, { once: true });
  try {
    return await Promise.race([work, leaving.promise]);
  } finally {
    gone.removeEventListener("abort", leave);
  }
}

async function pause(connection: Connection, ms: number): Promise<void> {
  const over = Promise.withResolvers<void>();
  const timer = setTimeout(() => over.resolve(), ms);
  await unlessGone(connection, over.promise);
  clearTimeout(timer);
}
