// The calling side of a Unix socket. node:http with `socketPath` needs the socket's own grant and no made-up host (facts/deno.md).
// Replies are bounded and parsed as JSON; what they mean is the caller's to say.

import { Buffer } from "node:buffer";
import * as http from "node:http";
import { parseJson } from "../json.ts";
import { responseBodyBytesMax } from "../limits.ts";
import { eventStreamParser, type ServerSentEvent } from "./event_stream.ts";

export interface SocketRequest {
  readonly method: "GET" | "POST";
  readonly path: string;
  /** Sent as JSON. */
  readonly body?: unknown;
  /** Aborting closes the connection, which the peer notices. */
  readonly signal?: AbortSignal;
  /** Longest silence on the connection; none by default. */
  readonly timeoutMs?: number;
}

/** Nobody serves the socket, or the connection broke before the whole answer was there. */
export class PeerUnreachable extends Error {
  override readonly name = "PeerUnreachable";
  constructor(readonly socketPath: string, detail: string, readonly sent: boolean) {
    super(`no answer on ${socketPath}: ${detail}`);
  }
}

/** One request, one JSON answer. Throws PeerUnreachable, or the signal's reason. */
export async function requestJson(
  socketPath: string,
  request: SocketRequest,
): Promise<{ httpStatus: number; body: unknown }> {
  const response = await open(socketPath, request);
  const chunks: Uint8Array[] = [];
  let length = 0;
  try {
    for await (const chunk of response) {
      length += chunk.length;
      if (length > responseBodyBytesMax) throw new Error(`the answer is over ${responseBodyBytesMax} bytes`);
      chunks.push(chunk);
    }
  } catch (error) {
    request.signal?.throwIfAborted();
    throw new PeerUnreachable(socketPath, text(error), true);
  }
  const parsed = parseJson(Buffer.concat(chunks).toString("utf-8"));
  if (parsed === undefined) throw new PeerUnreachable(socketPath, "the answer is not JSON", true);
  return { httpStatus: response.statusCode ?? 0, body: parsed.value };
}

/** An answer that is not 200: the peer refused the request before it streamed anything. */
export class PeerRefused extends Error {
  override readonly name = "PeerRefused";
  constructor(readonly httpStatus: number, readonly code: string, text: string) {
    super(text);
  }
}

/** One request, a stream of server-sent events, each with its data parsed. Returning early closes the connection. */
export async function* requestEvents(
  socketPath: string,
  request: SocketRequest,
): AsyncGenerator<{ event: string; data: unknown }> {
  const response = await open(socketPath, request);
  try {
    if (response.statusCode !== 200) throw await refusal(response);
    const parser = eventStreamParser();
    for await (const chunk of response) {
      for (const event of parser.push(chunk)) {
        const data = decode(event);
        if (data !== undefined) yield data;
      }
    }
  } catch (error) {
    request.signal?.throwIfAborted();
    if (error instanceof PeerRefused) throw error;
    throw new PeerUnreachable(socketPath, text(error), true);
  } finally {
    response.destroy();
  }
}

function decode(event: ServerSentEvent): { event: string; data: unknown } | undefined {
  const parsed = parseJson(event.data);
  return parsed === undefined ? undefined : { event: event.event, data: parsed.value };
}

async function refusal(response: http.IncomingMessage): Promise<PeerRefused> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of response) chunks.push(chunk);
  const body = parseJson(Buffer.concat(chunks).toString("utf-8"))?.value as
    | { code?: string; text?: string }
    | undefined;
  return new PeerRefused(
    response.statusCode ?? 0,
    body?.code ?? "error",
    body?.text ?? `HTTP ${response.statusCode}`,
  );
}

function open(socketPath: string, request: SocketRequest): Promise<http.IncomingMessage> {
  return new Promise((resolve, reject) => {
    request.signal?.throwIfAborted();
    const payload = request.body === undefined ? undefined : Buffer.from(JSON.stringify(request.body));
    const outgoing = http.request({
      socketPath,
      path: request.path,
      method: request.method,
      // A Host header is owed by HTTP/1.1; this one names nothing that could be resolved.
      headers: {
        host: "boxmaker",
        connection: "close",
        ...(payload === undefined
          ? {}
          : { "content-type": "application/json", "content-length": payload.length }),
      },
      agent: false,
      signal: request.signal,
    });
    let connected = false;
    outgoing.on("socket", (socket) => socket.once("connect", () => connected = true));
    outgoing.on("error", (error) => {
      if (request.signal?.aborted) reject(request.signal.reason);
      else reject(new PeerUnreachable(socketPath, text(error), connected));
    });
    if (request.timeoutMs !== undefined) {
      outgoing.setTimeout(
        request.timeoutMs,
        () => outgoing.destroy(new Error(`silent for ${request.timeoutMs} ms`)),
      );
    }
    outgoing.on("response", resolve);
    outgoing.end(payload);
  });
}

function text(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
