// How the device check asks a model for one exact call, plainer with every try, and how that wish is read back out of the conversation
// by those who speak in a model's place: the practice model of --stub and the relay of --steer.

import type { JsonObject } from "../../core/json.ts";
import { parseJsonObject } from "../../core/json.ts";
import type { Reply } from "../stubs/model_script.ts";
import { type ChatMessage, contentText } from "../stubs/model_template.ts";
import type { Wish } from "../stubs/steer.ts";

export interface WantedCall {
  readonly name: string;
  readonly arguments: Readonly<JsonObject>;
}

/** How often a model is asked for the same call. */
export const triesMax = 3;

/** A tool of the catalog is run by call_tool. */
export function throughCallTool(name: string, args: JsonObject): WantedCall {
  return { name: "call_tool", arguments: { name, arguments: args } };
}

const prefaces = [
  "",
  "This is a check of your tools, and nothing else is asked of you. Do not explain and do not ask back.\n",
  "This is a check of your tools. Your next message must be one tool call and no text at all. Do not change the arguments.\n",
];

/** `attempt` counts from 1. */
export function requestText(wanted: WantedCall, attempt: number): string {
  return `${
    prefaces[Math.min(attempt, prefaces.length) - 1]
  }Call the tool ${wanted.name} now, with exactly these arguments:\n` +
    `${JSON.stringify(wanted.arguments)}\nWhen its result is there, answer with one short sentence.`;
}

const request = /^Call the tool (\w+) now, with exactly these arguments:\n(\{.*\})$/m;

/** What the conversation asks for next: the call of the last message, and after any result, or without a call, a short text. */
export function wishOf(messages: readonly ChatMessage[]): Wish {
  const last = messages.at(-1);
  const match = last?.role === "user" ? request.exec(contentText(last)) : null;
  const args = match === null ? undefined : parseJsonObject(match[2]);
  if (match !== null && args !== undefined) return { call: { name: match[1], arguments: args } };
  return { say: last?.role === "tool" ? "The result is there." : "done" };
}

/** The same for the practice model. */
export function replyOf(wish: Wish): Reply {
  if ("say" in wish) return { content: wish.say };
  return { toolCalls: [{ name: wish.call.name, arguments: { ...wish.call.arguments } }] };
}
