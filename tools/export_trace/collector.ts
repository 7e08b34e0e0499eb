// One OTLP/HTTP collector: a POST for each line, and what its answer means. Follows no redirect, uses no proxy, keeps no connection, and
// reads of a reply nothing but its status.

import { Buffer } from "node:buffer";
import * as http from "node:http";
import * as https from "node:https";
import { socketAddress } from "../../core/config/address.ts";

export type CollectorAnswer =
  | { readonly kind: "taken" }
  /** It will not take this line at any time (400 and its kind). */
  | { readonly kind: "never" }
  | { readonly kind: "later"; readonly text: string };

export interface Collector {
  send(line: Uint8Array): Promise<CollectorAnswer>;
}

const timeoutMs = 30_000;
/** The line itself does not fit; another try would meet the same answer. */
const refusedForGood = [400, 413, 422];

export function httpCollector(to: string, bearer: string | undefined): Collector {
  const url = new URL(to);
  const { host, port, secure } = socketAddress(url);
  return {
    send: (line) =>
      new Promise((resolve) => {
        const later = (text: string) => resolve({ kind: "later", text: `${url.host} ${text}` });
        const outgoing = (secure ? https : http).request({
          hostname: host,
          port,
          path: url.pathname,
          method: "POST",
          agent: false,
          headers: {
            "content-type": "application/json",
            "content-length": String(line.length),
            "user-agent": "boxmaker",
            connection: "close",
            ...(bearer === undefined ? {} : { authorization: `Bearer ${bearer}` }),
          },
        });
        const timer = setTimeout(() => {
          later(`gave no answer within ${timeoutMs / 1000} s`);
          outgoing.destroy();
        }, timeoutMs);
        outgoing.on("response", (reply) => {
          const status = reply.statusCode ?? 0;
          if (status >= 200 && status <= 299) resolve({ kind: "taken" });
          else if (refusedForGood.includes(status)) resolve({ kind: "never" });
          else later(`answered HTTP ${status}`);
          reply.destroy();
        });
        outgoing.on("error", (error: Error & { code?: string }) =>
          later(`does not answer (${error.code ?? "error"})`));
        outgoing.on("close", () => {
          clearTimeout(timer);
          later("closed the connection without an answer");
        });
        outgoing.end(Buffer.from(line));
      }),
  };
}
