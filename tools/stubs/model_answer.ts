// The JSON of an answer: chunks, the message of a request without a stream, timings, usage, `__verbose`.
// Owns: the shapes, as the real server writes them. Never waits, never writes, never changes a record.

import type { Chat } from "./model_chat.ts";
import type { Delta } from "./model_generation.ts";
import type { ModelRequest } from "./model_requests.ts";

export const modelName = "practice";

export interface SpokenMessage {
  role: "assistant";
  content: string;
  reasoning_content?: string;
  tool_calls?: { type: "function"; function: { name: string; arguments: string }; id: string }[];
}

/** When a request was launched, when its first token came, when it ended; `performance.now()` values. */
export interface Moments {
  launchedMs: number;
  firstTokenMs: number;
  endedMs: number;
}

export function addDelta(message: SpokenMessage, delta: Delta): void {
  message.content += delta.content ?? "";
  if (delta.reasoning_content !== undefined) {
    message.reasoning_content = (message.reasoning_content ?? "") + delta.reasoning_content;
  }
  for (const { index, id = "", function: { name = "", arguments: text } } of delta.tool_calls ?? []) {
    message.tool_calls ??= [];
    message.tool_calls[index] ??= { type: "function", function: { name, arguments: "" }, id };
    message.tool_calls[index].function.arguments += text;
  }
}

export function chunk(
  record: ModelRequest,
  delta: Delta | { role: string; content: null },
  finish: string | null = null,
): Record<string, unknown> {
  return {
    choices: [{ finish_reason: finish, index: 0, delta }],
    ...identity(record, "chat.completion.chunk"),
  };
}

/** The events that end a stream: the finish chunk and, when asked for, one with the usage. */
export function endChunks(record: ModelRequest, chat: Chat, moments: Moments): Record<string, unknown>[] {
  const measured = timings(record, moments);
  const options = chat.body.stream_options as { include_usage?: unknown } | undefined;
  const finish = { ...chunk(record, {}, record.finish), ...verbose(record, chat, { moments, content: "" }) };
  if (options?.include_usage !== true) return [{ ...finish, timings: measured }];
  return [finish, {
    choices: [],
    ...identity(record, "chat.completion.chunk"),
    usage: usage(record),
    timings: measured,
  }];
}

/** The whole answer to a request without a stream. `raw` is the model's own text. */
export function completion(
  record: ModelRequest,
  chat: Chat,
  said: { message: SpokenMessage; raw: string; moments: Moments },
): Record<string, unknown> {
  return {
    choices: [{ finish_reason: record.finish, index: 0, message: said.message }],
    ...identity(record, "chat.completion"),
    usage: usage(record),
    timings: timings(record, said.moments),
    ...verbose(record, chat, { moments: said.moments, content: said.raw }),
  };
}

export function timings(record: ModelRequest, moments: Moments): Record<string, number> {
  const promptMs = Math.max(0.001, moments.firstTokenMs - moments.launchedMs);
  const predictedMs = Math.max(0.001, moments.endedMs - moments.firstTokenMs);
  const predictedN = record.predictedN;
  return {
    cache_n: record.cacheN,
    prompt_n: record.promptN,
    prompt_ms: round(promptMs),
    prompt_per_token_ms: round(promptMs / record.promptN),
    prompt_per_second: round(record.promptN / promptMs * 1000),
    predicted_n: predictedN,
    predicted_ms: round(predictedMs),
    predicted_per_token_ms: round(predictedMs / Math.max(1, predictedN)),
    predicted_per_second: round(predictedN / predictedMs * 1000),
  };
}

function usage(record: ModelRequest): Record<string, unknown> {
  const promptTokens = record.cacheN + record.promptN;
  return {
    completion_tokens: record.predictedN,
    prompt_tokens: promptTokens,
    total_tokens: promptTokens + record.predictedN,
    prompt_tokens_details: { cached_tokens: record.cacheN },
  };
}

function verbose(
  record: ModelRequest,
  chat: Chat,
  said: { moments: Moments; content: string },
): Record<string, unknown> {
  if (chat.body.verbose !== true) return {};
  const promptTokens = chat.promptTokens.length;
  return {
    __verbose: {
      index: 0,
      content: said.content,
      tokens: [],
      id_slot: record.slot,
      stop: true,
      model: modelName,
      tokens_predicted: record.predictedN,
      tokens_evaluated: promptTokens,
      generation_settings: {},
      prompt: record.prompt,
      has_new_line: said.content.includes("\n"),
      truncated: promptTokens + record.predictedN >= chat.nCtx,
      stop_type: record.finish === "length" ? "limit" : "eos",
      stopping_word: "",
      tokens_cached: promptTokens + record.predictedN - 1,
      timings: timings(record, said.moments),
    },
  };
}

function identity(record: ModelRequest, object: string): Record<string, unknown> {
  return {
    created: Math.floor(record.arrivedAtMs / 1000),
    id: `chatcmpl-practice-${record.order}`,
    model: modelName,
    object,
    system_fingerprint: modelName,
  };
}

function round(value: number): number {
  return Math.round(value * 1000) / 1000;
}
