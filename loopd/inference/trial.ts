// What the configured server does with real requests, for `bx doctor`: how long a prompt takes cold and warm, whether its cache outlives work on
// another slot, whether a cancelled request frees its slot, whether a tool call comes back. The texts are its own, no session's, and it works
// on the background slot in its turn, behind everything else.

import { type Clock, withDeadline } from "../../core/clock.ts";
import { isJsonObject, type JsonObject, parseJson, parseJsonObject } from "../../core/json.ts";
import type { ProbeFinding } from "../../core/protocol/common.ts";
import { plain } from "./model_failure.ts";
import type { InferenceServer } from "./server.ts";

export interface TrialOptions {
  readonly clock: Clock;
  /** Held by the caller. */
  readonly slot: number;
  /** A slot that loopd never uses, to see what work there does to `slot`; `undefined` where the server has none. */
  readonly spareSlot: number | undefined;
  readonly signal: AbortSignal;
  /** Told before each trial, for whoever waits behind them. */
  onLife(): void;
}

/** One to two thousand tokens, by the tokenizer: enough to tell computing from finding, and a few seconds on a small device. */
const promptWords = 500;
const toolTokensMax = 256;
const cancelledTokensMax = 2_048;
const bodyCharactersMax = 1_048_576;
/** llama.cpp keeps all of a prompt but its last token; a template may end the prompt differently. */
const keptShareMin = 0.9;

const startLine = "start it with -np 3 --jinja --cache-ram 0 -b 512 -ub 512";

type Trial = (server: InferenceServer, options: TrialOptions) => Promise<ProbeFinding[]>;

/** One trial after another; one that cannot be made says why, and the next is made all the same. */
export async function tryServer(server: InferenceServer, options: TrialOptions): Promise<ProbeFinding[]> {
  const trials: readonly [check: string, trial: Trial][] = [
    ["first token", promptTrial],
    ["tool calls", toolTrial],
    ["cancel", cancelTrial],
  ];
  const findings: ProbeFinding[] = [];
  for (const [check, trial] of trials) {
    try {
      options.onLife();
      findings.push(...await trial(server, options));
    } catch (error) {
      options.signal.throwIfAborted();
      const text = plain(error instanceof Error ? error.message : String(error));
      findings.push({ check, ok: false, text, advice: startLine });
    }
  }
  return findings;
}

async function promptTrial(server: InferenceServer, options: TrialOptions): Promise<ProbeFinding[]> {
  const { slot, spareSlot } = options;
  // New words each time: what an earlier doctor left in the slot must not make the first look warm.
  const seed = crypto.randomUUID();
  const words = Array.from({ length: promptWords }, (_, at) => (at * 7_919 % 1_009).toString(36)).join(" ");
  const messages = [{ role: "user", content: `${seed} ${words}\nAnswer with one word.` }];
  const ask = (on: number, said: unknown) =>
    complete(server, { slot: on, max_tokens: 1, messages: said }, options);
  const cold = await ask(slot, messages);
  const warm = await ask(slot, messages);
  const isKept = warm.cacheN !== undefined &&
    warm.cacheN >= keptShareMin * (warm.cacheN + (warm.promptN ?? 0));
  const findings: ProbeFinding[] = [{
    check: "first token",
    ok: isKept,
    text: `cold ${ms(cold.elapsedMs)} for ${cold.promptN ?? "?"} tokens, warm ${ms(warm.elapsedMs)} (${
      warm.cacheN ?? "no count of"
    } tokens found in the cache)`,
    ...(isKept ? {} : {
      advice:
        `every request computes its whole prompt again: ${startLine}, and let nothing else use slot ${slot}`,
    }),
  }];
  if (!isKept) return findings;
  const check = "slot cache";
  if (spareSlot === undefined || await server.isProcessing(spareSlot)) {
    const why = spareSlot === undefined ? "the server has no slot to spare" : `slot ${spareSlot} is at work`;
    const advice = spareSlot === undefined ? { advice: "start it with -np 3 to have it tried" } : {};
    const text = `${why}, so whether work on one slot clears another was not tried`;
    findings.push({ check, ok: true, text, ...advice });
    return findings;
  }
  await ask(spareSlot, [{ role: "user", content: `${seed} Hello.` }]);
  const after = await ask(slot, messages);
  const outlived = (after.cacheN ?? 0) >= keptShareMin * (warm.cacheN ?? 0);
  findings.push({
    check,
    ok: outlived,
    text: outlived
      ? `outlives work on slot ${spareSlot}: ${after.cacheN} tokens found again`
      : `work on slot ${spareSlot} cleared slot ${slot}: its cache is unified, and idle slots are emptied`,
    ...(outlived ? {} : { advice: `give the slots explicitly: ${startLine}` }),
  });
  return findings;
}

async function toolTrial(
  server: InferenceServer,
  { slot, ...options }: TrialOptions,
): Promise<ProbeFinding[]> {
  const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
  const { body } = await complete(server, {
    slot,
    max_tokens: toolTokensMax,
    tools: [{
      type: "function",
      function: { name: "weather", description: "The weather in a city.", parameters },
    }],
    tool_choice: "required",
    messages: [{ role: "user", content: "What is the weather in Paris? Use the tool." }],
  }, options);
  const call = firstOf(messageOf(body)?.tool_calls);
  const called = isJsonObject(call?.function) ? call.function : undefined;
  const isSound = called?.name === "weather" && typeof called.arguments === "string" &&
    parseJsonObject(called.arguments) !== undefined;
  return [{
    check: "tool calls",
    ok: isSound,
    text: isSound
      ? "the model calls a tool when it is made to, with arguments that are JSON"
      : "the model was made to call a tool, and no call that can be read came back",
    ...(isSound
      ? {}
      : { advice: "start the server with --jinja, and use a model that was trained to call tools" }),
  }];
}

async function cancelTrial(
  server: InferenceServer,
  { slot, clock, signal }: TrialOptions,
): Promise<ProbeFinding[]> {
  const cancel = new AbortController();
  const messages = [{ role: "user", content: "Count upwards from one, one number a line, and do not stop." }];
  const response = await server.post(
    bodyText(server, { slot, stream: true, max_tokens: cancelledTokensMax, messages }),
    AbortSignal.any([signal, cancel.signal]),
  );
  const reader = response.body?.getReader();
  await reader?.read();
  cancel.abort(new Error("cancelled by doctor"));
  await reader?.read().catch(() => {});
  const began = clock.monotonic();
  if (await server.isProcessing(slot) === undefined) return [];
  await server.drained(slot, "request", signal);
  return [{
    check: "cancel",
    ok: true,
    text: `a cancelled request leaves its slot: idle when looked at ${ms(clock.monotonic() - began)} later`,
  }];
}

interface Completion {
  readonly body: unknown;
  readonly elapsedMs: number;
  /** Tokens found in the slot, and tokens computed; `undefined` where the server does not say. */
  readonly cacheN: number | undefined;
  readonly promptN: number | undefined;
}

async function complete(
  server: InferenceServer,
  fields: JsonObject & { slot: number },
  { clock, signal }: Pick<TrialOptions, "clock" | "signal">,
): Promise<Completion> {
  const began = clock.monotonic();
  const { response, text } = await withDeadline(clock, server.config.livenessMs, signal, async (ending) => {
    const response = await server.post(bodyText(server, fields), ending);
    return { response, text: await boundedText(response) };
  });
  const body = parseJson(text)?.value;
  if (!response.ok || body === undefined) {
    throw new Error(`the server answered HTTP ${response.status}: ${text.slice(0, 200)}`);
  }
  const timings = isJsonObject(body) && isJsonObject(body.timings) ? body.timings : {};
  return {
    body,
    elapsedMs: clock.monotonic() - began,
    cacheN: count(timings.cache_n),
    promptN: count(timings.prompt_n),
  };
}

async function boundedText(response: Response): Promise<string> {
  let text = "";
  for await (const part of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    text += part;
    if (text.length > bodyCharactersMax) {
      throw new Error(`its answer is over ${bodyCharactersMax} characters`);
    }
  }
  return text;
}

function bodyText(server: InferenceServer, { slot, ...fields }: JsonObject & { slot: number }): string {
  return JSON.stringify({ model: server.config.model, id_slot: slot, cache_prompt: true, ...fields });
}

function messageOf(body: unknown): JsonObject | undefined {
  const choice = isJsonObject(body) ? firstOf(body.choices) : undefined;
  return isJsonObject(choice?.message) ? choice.message : undefined;
}

function firstOf(list: unknown): JsonObject | undefined {
  return Array.isArray(list) && isJsonObject(list[0]) ? list[0] : undefined;
}

function count(value: unknown): number | undefined {
  return typeof value === "number" && value >= 0 ? value : undefined;
}

function ms(value: number): string {
  return `${Math.round(value)} ms`;
}
