// Requests to the three sockets: sound ones of every row, each with what its answer must look like, and how to spoil them. Sends nothing.

import { z } from "zod";
import { brokerHelloSchema, callAnswerSchema, callStateSchema } from "../../core/protocol/broker.ts";
import { isJsonObject, type JsonObject } from "../../core/json.ts";
import { labelSchema, sensitivityClasses } from "../../core/labels.ts";
import { ledgerAnswerSchema } from "../../core/protocol/owner.ts";
import { type Random, spoil } from "./random.ts";

export type SocketName = "broker" | "owner" | "loop";

export interface Request {
  readonly socket: SocketName;
  readonly method: string;
  readonly path: string;
  readonly body: string | undefined;
  /** What a 200 must hold. */
  readonly answer: z.ZodType;
  /** A stream of events, which ends by itself or is left. */
  readonly stream?: "ends" | "left";
}

/** Few, so that spoilt requests meet the same sessions again and again; and many, so that some are not tainted yet. */
const sessions = [
  "chat-a",
  "chat-b",
  "job-c",
  "heartbeat",
  "sub-chat-a-1",
  "sub-sub-chat-a-1-2",
  "sub-job-c-3",
];
const roomySessions = 2_000;
const callsMax = 100_000;

const ok = z.literal("ok");
const denied = z.strictObject({
  status: z.literal("denied"),
  code: z.literal("AuditUnavailable"),
  runbook: z.string().optional(),
  text: z.string(),
});
const any = z.unknown();
const statusOf = (fields: z.ZodRawShape) => z.strictObject({ status: ok, ...fields });
/** An answer of which only these are looked at. */
const holding = (status: string, holds: (answer: JsonObject) => boolean) =>
  z.custom((value) => isJsonObject(value) && value.status === status && holds(value));
/** Its status is the session's own. */
const sessionRow = z.custom((value) => isJsonObject(value) && typeof value.session === "string");
const erred = z.strictObject({ status: z.literal("error"), code: z.string(), text: z.string() });

export function soundRequest(random: Random): Request {
  const session = random.chance(2) ? random.pick(sessions) : `chat-n${random.below(roomySessions)}`;
  const label = { class: random.pick(sensitivityClasses), untrusted: random.chance(3) };
  const low = random.chance(5) ? label : { class: "public", untrusted: false };
  const tool = random.weighted([[8, "consult"], [1, "ask_memory"], [1, "shell"]]);
  const question = random.chance(200)
    ? random.text(4).repeat(60_000)
    : random.text(random.chance(10) ? 4_000 : 60);
  const args = random.weighted([[8, { question }], [1, { question, more: 1 }], [1, {}]]);
  const call = 1 + random.below(callsMax);
  const post = (socket: SocketName, path: string, body: unknown, answer: z.ZodType): Request => ({
    socket,
    method: "POST",
    path,
    body: JSON.stringify(body),
    answer,
  });
  const get = (socket: SocketName, path: string, answer: z.ZodType): Request => ({
    socket,
    method: "GET",
    path,
    body: undefined,
    answer,
  });
  return random.weighted<() => Request>([
    [
      20,
      () =>
        post("broker", "/v1/call", { session, call, tool, arguments: args, label: low }, callAnswerSchema),
    ],
    [5, () => get("broker", `/v1/calls/${session}/${call}`, callStateSchema)],
    [
      6,
      () =>
        post(
          "broker",
          "/v1/label",
          { session, label: low },
          z.union([statusOf({ label: labelSchema }), denied]),
        ),
    ],
    [2, () => get("broker", "/v1/hello", brokerHelloSchema)],
    [
      2,
      () => get("owner", "/v1/hello", z.strictObject({ protocol: z.literal(1), role: z.literal("brokerd") })),
    ],
    [2, () => get("owner", "/v1/approvals", statusOf({ approvals: z.array(any) }))],
    [
      2,
      () =>
        post("owner", `/v1/approvals/a${random.below(2_000)}`, {
          decision: random.pick(["approve", "deny"]),
          bodySha256: "0".repeat(64),
        }, statusOf({})),
    ],
    [
      1,
      () => get("owner", "/v1/ledger", z.union([ledgerAnswerSchema, statusOf({ sessions: z.array(any) })])),
    ],
    [2, () => get("owner", "/v1/audit/head", statusOf({ seq: z.int(), hash: z.string() }))],
    [
      1,
      () =>
        get(
          "owner",
          `/v1/audit?limit=${1 + random.below(50)}&before=${1 + random.below(5_000)}`,
          statusOf({ records: z.array(any), before: z.int().optional() }),
        ),
    ],
    [
      3,
      () =>
        post(
          "owner",
          "/v1/check",
          { tool, session, label, arguments: args },
          holding("ok", ({ verdict, label }) =>
            ["allow", "ask", "deny"].includes(String(verdict)) && labelSchema.safeParse(label).success),
        ),
    ],
    [
      1,
      () =>
        post(
          "owner",
          "/v1/retire",
          { session: random.pick(["job-z", "chat-b"]) },
          statusOf({ session: z.string() }),
        ),
    ],
    [
      1,
      () =>
        post(
          "owner",
          "/v1/grants/reload",
          {},
          z.union([statusOf({ grants: z.int(), grantsSha256: z.string() }), erred]),
        ),
    ],
    [
      1,
      () => post("owner", "/v1/audit/prune", { before: "2000-01-01" }, statusOf({ segments: z.array(any) })),
    ],
    [2, () => get("loop", "/v1/hello", z.strictObject({ protocol: z.literal(1), role: z.literal("loopd") }))],
    [1, () => get("loop", "/v1/status", holding("ok", ({ slots }) => Array.isArray(slots)))],
    [1, () => get("loop", "/v1/sessions", statusOf({ sessions: z.array(any) }))],
    [
      1,
      () => get("loop", `/v1/sessions/${session}`, sessionRow),
    ],
    [2, () => get("loop", `/v1/sessions/${session}/log`, statusOf({ records: z.array(any) }))],
    [1, () => ({ ...get("loop", `/v1/sessions/${session}/log?follow=1`, any), stream: "left" as const })],
    [2, () => post("loop", `/v1/sessions/${session}/cancel`, {}, statusOf({ cancelled: z.boolean() }))],
    [
      3,
      () => ({
        ...post("loop", `/v1/sessions/${session}/turns`, { text: question.slice(0, 500) || "hi" }, any),
        stream: "ends" as const,
      }),
    ],
  ])();
}

/** The request as bytes, its framing sound. */
export function encodeRequest({ method, path, body }: Request): Uint8Array<ArrayBuffer> {
  const content = new TextEncoder().encode(body ?? "");
  const head = new TextEncoder().encode(
    `${method} ${path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: ${content.length}\r\n\r\n`,
  );
  const whole = new Uint8Array(head.length + content.length);
  whole.set(head);
  whole.set(content, head.length);
  return whole;
}

/** The same with a body or a path that is spoilt and a framing that is sound: it must be answered in a pinned shape. */
export function spoilContent(request: Request, random: Random): Request {
  if (request.body !== undefined && !random.chance(4)) {
    const spoilt = spoil(new TextEncoder().encode(request.body), random);
    return {
      ...request,
      body: random.chance(2) ? new TextDecoder().decode(spoilt) : spoilValue(request.body, random),
    };
  }
  const path = new TextDecoder().decode(spoil(new TextEncoder().encode(request.path), random));
  return { ...request, path: `/${encodeURI(path.toWellFormed()).replace(/[^\x21-\x7e]/g, "").slice(1)}` };
}

/** One value of the JSON put in another's place. */
function spoilValue(body: string, random: Random): string {
  const odd = random.pick([
    null,
    true,
    -1,
    0,
    1.5,
    2 ** 53,
    1e308,
    "",
    random.text(100),
    "x".repeat(70),
    [],
    [[]],
    {},
    { __proto__: null, toString: 1 },
    JSON.parse(`${"[".repeat(70)}${"]".repeat(70)}`),
  ]);
  const value = JSON.parse(body);
  const keys = Object.keys(value);
  const key = random.pick([...keys, "extra", "__proto__"]);
  if (random.chance(6)) delete value[key];
  else if (key === "__proto__") {
    return body.replace("{", `{"__proto__":${JSON.stringify(odd)},`).replace(",}", "}");
  } else value[key] = odd;
  return JSON.stringify(value);
}
