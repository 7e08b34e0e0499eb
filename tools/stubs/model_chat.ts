// A chat request's body, as the practice model reads it: what is refused, with the server's own status and
// text, and what is let through.
// Owns: the parse of `POST /v1/chat/completions`. It is lenient where the real server is (unknown fields, models
// and roles pass), which is why no strict schema stands here. Never takes a slot, never answers.

import type { ModelRequest } from "./model_requests.ts";
import {
  parseMessages,
  parseTools,
  renderPrompt,
  ServerFault,
  type TemplateOptions,
} from "./model_template.ts";
import { tokenize, type Tokens } from "./model_tokens.ts";

export interface Chat {
  body: Record<string, unknown>;
  promptTokens: Tokens;
  nCtx: number;
  /** Most tokens to generate: what was asked, or what the context still holds. */
  tokensMax: number;
  /** False: calls are left in the content (no tools, or `tool_choice: "none"`). */
  parseCalls: boolean;
  /** `tool_choice: "required"`, with a tool to call. */
  mustCall: boolean;
}

export interface ChatLimits {
  nCtx: number;
  totalSlots: number;
  template: TemplateOptions;
}

/** Parses `record.bytes` and fills the record. Throws a `ServerFault` for what the server refuses. */
export function parseChat(limits: ChatLimits, record: ModelRequest): Chat {
  const body = parseBody(record.bytes);
  record.body = body;
  record.stream = body.stream === true;
  record.messages = parseMessages(body.messages);
  record.tools = parseTools(body.tools);
  const choice = typeof body.tool_choice === "string" ? body.tool_choice : "auto";
  requireUsable(limits, record, choice);
  const asked = [body.max_tokens, body.max_completion_tokens, body.n_predict].find((value) => value != null);
  if (asked !== undefined && typeof asked !== "number") {
    throw new ServerFault(400, "invalid_request_error", "Field 'max_tokens': type must be number");
  }
  record.prompt = renderPrompt(record.messages, record.tools, limits.template);
  const promptTokens = tokenize(record.prompt);
  if (promptTokens.length >= limits.nCtx) {
    throw new ServerFault(
      400,
      "exceed_context_size_error",
      `request (${promptTokens.length} tokens) exceeds the available context size (${limits.nCtx} tokens), ` +
        "try increasing it",
      { n_prompt_tokens: promptTokens.length, n_ctx: limits.nCtx },
    );
  }
  const askedMax = asked === undefined || asked < 0 ? Infinity : Math.max(1, asked);
  return {
    body,
    promptTokens,
    nCtx: limits.nCtx,
    tokensMax: Math.min(askedMax, limits.nCtx - promptTokens.length),
    parseCalls: record.tools.length > 0 && choice !== "none",
    mustCall: record.tools.length > 0 && choice === "required",
  };
}

/** A JSON body; text that is no JSON is the server's error 500, as on the real one. */
export function parseBody(bytes: Uint8Array): Record<string, unknown> {
  let body: unknown;
  try {
    body = JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    throw new ServerFault(
      500,
      "server_error",
      "[json.exception.parse_error.101] parse error: the body is not JSON",
    );
  }
  if (typeof body !== "object" || body === null) return {};
  return body as Record<string, unknown>;
}

function requireUsable(limits: ChatLimits, record: ModelRequest, choice: string): void {
  const body = record.body as Record<string, unknown>;
  const refuse = (message: string): never => {
    throw new ServerFault(400, "invalid_request_error", message);
  };
  if (!["auto", "none", "required"].includes(choice)) refuse(`Invalid tool_choice: ${choice}`);
  if (typeof body.n === "number" && body.n > limits.totalSlots) {
    refuse(`n must be at most the number of slots (${limits.totalSlots})`);
  }
  if (record.tools.length === 0) return;
  if (body.grammar !== undefined && choice !== "none") {
    refuse("Cannot use custom grammar constraints with tools.");
  }
  if (record.stream && body.logprobs) refuse("logprobs is not supported with tools + stream");
}
