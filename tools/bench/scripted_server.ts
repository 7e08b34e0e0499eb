// A model server for measuring with: it says what a script says, at once, and notes when each request was whole and when its answer was
// written. It parses no body, renders no prompt and caches nothing, so that its own share of what is measured stays small and known.

import { isJsonObject, parseJsonObject } from "../../core/json.ts";

export type ScriptedReply =
  | { readonly text: string }
  | { readonly call: { readonly name: string; readonly arguments: Readonly<Record<string, unknown>> } };

/** One chat request, as the server saw it. Times are `performance.now()` of this process. */
export interface Arrival {
  /** From 1. */
  readonly order: number;
  readonly slot: number;
  /** The head was there, the body was whole, the answer was handed to the kernel's side. */
  readonly headAt: number;
  readonly wholeAt: number;
  readonly answeredAt: number;
  readonly bytes: number;
  /** The last body alone is kept: a long conversation is a megabyte a request. */
  readonly reply: ScriptedReply;
}

export interface ScriptedServer extends AsyncDisposable {
  readonly url: string;
  readonly arrivals: readonly Arrival[];
  readonly lastBody: string;
  /** Decides each answer by the request's order and slot. */
  script: (request: { order: number; slot: number }) => ScriptedReply;
  /** The chat request of this order, as soon as it is whole; at once where it came already. */
  arrival(order: number): Promise<Arrival>;
  /** Forgets what came; the next request is order 1. */
  reset(): void;
}

const bodyStartBytes = 400;

export function startScriptedServer(): ScriptedServer {
  let arrivals: Arrival[] = [];
  let waiting: { order: number; resolve: (arrival: Arrival) => void }[] = [];
  let lastBody = new Uint8Array();
  const decoder = new TextDecoder();
  async function chat(request: Request, headAt: number): Promise<Response> {
    lastBody = await request.bytes();
    const wholeAt = performance.now();
    // Both clients write their settings before the messages.
    const start = decoder.decode(lastBody.subarray(0, bodyStartBytes));
    const slot = Number(/"id_slot":(\d+)/.exec(start)?.[1] ?? 0);
    const order = arrivals.length + 1;
    const reply = scripted.script({ order, slot });
    const bytes = encodeReply(reply, start.includes(`"tool_choice":"none"`));
    const response = new Response(bytes, { headers: { "content-type": "text/event-stream" } });
    const arrival = {
      order,
      slot,
      headAt,
      wholeAt,
      answeredAt: performance.now(),
      bytes: lastBody.length,
      reply,
    };
    arrivals.push(arrival);
    for (const { resolve } of waiting.filter((one) => one.order === order)) resolve(arrival);
    waiting = waiting.filter((one) => one.order !== order);
    return response;
  }

  const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, (request) => {
    const headAt = performance.now();
    const path = new URL(request.url).pathname;
    return path === "/v1/chat/completions" ? chat(request, headAt) : answerProbe(path, request);
  });

  const scripted: ScriptedServer = {
    script: () => ({ text: "done" }),
    url: `http://127.0.0.1:${server.addr.port}`,
    get arrivals() {
      return arrivals;
    },
    get lastBody() {
      return decoder.decode(lastBody);
    },
    arrival(order) {
      const come = arrivals[order - 1];
      return come !== undefined
        ? Promise.resolve(come)
        : new Promise((resolve) => waiting.push({ order, resolve }));
    },
    reset() {
      arrivals = [];
      waiting = [];
    },
    async [Symbol.asyncDispose]() {
      await server.shutdown();
    },
  };
  return scripted;
}

/** What loopd asks at its start: enough slots, all idle, and a template that keeps raw text. */
async function answerProbe(path: string, request: Request): Promise<Response> {
  switch (path) {
    case "/props":
      return Response.json({ total_slots: 3, default_generation_settings: { n_ctx: 1_000_000 } });
    case "/slots":
      return Response.json([0, 1, 2].map((id) => ({ id, is_processing: false })));
    case "/tokenize":
      return Response.json({ tokens: [1] });
    case "/apply-template":
      return Response.json({ prompt: renderPlainly(parseJsonObject(await request.text())?.messages) });
    default:
      return Response.json({ error: { code: 404, message: "not found" } }, { status: 404 });
  }
}

function renderPlainly(messages: unknown): string {
  if (!Array.isArray(messages)) return "";
  const said = messages.filter(isJsonObject);
  const texts = said.map(({ role, content, tool_calls: calls }) =>
    `<|im_start|>${role}\n${content}${
      calls === undefined ? "" : `<tool_call>${JSON.stringify(calls)}</tool_call>`
    }<|im_end|>\n`
  );
  return texts.join("") + (said.at(-1)?.role === "assistant" ? "" : "<|im_start|>assistant\n");
}

const encoder = new TextEncoder();
const encoded = {
  raw: new WeakMap<ScriptedReply, Uint8Array<ArrayBuffer>>(),
  parsed: new WeakMap<ScriptedReply, Uint8Array<ArrayBuffer>>(),
};

/** The stream of one reply, made once: as text where the client reads calls itself, else with the call parsed. */
function encodeReply(reply: ScriptedReply, raw: boolean): Uint8Array<ArrayBuffer> {
  const known = encoded[raw ? "raw" : "parsed"];
  let bytes = known.get(reply);
  if (bytes === undefined) {
    bytes = encoder.encode(streamOf(reply, raw).map((event) => `data: ${event}\n\n`).join(""));
    known.set(reply, bytes);
  }
  return bytes;
}

function streamOf(reply: ScriptedReply, raw: boolean): string[] {
  const chunk = (delta: unknown, finish: string | null = null, more: object = {}) =>
    JSON.stringify({
      choices: [{ finish_reason: finish, index: 0, delta }],
      created: 1_764_600_000,
      id: "chatcmpl-bench",
      model: "bench",
      object: "chat.completion.chunk",
      ...more,
    });
  const timings = { cache_n: 0, prompt_n: 0, predicted_n: 0, prompt_ms: 0, predicted_ms: 0 };
  const opening = chunk({ role: "assistant", content: null });
  const end = (reason: string) => [chunk({}, reason, { timings }), "[DONE]"];
  if ("text" in reply) return [opening, chunk({ content: reply.text }), ...end("stop")];
  const { name, arguments: args } = reply.call;
  if (raw) {
    const text = `<tool_call>\n${JSON.stringify({ name, arguments: args })}\n</tool_call>`;
    return [opening, chunk({ content: text }), ...end("stop")];
  }
  const call = { index: 0, id: "call-of-the-server", type: "function" };
  return [
    opening,
    chunk({ tool_calls: [{ ...call, function: { name, arguments: "" } }] }),
    chunk({ tool_calls: [{ index: 0, function: { arguments: JSON.stringify(args) } }] }),
    ...end("tool_calls"),
  ];
}
