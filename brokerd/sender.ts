// One HTTP/1.1 POST: the bytes it is given, once, under fixed headers, and what came back of it. Never retries, never follows a
// redirect, uses no proxy and no connection twice. The bearer value goes into the Authorization header and nowhere else.
// `node:http(s)` with `agent: false`, because the default fetch sends twice when a kept connection breaks (docs/decisions.md).

import { Buffer } from "node:buffer";
import * as http from "node:http";
import * as https from "node:https";
import type { Clock } from "../core/clock.ts";
import { socketAddress } from "../core/config/address.ts";
import { replyEnd } from "./reply_end.ts";

export interface Post {
  /** https, or http to a loopback address; checked when the configuration was loaded. */
  readonly url: string;
  readonly bearer: string | undefined;
  readonly body: Uint8Array;
  /** From now to the last byte of the reply. */
  readonly timeoutMs: number;
  readonly replyBytesMax: number;
  readonly clock: Clock;
  /** brokerd is stopping: what was sent is `unknown`. */
  readonly signal: AbortSignal;
}

export type PostResult =
  | { readonly outcome: "reply"; readonly status: number; readonly body: Uint8Array }
  | { readonly outcome: "http"; readonly status: number; readonly reason: string }
  | {
    readonly outcome: "timeout" | "unreachable" | "unknown" | "unusable";
    readonly status?: number;
    /** For the owner's log: our own words, never the peer's. */
    readonly reason: string;
  };

const headBytesMax = 16_384;
/** Framing of a chunked reply may take as much again as its content, and this much more. */
const framingBytesMax = 1_048_576;

/** Resolves, whatever happens, with exactly one result. */
export function post(request: Post): Promise<PostResult> {
  const url = new URL(request.url);
  const { host, port, secure } = socketAddress(url);
  return new Promise((resolve) => {
    let connected = false;
    let result: PostResult | undefined;
    const raw: Uint8Array[] = [];
    let rawBytes = 0;

    const outgoing = (secure ? https : http).request({
      hostname: host,
      port,
      path: url.pathname + url.search,
      method: "POST",
      agent: false,
      setHost: false,
      maxHeaderSize: headBytesMax,
      // In this order and nothing else.
      headers: {
        host: url.host,
        "content-type": "application/json",
        "content-length": String(request.body.length),
        ...(request.bearer === undefined ? {} : authorization(request.bearer)),
        accept: "application/json",
        "accept-encoding": "identity",
        "user-agent": "boxmaker",
        connection: "close",
      },
    });

    const settle = (settled: PostResult) => {
      if (result !== undefined) return;
      result = settled;
      cancelTimeout();
      request.signal.removeEventListener("abort", onStop);
      outgoing.destroy();
      resolve(settled);
    };
    const onStop = () =>
      settle(
        connected
          ? { outcome: "unknown", reason: "brokerd was stopped before the reply was whole" }
          : { outcome: "unreachable", reason: "brokerd was stopped before there was a connection" },
      );
    const cancelTimeout = request.clock.schedule(
      request.timeoutMs,
      () => settle({ outcome: "timeout", reason: `no whole reply within ${request.timeoutMs} ms` }),
    );
    request.signal.addEventListener("abort", onStop, { once: true });
    if (request.signal.aborted) return onStop();

    outgoing.on("socket", (socket) => {
      socket.once(secure ? "secureConnect" : "connect", () => connected = true);
      socket.on("data", (chunk: Uint8Array) => {
        if (result !== undefined) return;
        raw.push(chunk);
        rawBytes += chunk.length;
        if (rawBytes > 2 * request.replyBytesMax + framingBytesMax) {
          settle({ outcome: "unusable", reason: "the reply's framing is over its bound" });
        }
      });
    });
    outgoing.on("error", (error: Error & { code?: string }) => settle(failure(error, connected)));
    outgoing.on(
      "upgrade",
      (head) =>
        settle({ outcome: "http", status: head.statusCode ?? 0, reason: "the reply changes protocol" }),
    );
    outgoing.on("response", (reply) => {
      const status = reply.statusCode ?? 0;
      if (status < 200 || status > 299) {
        return settle({ outcome: "http", status, reason: `the reply has HTTP status ${status}` });
      }
      const unusable = (reason: string) => settle({ outcome: "unusable", status, reason });
      const encoding = reply.headers["content-encoding"];
      if (encoding !== undefined && encoding.trim().toLowerCase() !== "identity") {
        return unusable("the reply is encoded, though identity was asked for");
      }
      const overSize = `the reply is over ${request.replyBytesMax} bytes`;
      if (Number(reply.headers["content-length"] ?? 0) > request.replyBytesMax) return unusable(overSize);
      const chunks: Uint8Array[] = [];
      let length = 0;
      reply.on("data", (chunk: Uint8Array) => {
        if (result !== undefined) return;
        length += chunk.length;
        if (length > request.replyBytesMax) return unusable(overSize);
        chunks.push(chunk);
      });
      const broken = () =>
        settle({ outcome: "unknown", status, reason: "the connection ended inside the reply" });
      reply.on("aborted", broken);
      reply.on("error", broken);
      reply.on("end", () => {
        if (result !== undefined) return;
        if (!reply.complete) return broken();
        const whole = Buffer.concat(raw);
        const end = replyEnd(whole);
        if (end !== undefined && end < whole.length) return unusable("more came after the reply's end");
        settle({ outcome: "reply", status, body: Buffer.concat(chunks) });
      });
    });
    outgoing.end(request.body);
  });
}

function authorization(bearer: string): { authorization: string } {
  return { authorization: `Bearer ${bearer}` };
}

function failure(error: Error & { code?: string }, connected: boolean): PostResult {
  if (!connected) {
    return { outcome: "unreachable", reason: `no connection (${error.code ?? error.name})` };
  }
  // The parser's codes: bytes came, and they are no HTTP reply. An end inside a head is a reply that never became whole.
  if (error.code?.startsWith("HPE_") && error.code !== "HPE_INVALID_EOF_STATE") {
    return { outcome: "unusable", reason: `what came back is no HTTP reply (${error.code})` };
  }
  return { outcome: "unknown", reason: `the connection broke (${error.code ?? error.name})` };
}
