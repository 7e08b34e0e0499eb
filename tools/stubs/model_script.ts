// What the practice model says: the types of a script, and the plain ways to write one.
// Owns: `Script` and `Reply`, replies in order (`scripted`), replies by what was said (`byPhrase`), and the JSON
// form of both for use from outside the process. Never touches a socket or a slot.

import { z } from "zod";
import { type ChatMessage, contentText, type Tool } from "./model_template.ts";

/** What a script is told about the request it answers. */
export interface ScriptRequest {
  readonly messages: readonly ChatMessage[];
  readonly tools: readonly Tool[];
  /** `tool_choice: "required"`: the real server's grammar lets nothing but a call be written. */
  readonly mustCall?: boolean;
  readonly slot: number;
  /** Requests launched before this one. */
  readonly index: number;
  readonly prompt: string;
}

export type Script = (request: ScriptRequest) => Reply | Promise<Reply>;

/** One thing the model says, and how the server misbehaves while it does. Text comes before calls. */
export interface Reply {
  content?: string;
  thinking?: string;
  /** An object is written as the template would write it; a string is the model's own text, valid or not. */
  toolCalls?: { name: string; arguments: Record<string, unknown> | string }[];
  /** Default: `tool_calls` when there are calls, else `stop`. `length` leaves the last call unfinished. */
  finish?: "stop" | "tool_calls" | "length";
  fault?: Fault;
  /** Awaited before the first token; headers are out, nothing follows them meanwhile. */
  hold?: Promise<void>;
  /** How many `prompt_progress` events come before the first token, when the request asks for them. */
  progress?: number;
  /** How many comment lines (`:`) come before the first token of a stream. */
  pings?: number;
  /** Awaited before each progress event (number from 0). */
  beforeProgress?: (number: number) => Promise<void> | void;
  /** Awaited before each delta (number from 0). */
  beforeChunk?: (number: number) => Promise<void> | void;
  /** Most UTF-8 bytes of text in one delta. */
  chunkBytes?: number;
  /** Cuts the stream's bytes into writes of this size, in the middle of characters if it falls so. */
  writeBytes?: number;
}

/** `afterChunks` counts deltas; the chunk with the role is not one. */
export type Fault =
  /** An error answer in place of the reply; the slot is not touched. */
  | {
    kind: "status";
    status: number;
    body?: string | Record<string, unknown>;
    headers?: Record<string, string>;
  }
  /** Accepts and says nothing; with `headers`, a head and then nothing. */
  | { kind: "silent"; headers?: boolean }
  /** Some deltas, then nothing. */
  | { kind: "stall"; afterChunks: number }
  /** Some deltas, then the connection closes; with `clean`, the HTTP body ends properly but without `[DONE]`. */
  | { kind: "cut"; afterChunks: number; clean?: boolean }
  /** Some deltas, then an error event and the end of the body, without `[DONE]`; the slot is cleared. */
  | { kind: "error-event"; message: string; afterChunks?: number };

type Step = Reply | string | ((request: ScriptRequest) => Reply | Promise<Reply>);

/** Replies in order; a string is plain content. One list for the server, or one run of it per conversation. */
export function scripted(
  steps: readonly Step[],
  options: { per?: "server" | "conversation"; otherwise?: Script } = {},
): Script {
  const taken = new Map<string, number>();
  return (request) => {
    const key = options.per === "conversation" ? conversationKey(request.messages) : "";
    const at = taken.get(key) ?? 0;
    taken.set(key, at + 1);
    if (at < steps.length) return answer(steps[at], request);
    if (options.otherwise !== undefined) return options.otherwise(request);
    throw new Error(`the script has ${steps.length} replies, and request ${at + 1} asks for one more`);
  };
}

export interface Rule {
  /** A string matches when the last message contains it; a pattern, when it matches there. */
  when: string | RegExp | { role?: string; contains?: string; pattern?: RegExp; slot?: number };
  reply: Step;
  /** How often the rule may answer; default: always. */
  times?: number;
}

/** The first rule that matches the last message answers. */
export function byPhrase(rules: readonly Rule[], otherwise?: Script): Script {
  const left = rules.map((rule) => rule.times ?? Infinity);
  return (request) => {
    const at = rules.findIndex((rule, index) => left[index] > 0 && matches(rule.when, request));
    if (at >= 0) {
      left[at]--;
      return answer(rules[at].reply, request);
    }
    if (otherwise !== undefined) return otherwise(request);
    throw new Error(`no rule of the script matches the last message, a ${request.messages.at(-1)?.role}`);
  };
}

/** The text of the last message. */
export function lastText(messages: readonly ChatMessage[]): string {
  const last = messages.at(-1);
  return last === undefined ? "" : contentText(last);
}

/** Named latches for the JSON form: a reply with `"hold": "x"` waits until `x` is released. */
export class Holds {
  #latches = new Map<string, PromiseWithResolvers<void>>();

  wait(name: string): Promise<void> {
    return this.#latch(name).promise;
  }

  release(name: string): void {
    this.#latch(name).resolve();
  }

  #latch(name: string): PromiseWithResolvers<void> {
    const latch = this.#latches.get(name) ?? Promise.withResolvers<void>();
    this.#latches.set(name, latch);
    return latch;
  }
}

const chunksMax = 1_000_000;
const stepsMax = 10_000;

const faultSchema = z.discriminatedUnion("kind", [
  z.strictObject({
    kind: z.literal("status"),
    status: z.int().min(100).max(599),
    body: z.union([z.string(), z.record(z.string(), z.unknown())]).optional(),
    headers: z.record(z.string(), z.string()).optional(),
  }),
  z.strictObject({ kind: z.literal("silent"), headers: z.boolean().optional() }),
  z.strictObject({ kind: z.literal("stall"), afterChunks: z.int().min(0).max(chunksMax) }),
  z.strictObject({
    kind: z.literal("cut"),
    afterChunks: z.int().min(0).max(chunksMax),
    clean: z.boolean().optional(),
  }),
  z.strictObject({
    kind: z.literal("error-event"),
    message: z.string(),
    afterChunks: z.int().min(0).max(chunksMax).optional(),
  }),
]);

const replySchema = z.strictObject({
  content: z.string().optional(),
  thinking: z.string().optional(),
  toolCalls: z.array(z.strictObject({
    name: z.string(),
    arguments: z.union([z.string(), z.record(z.string(), z.unknown())]),
  })).max(stepsMax).optional(),
  finish: z.enum(["stop", "tool_calls", "length"]).optional(),
  fault: faultSchema.optional(),
  hold: z.string().optional(),
  progress: z.int().min(0).max(chunksMax).optional(),
  pings: z.int().min(0).max(chunksMax).optional(),
  chunkBytes: z.int().min(1).optional(),
  writeBytes: z.int().min(1).optional(),
});

const stepSchema = z.union([z.string(), replySchema]);
const otherwiseSchema = z.union([z.literal("phrases"), replySchema]).optional();

const scriptSchema = z.union([
  z.array(stepSchema).max(stepsMax),
  z.strictObject({
    replies: z.array(stepSchema).max(stepsMax),
    per: z.enum(["server", "conversation"]).optional(),
    otherwise: otherwiseSchema,
  }),
  z.strictObject({
    rules: z.array(z.strictObject({
      when: z.strictObject({
        role: z.string().optional(),
        contains: z.string().optional(),
        pattern: z.string().optional(),
        slot: z.int().min(0).optional(),
      }),
      reply: stepSchema,
      times: z.int().min(1).optional(),
    })).max(stepsMax),
    otherwise: otherwiseSchema,
  }),
]);

type JsonStep = z.infer<typeof stepSchema>;

/**
 * Parses the JSON form of a script: a list of replies, `{replies, per?, otherwise?}` or `{rules, otherwise?}`.
 * `phrases` is what `"otherwise": "phrases"` falls back to. Throws an error that names the place and the wanted form.
 */
export function parseScript(json: string, context: { holds: Holds; phrases: Script }): Script {
  const parsed = scriptSchema.safeParse(parseJson(json));
  if (!parsed.success) throw new Error(`the script does not fit: ${z.prettifyError(parsed.error)}`);
  const script = parsed.data;
  const toStep = (step: JsonStep): Step => {
    if (typeof step === "string") return step;
    const { hold, ...reply } = step;
    return () => hold === undefined ? reply : { ...reply, hold: context.holds.wait(hold) };
  };
  if (Array.isArray(script)) return scripted(script.map(toStep));
  const { otherwise } = script;
  const fallback: Script | undefined = otherwise === undefined
    ? undefined
    : otherwise === "phrases"
    ? context.phrases
    : (request) => answer(toStep(otherwise), request);
  if ("replies" in script) {
    return scripted(script.replies.map(toStep), { per: script.per, otherwise: fallback });
  }
  const rules = script.rules.map(({ when: { pattern, ...when }, reply, times }): Rule => ({
    when: { ...when, ...(pattern === undefined ? {} : { pattern: new RegExp(pattern, "u") }) },
    reply: toStep(reply),
    times,
  }));
  return byPhrase(rules, fallback);
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (fault) {
    throw new Error(`the script is not JSON: ${(fault as Error).message}`);
  }
}

function answer(step: Step, request: ScriptRequest): Reply | Promise<Reply> {
  if (typeof step === "string") return { content: step };
  return typeof step === "function" ? step(request) : step;
}

function matches(when: Rule["when"], request: ScriptRequest): boolean {
  const text = lastText(request.messages);
  if (typeof when === "string") return text.includes(when);
  if (when instanceof RegExp) return when.test(text);
  return (when.role === undefined || when.role === request.messages.at(-1)?.role) &&
    (when.slot === undefined || when.slot === request.slot) &&
    (when.contains === undefined || text.includes(when.contains)) &&
    (when.pattern === undefined || when.pattern.test(text));
}

/** A conversation is told by how it begins: the system text and the first user message. */
function conversationKey(messages: readonly ChatMessage[]): string {
  const first = messages.find((message) => message.role === "user");
  const system = messages[0]?.role === "system" ? contentText(messages[0]) : "";
  return JSON.stringify([system, first === undefined ? "" : contentText(first)]);
}
