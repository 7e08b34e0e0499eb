// A real brokerd in this process, on a private home with real files and sockets, before a consult endpoint that records raw bytes.
// Tests speak to it through its two sockets alone and read what it wrote; nothing here reaches into it.

import { type AuditRecord, auditRecordSchema } from "../../core/audit/record.ts";
import { listSegments } from "../../core/audit/segments.ts";
import type { Clock } from "../../core/clock.ts";
import type { HomePaths } from "../../core/home.ts";
import type { Label } from "../../core/labels.ts";
import {
  type CallAnswer,
  callAnswerSchema,
  type CallState,
  callStateSchema,
} from "../../core/protocol/broker.ts";
import { type Approval, approvalsAnswerSchema } from "../../core/protocol/owner.ts";
import { requestJson } from "../../core/wire/client.ts";
import { loadBrokerd } from "../../brokerd/main.ts";
import { type BrokerdOptions, type RunningBrokerd, startBrokerd } from "../../brokerd/start.ts";
import {
  type BehaviourSource,
  type ConsultEndpoint,
  startConsultEndpoint,
} from "../../tools/stubs/consult_endpoint.ts";
import { tempHome } from "./temp_home.ts";

export const consultSecret = "marked-key-7d1c";
export const privateTrusted: Label = { class: "private", untrusted: false };
export const secretTrusted: Label = { class: "secret", untrusted: false };
export const privateUntrusted: Label = { class: "private", untrusted: true };

export interface RigOptions {
  /** Whole text of grants.toml. */
  readonly grants?: string;
  /** Lines added to `[consult]`; `false`: no [consult]. */
  readonly consult?: string | false;
  /** More of brokerd.toml. */
  readonly brokerdToml?: string;
  readonly behaviour?: BehaviourSource;
  readonly clock?: Clock;
  readonly audit?: BrokerdOptions["audit"];
}

export interface CallOptions {
  readonly tool?: string;
  readonly arguments?: Readonly<Record<string, unknown>>;
  readonly label?: Label;
  readonly signal?: AbortSignal;
}

export interface BrokerRig extends AsyncDisposable {
  readonly paths: HomePaths;
  readonly endpoint: ConsultEndpoint;
  readonly denyAll: string | undefined;
  /** `consult("a question")` of a private, trusted session unless told otherwise. */
  call(session: string, call: number, options?: CallOptions): Promise<CallAnswer>;
  callState(session: string, call: number): Promise<CallState>;
  label(session: string, label: Label): Promise<Label>;
  loop(method: "GET" | "POST", path: string, body?: unknown): Promise<{ httpStatus: number; body: unknown }>;
  owner(method: "GET" | "POST", path: string, body?: unknown): Promise<{ httpStatus: number; body: unknown }>;
  approvals(): Promise<Approval[]>;
  /** Asks until one is pending. */
  nextApproval(): Promise<Approval>;
  records(): Promise<AuditRecord[]>;
  stop(): Promise<void>;
  /** Stops it, if it runs, and starts it again on the same home. */
  restart(options?: Pick<BrokerdOptions, "clock" | "audit">): Promise<void>;
}

export const allowPrivate = `[[grant]]\ntool = "consult"\nmax_taint = "private"\n`;
export const allowAlways = `[[grant]]\ntool = "consult"\nmax_taint = "secret"\nallow_untrusted = true\n`;
export const askPrivate = `${allowPrivate}mode = "ask"\n`;

export async function brokerRig(options: RigOptions = {}): Promise<BrokerRig> {
  const endpoint = await startConsultEndpoint({ behaviour: options.behaviour });
  const consult = options.consult === false
    ? ""
    : `[consult]\nurl = "${endpoint.url}"\nmodel = "big-model"\nsecret = "consult"\n${
      options.consult ?? ""
    }\n`;
  const home = await tempHome({
    brokerdToml: consult + (options.brokerdToml ?? ""),
    grantsToml: options.grants ?? "",
    secrets: { consult: `${consultSecret}\n` },
  });
  const { paths } = home;
  const bugs: unknown[] = [];
  let running: RunningBrokerd | undefined;
  const start = async (changes: Pick<BrokerdOptions, "clock" | "audit"> = {}) => {
    running = await startBrokerd({
      ...await loadBrokerd(paths),
      clock: options.clock,
      audit: options.audit,
      ...changes,
      onBug: (error) => bugs.push(error),
    });
  };
  const stop = async () => {
    await running?.close();
    running = undefined;
    if (bugs.length > 0) throw bugs[0];
  };
  const socket = (path: string) => (method: "GET" | "POST", at: string, body?: unknown) =>
    requestJson(path, { method, path: at, body });
  const loop = socket(paths.brokerSocket);
  const owner = socket(paths.ownerSocket);
  const approvals = async () => {
    const { status: _, ...answer } = (await owner("GET", "/v1/approvals")).body as { status: string };
    return approvalsAnswerSchema.parse(answer).approvals;
  };
  const ask = async (session: string, call: number, options: CallOptions = {}) => {
    const { tool = "consult", arguments: args, label = privateTrusted, signal } = options;
    const { body } = await requestJson(paths.brokerSocket, {
      method: "POST",
      path: "/v1/call",
      body: { session, call, tool, arguments: args ?? { question: "What is 2+2, one word." }, label },
      signal,
    });
    return callAnswerSchema.parse(body);
  };
  try {
    await start();
  } catch (error) {
    await endpoint.close();
    await home[Symbol.asyncDispose]();
    throw error;
  }
  return {
    paths,
    endpoint,
    get denyAll() {
      return running?.denyAll;
    },
    call(session, call, options) {
      const answer = ask(session, call, options);
      // A test that fails while its call waits reports its own failure, not this one's.
      answer.catch(() => {});
      return answer;
    },
    callState: async (session, call) =>
      callStateSchema.parse((await loop("GET", `/v1/calls/${session}/${call}`)).body),
    async label(session, label) {
      const { body } = await loop("POST", "/v1/label", { session, label });
      return (body as { label: Label }).label;
    },
    loop,
    owner,
    approvals,
    async nextApproval() {
      for (;;) {
        const pending = (await approvals()).at(0);
        if (pending !== undefined) return pending;
      }
    },
    records: () => readRecords(paths.audit),
    stop,
    async restart(changes) {
      await stop();
      await start(changes);
    },
    async [Symbol.asyncDispose]() {
      try {
        await stop();
      } finally {
        await endpoint.close();
        await home[Symbol.asyncDispose]();
      }
    },
  };
}

/** Every record of every segment, each through its strict schema. */
export async function readRecords(dir: string): Promise<AuditRecord[]> {
  const records: AuditRecord[] = [];
  for (const { path } of await listSegments(dir)) {
    for (const line of (await Deno.readTextFile(path)).split("\n").slice(0, -1)) {
      records.push(auditRecordSchema.parse(JSON.parse(line)));
    }
  }
  return records;
}

export function decisions(records: readonly AuditRecord[]): (AuditRecord & { kind: "decision" })[] {
  return records.filter((record) => record.kind === "decision");
}
