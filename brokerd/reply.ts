// What a tool makes of a whole 2xx reply: the text of the answer, or why it cannot be used. Parsed once here and trusted afterwards.
// The text leaves here neutralised and capped; nothing else of the reply goes on, but for the name of another model.

import { isJsonObject, type JsonObject, parseJsonObject } from "../core/json.ts";
import { auditAnswerCharactersMax } from "../core/limits.ts";
import { capText, neutralise } from "../core/text.ts";

export type Reading =
  | { readonly answer: string; readonly replyModel?: string }
  | { readonly unusable: string };

/** Leaves room for the line before it and the cut mark after it, so that loopd at its default cap does not cut it again. */
const answerCharactersMax = auditAnswerCharactersMax - 256;
const modelCharactersMax = 256;

/** A shorter key may stand in ordinary words. */
const bearerCharactersMin = 8;

/** What the request said. An answer that repeats the question or the key is none. */
export interface Asked {
  readonly question: string;
  readonly bearer: string | undefined;
}

/** An OpenAI-compatible completion: exactly one choice, with text. */
export function readCompletion(body: Uint8Array, asked: Asked & { readonly model: string }): Reading {
  const reply = readObject(body);
  if (reply === undefined) return { unusable: "the reply is not a JSON object" };
  const { choices, model } = reply;
  if (!Array.isArray(choices) || choices.length === 0) return { unusable: "the reply has no choices" };
  if (choices.length > 1) return { unusable: "the reply has more than one choice" };
  const message = isJsonObject(choices[0]) ? choices[0].message : undefined;
  const reading = readText(isJsonObject(message) ? message.content : undefined, asked);
  if ("unusable" in reading || typeof model !== "string" || model === asked.model) return reading;
  if (repeatsKey(model, asked)) return { unusable: "the reply repeats the key" };
  return { ...reading, replyModel: capText(neutralise(model.toWellFormed()), modelCharactersMax) };
}

/** Honcho's answer about a peer. */
export function readHonchoAnswer(body: Uint8Array, asked: Asked): Reading {
  const reply = readObject(body);
  return reply === undefined
    ? { unusable: "the reply is not a JSON object" }
    : readText(reply.content, asked);
}

function readObject(body: Uint8Array): JsonObject | undefined {
  try {
    return parseJsonObject(new TextDecoder("utf-8", { fatal: true }).decode(body));
  } catch {
    return undefined;
  }
}

function readText(content: unknown, asked: Asked): Reading {
  if (typeof content !== "string" || content.trim() === "") return { unusable: "the reply has no text" };
  if (content.trim() === asked.question.trim()) return { unusable: "the reply is the question again" };
  if (repeatsKey(content, asked)) return { unusable: "the reply repeats the key" };
  return { answer: capText(neutralise(content.toWellFormed()), answerCharactersMax) };
}

// The endpoint knows the key, and what it answers is recorded and read by the model: the key must come by neither.
function repeatsKey(text: string, { bearer }: Asked): boolean {
  return bearer !== undefined && bearer.length >= bearerCharactersMin && text.includes(bearer);
}
