// The practice model's routes: which request gets which answer, and who may ask.
// Owns: the table of routes, the key, the state of loading, the record of probes, and the control routes under
// `/stub/` for use from another process. Never opens a port, never speaks for the model.

import { modelName } from "./model_answer.ts";
import { parseBody } from "./model_chat.ts";
import { completeChat, type ModelCore } from "./model_completion.ts";
import { HttpResponse } from "./model_http.ts";
import { CancelNotices } from "./model_notices.ts";
import { phrases } from "./model_phrases.ts";
import { type ModelRequest, Requests } from "./model_requests.ts";
import { Holds, parseScript, type Script } from "./model_script.ts";
import { Slots } from "./model_slots.ts";
import {
  chatTemplate,
  parseMessages,
  parseTools,
  renderPrompt,
  ServerFault,
  type ThinkTemplate,
} from "./model_template.ts";
import { detokenize, messageEnd, tokenize } from "./model_tokens.ts";
import { type Connection, headerOf, type RawHead } from "./wire.ts";

const probesMax = 20_000;
const keepAliveMs = 5_000;
const requestsPerConnectionMax = 100;
const defaults = { totalSlots: 3, nCtx: 262_144 };

/** A script, or the JSON form of one (see `parseScript`). */
export type ScriptSource = Script | string;

export interface ModelServerOptions {
  totalSlots?: number;
  /** Context of each slot in tokens, which are bytes here. */
  nCtx?: number;
  /** True: a request on one slot clears the idle others, as a server started without `-np` does. */
  unifiedCache?: boolean;
  thinkTemplate?: ThinkTemplate;
  /** Default true: a history whose tool calls and results do not stand in pairs is refused. */
  strictPairing?: boolean;
  apiKey?: string;
  /** True: every route answers 503 until `finishLoading()`. */
  loading?: boolean;
  /** Pacing for people; 0: at once. */
  tokensPerSecond?: number;
  /** How late a lost client is noticed while nothing is said to it. */
  cancelNoticeMs?: number;
  /** What the model says; default: the phrases. */
  script?: ScriptSource;
}

/** A request to any other route than the chat. */
export interface Probe {
  readonly method: string;
  readonly path: string;
  readonly atMs: number;
}

interface Exchange {
  head: RawHead;
  path: string;
  query: URLSearchParams;
  bytes: Uint8Array;
  response: HttpResponse;
}

type Handler = (exchange: Exchange) => Promise<void>;

export class ModelServer {
  readonly core: ModelCore;
  readonly probes: Probe[] = [];
  #holds = new Holds();
  #loading: boolean;
  readonly #apiKey?: string;
  readonly #closing = new AbortController();

  constructor(options: ModelServerOptions) {
    const totalSlots = options.totalSlots ?? defaults.totalSlots;
    this.#loading = options.loading ?? false;
    this.#apiKey = options.apiKey;
    this.core = {
      limits: {
        totalSlots,
        nCtx: options.nCtx ?? defaults.nCtx,
        template: {
          thinkTemplate: options.thinkTemplate ?? "keep",
          strictPairing: options.strictPairing ?? true,
        },
      },
      tokensPerSecond: options.tokensPerSecond ?? 0,
      slots: new Slots({ totalSlots, unifiedCache: options.unifiedCache ?? false }),
      requests: new Requests(),
      notices: new CancelNotices(options.cancelNoticeMs ?? 0),
      script: phrases(),
      launched: 0,
      closing: this.#closing.signal,
    };
    if (options.script !== undefined) this.setScript(options.script);
  }

  /** Serves one connection, request after request, until the peer leaves or the limit is reached. */
  async serve(connection: Connection): Promise<void> {
    for (let count = 1; count <= requestsPerConnectionMax; count++) {
      const head = await connection.readHead({ idleMs: keepAliveMs });
      if (head === undefined) return;
      const body = await connection.readBody(head);
      if (!body.complete) return;
      const wantsClose = headerOf(head, "connection")?.toLowerCase() === "close";
      const keepAlive = !wantsClose && count < requestsPerConnectionMax;
      const { pathname, searchParams } = new URL(head.target, "http://stub");
      const response = new HttpResponse(connection, keepAlive);
      await this.#answer({ head, path: pathname, query: searchParams, bytes: body.content, response });
      if (!keepAlive || connection.gone.aborted) return;
    }
  }

  /** Replaces what the model says. The holds of a JSON script are its own. Throws when the JSON does not fit. */
  setScript(source: ScriptSource): void {
    const holds = new Holds();
    this.core.script = typeof source === "string"
      ? parseScript(source, { holds, phrases: phrases() })
      : source;
    this.#holds = holds;
  }

  finishLoading(): void {
    this.#loading = false;
  }

  close(): void {
    this.#closing.abort();
    this.core.requests.close();
  }

  async #answer(exchange: Exchange): Promise<void> {
    const { head, path, response } = exchange;
    try {
      if (path.startsWith("/stub/")) return await this.#route(exchange);
      if (this.#loading) throw new ServerFault(503, "unavailable_error", "Loading model");
      if (this.#apiKey !== undefined && !path.endsWith("/health")) {
        if (headerOf(head, "authorization") !== `Bearer ${this.#apiKey}`) {
          throw new ServerFault(401, "authentication_error", "Invalid API Key");
        }
      }
      await this.#route(exchange);
    } catch (fault) {
      if (!(fault instanceof ServerFault)) throw fault;
      await response.fault(fault);
    }
  }

  async #route(exchange: Exchange): Promise<void> {
    const { head: { method }, path } = exchange;
    const handler = this.#routes[`${method} ${path.replace(/^\/slots\/.*/, "/slots/:id")}`];
    if (handler === undefined) throw new ServerFault(404, "not_found_error", "File Not Found");
    if (!path.endsWith("/chat/completions") && !path.startsWith("/stub/")) {
      this.probes.push({ method, path, atMs: Date.now() });
      if (this.probes.length > probesMax) this.probes.shift();
    }
    await handler(exchange);
  }

  readonly #routes: Record<string, Handler> = {
    "GET /health": ({ response }) => response.json(200, { status: "ok" }),
    "GET /v1/health": ({ response }) => response.json(200, { status: "ok" }),
    "GET /props": ({ response }) => response.json(200, this.#props()),
    "GET /slots": async ({ response }) => {
      const { slots, limits, notices } = this.core;
      await response.json(200, slots.all.map((slot) => slot.toJson(limits.nCtx)));
      notices.traffic();
    },
    "POST /slots/:id": () => {
      throw new ServerFault(501, "not_supported_error", "This server does not support slots action.");
    },
    "GET /v1/models": ({ response }) => response.json(200, this.#models()),
    "POST /apply-template": async ({ bytes, response }) => {
      const body = parseBody(bytes);
      const { template } = this.core.limits;
      const prompt = renderPrompt(parseMessages(body.messages), parseTools(body.tools), template);
      await response.json(200, { prompt });
    },
    "POST /tokenize": async ({ bytes, response }) => {
      const { content = "" } = parseBody(bytes);
      await response.json(200, { tokens: [...tokenize(String(content))] });
    },
    "POST /detokenize": async ({ bytes, response }) => {
      const { tokens } = parseBody(bytes);
      await response.json(200, { content: detokenize(Array.isArray(tokens) ? tokens : []) });
    },
    "POST /v1/chat/completions": (exchange) => this.#chat(exchange),
    "POST /chat/completions": (exchange) => this.#chat(exchange),
    "GET /stub/requests": (exchange) => this.#listRequests(exchange),
    "POST /stub/script": async ({ bytes, response }) => {
      try {
        this.setScript(new TextDecoder().decode(bytes));
      } catch (fault) {
        throw new ServerFault(400, "invalid_request_error", (fault as Error).message);
      }
      await response.json(200, { status: "ok" });
    },
    "POST /stub/release": async ({ bytes, response }) => {
      this.#holds.release(String(parseBody(bytes).hold));
      await response.json(200, { status: "ok" });
    },
    "POST /stub/loaded": async ({ response }) => {
      this.finishLoading();
      await response.json(200, { status: "ok" });
    },
  };

  async #chat({ head, bytes, response }: Exchange): Promise<void> {
    await completeChat(this.core, this.core.requests.record(bytes, head.headers), response);
  }

  /** `?after=N` leaves out the first N; with `&wait=1` the answer comes when there is one to show. */
  async #listRequests({ query, response }: Exchange): Promise<void> {
    const after = Number(query.get("after") ?? 0);
    const later = (request: ModelRequest) => request.order > after;
    if (query.get("wait") === "1") await this.core.requests.waitFor(later).catch(() => undefined);
    const requests = this.core.requests.all.filter(later).map(({ bytes, headers: _headers, ...shown }) => ({
      ...shown,
      bodyText: new TextDecoder().decode(bytes),
      bodyBase64: bytes.toBase64(),
    }));
    await response.json(200, { requests, collisions: this.core.slots.collisions });
  }

  #props(): Record<string, unknown> {
    const { nCtx, totalSlots } = this.core.limits;
    return {
      default_generation_settings: { n_ctx: nCtx, params: {} },
      total_slots: totalSlots,
      model_alias: modelName,
      model_path: modelName,
      modalities: { vision: false, audio: false },
      endpoint_slots: true,
      endpoint_props: false,
      endpoint_metrics: false,
      chat_template: chatTemplate,
      chat_template_caps: {
        supports_tools: true,
        supports_parallel_tool_calls: true,
        supports_object_arguments: true,
        supports_preserve_reasoning: this.core.limits.template.thinkTemplate === "keep",
      },
      bos_token: "",
      eos_token: messageEnd,
      build_info: "practice-stub",
      is_sleeping: false,
    };
  }

  #models(): Record<string, unknown> {
    return {
      object: "list",
      data: [{
        id: modelName,
        object: "model",
        created: 0,
        owned_by: "boxmaker",
        meta: { n_ctx: this.core.limits.nCtx },
      }],
    };
  }
}
