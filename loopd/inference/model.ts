// One request to the inference server: the stream read to its end mark, the message it holds, or the typed reason why there is none.
// It decides nothing about turns and never repeats a request; a message it returns is complete and its tool calls are well formed.

import type { Clock } from "../../core/clock.ts";
import { BugError } from "../../core/errors.ts";
import { isJsonObject, type JsonObject, parseJson, parseJsonObject } from "../../core/json.ts";
import { modelMessageCharactersMax, toolCallsPerMessageMax } from "../../core/limits.ts";
import { eventStreamParser } from "../../core/wire/event_stream.ts";
import type { InferenceServer } from "./server.ts";
import { ModelFailure, plain } from "./model_failure.ts";
import { RawReply } from "./raw_reply.ts";
import type { Timings } from "../session/record.ts";

export interface ModelRequest {
  /** The inside of the `messages` array, and the `tools` array where there is one, as JSON text. */
  readonly messagesJson: string;
  readonly toolsJson?: string;
  /** Raw history: the model's text comes back whole, its calls written under this grammar, and we read them. */
  readonly rawGrammar?: string;
  readonly slot: number;
  readonly signal: AbortSignal;
  /** Every event of the stream: prompt progress and thinking count as life. */
  onLife(): void;
  onContent(text: string): void;
  onThinking(text: string): void;
}

export interface ModelMessage {
  /** The text exactly as the model wrote it, thinking and calls included; only with raw history. */
  readonly raw?: string;
  readonly content: string;
  readonly thinking: string;
  readonly calls: readonly { name: string; arguments: string }[];
  readonly timings: Timings;
  /** Milliseconds from the request to its first token. */
  readonly firstTokenMs: number;
}

/** Sends one request and reads its stream. Throws ModelFailure, or the signal's reason when the caller cancelled. */
export async function requestMessage(
  server: InferenceServer,
  request: ModelRequest,
  options: { clock: Clock; livenessMs: number },
): Promise<ModelMessage> {
  const started = options.clock.monotonic();
  const watchdog = watchLiveness(options.clock, options.livenessMs, request.signal);
  let streaming = false;
  try {
    const response = await server.post(requestBody(server, request), watchdog.signal);
    streaming = true;
    watchdog.touch();
    if (!response.ok) throw await httpFailure(response);
    const message = newMessage(request);
    for await (const event of streamEvents(response)) {
      watchdog.touch();
      request.onLife();
      if (event === "[DONE]") return finish(message, request, started);
      addChunk(message, event, request, options.clock);
    }
    throw new ModelFailure("cut", "the stream ended without its end mark", false);
  } catch (error) {
    request.signal.throwIfAborted();
    if (watchdog.silent) {
      throw new ModelFailure("silent", `no sign of life from the server for ${options.livenessMs} ms`, false);
    }
    if (error instanceof ModelFailure || error instanceof BugError) throw error;
    if (error instanceof RangeError) throw new ModelFailure("model-error", error.message, false);
    const failure = server.failure(error);
    throw streaming ? new ModelFailure("cut", `the stream broke off; ${failure.detail}`, false) : failure;
  } finally {
    watchdog.stop();
  }
}

// Joined by hand from texts that exist already: a request must carry the earlier messages byte by byte, and re-serialising a long
// conversation for every tool iteration is the cost that grows.
function requestBody(server: InferenceServer, request: ModelRequest): string {
  const { model, maxTokens, temperature } = server.config;
  const settings = {
    model,
    stream: true,
    stream_options: { include_usage: true },
    id_slot: request.slot,
    cache_prompt: true,
    return_progress: true,
    max_tokens: maxTokens,
    // The tools stay in the prompt, which is the same with every tool_choice; "none" alone streams the text as it was written (facts 2b).
    ...(request.rawGrammar === undefined
      ? {}
      : { tool_choice: "none", reasoning_format: "none", grammar: request.rawGrammar }),
    ...(temperature === undefined ? {} : { temperature }),
  };
  const parts = [
    JSON.stringify(settings).slice(0, -1),
    `"messages":[${request.messagesJson}]`,
    ...(request.toolsJson === undefined ? [] : [`"tools":${request.toolsJson}`]),
  ];
  return parts.join(",") + "}";
}

/** Made once: an abort without a reason of its own makes an exception with a stack, for nobody. */
const requestOver = new Error("the request is over");

function watchLiveness(clock: Clock, livenessMs: number, outer: AbortSignal) {
  const abort = new AbortController();
  let silent = false;
  let last = clock.monotonic();
  let cancel = () => {};
  const look = () => {
    const silentMs = clock.monotonic() - last;
    if (silentMs < livenessMs) cancel = clock.schedule(livenessMs - silentMs, look);
    else {
      silent = true;
      abort.abort();
    }
  };
  cancel = clock.schedule(livenessMs, look);
  const onOuter = () => abort.abort(outer.reason);
  if (outer.aborted) onOuter();
  else outer.addEventListener("abort", onOuter, { once: true });
  return {
    signal: abort.signal,
    get silent() {
      return silent;
    },
    touch: () => {
      last = clock.monotonic();
    },
    // Aborting closes the connection in every way out: the server must never stream to nobody.
    stop: () => {
      cancel();
      outer.removeEventListener("abort", onOuter);
      abort.abort(requestOver);
    },
  };
}

async function* streamEvents(response: Response): AsyncGenerator<JsonObject | "[DONE]"> {
  if (response.body === null) return;
  const parser = eventStreamParser();
  for await (const bytes of response.body) {
    for (const { data } of parser.push(bytes)) {
      if (data === "[DONE]") {
        yield "[DONE]";
        return;
      }
      const event = parseJsonObject(data);
      if (event === undefined) {
        throw new ModelFailure("model-error", "the stream holds an event that is no JSON object", false);
      }
      yield event;
    }
  }
}

interface PartialMessage {
  raw: string;
  /** Takes thinking and calls out of the text; a structured server leaves some in it (F20). */
  readonly reply: RawReply;
  thinking: string;
  calls: { name: string; arguments: string }[];
  finish: string | undefined;
  timings: Timings | undefined;
  firstTokenAt: number | undefined;
}

function newMessage({ onContent, onThinking }: ModelRequest): PartialMessage {
  return {
    raw: "",
    reply: new RawReply({ onContent, onThinking }),
    thinking: "",
    calls: [],
    finish: undefined,
    timings: undefined,
    firstTokenAt: undefined,
  };
}

function addChunk(message: PartialMessage, event: JsonObject, request: ModelRequest, clock: Clock): void {
  if (isJsonObject(event.error)) throw serverFailure(event.error);
  const choice = Array.isArray(event.choices) ? event.choices[0] : undefined;
  if (isJsonObject(choice)) {
    const delta = isJsonObject(choice.delta) ? choice.delta : {};
    if (typeof delta.content === "string" && delta.content !== "") {
      message.raw += delta.content;
      message.firstTokenAt ??= clock.monotonic();
      message.reply.push(delta.content);
    }
    if (typeof delta.reasoning_content === "string" && delta.reasoning_content !== "") {
      message.thinking += delta.reasoning_content;
      message.firstTokenAt ??= clock.monotonic();
      request.onThinking(delta.reasoning_content);
    }
    if (Array.isArray(delta.tool_calls)) {
      message.firstTokenAt ??= clock.monotonic();
      for (const part of delta.tool_calls) addCallPart(message, part);
    }
    if (typeof choice.finish_reason === "string") message.finish = choice.finish_reason;
  }
  message.timings = readTimings(event) ?? message.timings;
  const characters = message.calls.reduce((sum, call) => sum + call.arguments.length, message.raw.length) +
    message.thinking.length;
  if (characters > modelMessageCharactersMax) {
    throw new ModelFailure(
      "model-error",
      `the message is over ${modelMessageCharactersMax} characters`,
      false,
    );
  }
}

// The first part of a call carries its name and already the first characters of its arguments (facts 3d).
function addCallPart(message: PartialMessage, part: unknown): void {
  if (!isJsonObject(part)) {
    throw new ModelFailure("model-error", "a tool call in the stream is no object", false);
  }
  const index = typeof part.index === "number" ? part.index : message.calls.length - 1;
  if (!Number.isInteger(index) || index < 0 || index > message.calls.length) {
    throw new ModelFailure("model-error", "a tool call in the stream is out of order", false);
  }
  if (index >= toolCallsPerMessageMax) {
    throw new ModelFailure(
      "model-error",
      `one message holds more than ${toolCallsPerMessageMax} tool calls`,
      false,
    );
  }
  const call = message.calls[index] ??= { name: "", arguments: "" };
  const fn = isJsonObject(part.function) ? part.function : {};
  if (typeof fn.name === "string") call.name += fn.name;
  if (typeof fn.arguments === "string") call.arguments += fn.arguments;
}

function readTimings(event: JsonObject): Timings | undefined {
  const { timings, usage } = event;
  if (isJsonObject(timings)) {
    return {
      cacheN: count(timings.cache_n),
      promptN: count(timings.prompt_n),
      predictedN: count(timings.predicted_n),
    };
  }
  if (isJsonObject(usage)) {
    const details = isJsonObject(usage.prompt_tokens_details) ? usage.prompt_tokens_details : {};
    const cacheN = count(details.cached_tokens);
    return {
      cacheN,
      promptN: Math.max(0, count(usage.prompt_tokens) - cacheN),
      predictedN: count(usage.completion_tokens),
    };
  }
  return undefined;
}

function count(value: unknown): number {
  return typeof value === "number" && Number.isInteger(value) && value >= 0 ? value : 0;
}

function finish(message: PartialMessage, request: ModelRequest, started: number): ModelMessage {
  if (message.finish === undefined) {
    throw new ModelFailure("cut", "the stream ended without a finish reason", true);
  }
  // A call that the token limit cut is never run and never stored: its arguments are no JSON, or worse, happen to be (facts 3d).
  if (message.finish === "length") {
    throw new ModelFailure("cut", "the model reached its token limit before it had finished", true);
  }
  const reply = message.reply.end();
  if (reply.calls === undefined) {
    throw new ModelFailure(
      "bad-arguments",
      "a tool call in the model's text holds no name and arguments object",
      true,
    );
  }
  for (const call of message.calls) {
    if (call.name === "" || parseJsonObject(call.arguments) === undefined) {
      throw new ModelFailure(
        "bad-arguments",
        `the arguments of ${shownName(call.name)} are no JSON object`,
        true,
      );
    }
  }
  const calls = [...message.calls, ...reply.calls];
  if (calls.length > toolCallsPerMessageMax) {
    throw new ModelFailure(
      "model-error",
      `one message holds more than ${toolCallsPerMessageMax} tool calls`,
      true,
    );
  }
  return {
    // A server that sent parsed calls all the same has no text for them, so the message goes back in their form.
    ...(request.rawGrammar === undefined || message.calls.length > 0 ? {} : { raw: message.raw }),
    // Structured history sends content back as it came, white space included, or the prefix ends there; what was read out of it stays out.
    content: request.rawGrammar === undefined && reply.untouched ? message.raw : reply.content,
    thinking: message.thinking + reply.thinking,
    calls,
    timings: message.timings ?? { cacheN: 0, promptN: 0, predictedN: 0 },
    firstTokenMs: (message.firstTokenAt ?? started) - started,
  };
}

function shownName(name: string): string {
  return /^[\w.-]{1,64}$/.test(name) ? `a call of ${name}` : "a tool call without a usable name";
}

async function httpFailure(response: Response): Promise<ModelFailure> {
  const body = parseJson((await response.text()).slice(0, 10_000))?.value;
  const error = isJsonObject(body) && isJsonObject(body.error) ? body.error : {};
  return serverFailure({ code: response.status, ...error }, {
    mayRetry: response.status >= 500,
    refused: response.status === 400 || response.status === 422 || response.status === 500,
  });
}

function serverFailure(error: JsonObject, { mayRetry = false, refused = false } = {}): ModelFailure {
  const code = typeof error.code === "number" ? ` ${error.code}` : "";
  const text = typeof error.message === "string" ? error.message : "no reason given";
  if (error.type === "exceed_context_size_error" || /context size/i.test(text)) {
    return new ModelFailure(
      "overflow",
      `the conversation does not fit the model's context (${plain(text)})`,
      true,
    );
  }
  return new ModelFailure(
    "model-error",
    `the inference server answered${code}: ${plain(text)}`,
    true,
    mayRetry,
    refused,
  );
}
