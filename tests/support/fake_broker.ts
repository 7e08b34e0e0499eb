// A brokerd that answers what a test tells it to, on a real broker.sock. It records what it was asked and decides nothing.

import type {
  BrokeredTool,
  CallAnswer,
  CallRequest,
  CallState,
  LabelRequest,
} from "../../core/protocol/broker.ts";
import { callRequestSchema, labelRequestSchema } from "../../core/protocol/broker.ts";
import { createApp, listenOnSocket, readJson } from "../../core/wire/server.ts";

export const consultTool: BrokeredTool = {
  name: "consult",
  description: "Ask a stronger model in the cloud one question.",
  parameters: {
    type: "object",
    properties: { question: { type: "string" } },
    required: ["question"],
    additionalProperties: false,
  },
};

export interface FakeBroker extends AsyncDisposable {
  readonly calls: CallRequest[];
  readonly labels: LabelRequest[];
  close(): Promise<void>;
}

export interface FakeBrokerOptions {
  readonly consultTimeoutMs?: number;
  readonly tools?: readonly BrokeredTool[];
  readonly answer?: (call: CallRequest) => CallAnswer | Promise<CallAnswer>;
  readonly state?: (session: string, call: number) => CallState;
}

export async function startFakeBroker(
  socketPath: string,
  options: FakeBrokerOptions = {},
): Promise<FakeBroker> {
  const calls: CallRequest[] = [];
  const labels: LabelRequest[] = [];
  const app = createApp((error) => {
    throw error;
  });
  app.get("/v1/hello", (c) =>
    c.json({
      protocol: 1,
      role: "brokerd",
      consultTimeoutMs: options.consultTimeoutMs ?? 180_000,
      tools: options.tools ?? [consultTool],
    }));
  app.post("/v1/call", async (c) => {
    const call = await readJson(c, callRequestSchema);
    calls.push(call);
    const noGrant: CallAnswer = {
      status: "denied",
      code: "NoGrant",
      text: "denied: NoGrant: no grant allows this call",
    };
    return c.json(await options.answer?.(call) ?? noGrant);
  });
  app.get(
    "/v1/calls/:session/:call",
    (c) =>
      c.json(options.state?.(c.req.param("session"), Number(c.req.param("call"))) ?? { status: "unknown" }),
  );
  app.post("/v1/label", async (c) => {
    const request = await readJson(c, labelRequestSchema);
    labels.push(request);
    return c.json({ status: "ok", label: request.label });
  });
  const listener = await listenOnSocket(socketPath, app);
  return { calls, labels, close: () => listener.close(), [Symbol.asyncDispose]: () => listener.close() };
}
