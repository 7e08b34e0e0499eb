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

/** An OpenAI-compatible completion: exactly one choice, with text, and not the question itself. */
export function readCompletion(body: Uint8Array, asked: { model: string; question: string }): Reading {
  const reply = readObject(body);
  if (reply === undefined) return { unusable: "the reply is not a JSON object" };
  const { choices, model } = reply;
  if (!Array.isArray(choices) || choices.length === 0) return { unusable: "the reply has no choices" };
  if (choices.length > 1) return { unusable: "the reply has more than one choice" };
  const message = isJsonObject(choices[0]) ? choices[0].message : undefined;
  const reading = readText(isJsonObject(message) ? message.content : undefined, asked.question);
  if ("unusable" in reading || typeof model !== "string" || model === asked.model) return reading;
  return { ...reading, replyModel: capText(neutralise(model.toWellFormed()), modelCharactersMax) };
}

/** Honcho's answer about a peer. */
export function readHonchoAnswer(body: Uint8Array, question: string): Reading {
  const reply = readObject(body);
  return reply === undefined
    ? { unusable: "the reply is not a JSON object" }
    : readText(reply.content, question);
}

function readObject(body: Uint8Array): JsonObject | undefined {
  try {
    return parseJsonObject(new TextDecoder("utf-8", { fatal: true }).decode(body));
  } catch {
    return undefined;
  }
}

function readText(content: unknown, question: string): Reading {
  if (typeof content !== "string" || content.trim() === "") return { unusable: "the reply has no text" };
  if (content.trim() === question.trim()) return { unusable: "the reply is the question again" };
  return { answer: capText(neutralise(content.toWellFormed()), answerCharactersMax) };
}
