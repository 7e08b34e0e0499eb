// The practice model's chat template: messages and tools in, the exact prompt text out.
// Owns: the ChatML form (tools in the system block, calls in <tool_call>, results in a user block), the faults
// a history can have, and the re-rendering of tool calls that makes structured history lose a little, as the
// real server does. Never sees slots or sockets; never repairs a history.

import { messageEnd, messageStart } from "./model_tokens.ts";

export interface ToolCall {
  id?: string;
  function: { name: string; arguments: string };
}

export interface ChatMessage {
  role: string;
  content?: string | null | { type: string; text?: string }[];
  reasoning_content?: string | null;
  tool_calls?: ToolCall[];
  tool_call_id?: string;
}

export interface Tool {
  function: { name: string; description?: string; parameters?: unknown };
}

/** `keep` renders all thinking that is sent back; `strip` only what follows the last user message. */
export type ThinkTemplate = "keep" | "strip";

export interface TemplateOptions {
  thinkTemplate: ThinkTemplate;
  strictPairing: boolean;
}

/** An error answer of the server: `status` and the fields of its `error` object. */
export class ServerFault extends Error {
  override name = "ServerFault";
  constructor(
    readonly status: number,
    readonly type: string,
    message: string,
    readonly fields: Record<string, unknown> = {},
  ) {
    super(message);
  }

  toJson(): unknown {
    return { error: { code: this.status, message: this.message, type: this.type, ...this.fields } };
  }
}

/** What `/props` shows as the template: the shape that `renderPrompt` writes. */
export const chatTemplate = `{#- practice model -#}
{%- if tools %}${messageStart}system ... <tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>${messageEnd}{% endif %}
{%- for message in messages %}${messageStart}{{ message.role }}
{{ message.content }}{% for call in message.tool_calls %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}${messageEnd}
{% endfor %}{% if add_generation_prompt %}${messageStart}assistant
{% endif %}`;

/** The exact text the model would read. Throws a `ServerFault` for a history the server refuses. */
export function renderPrompt(messages: ChatMessage[], tools: Tool[], options: TemplateOptions): string {
  if (options.strictPairing) requirePairs(messages);
  const last = messages.at(-1);
  const prefill = last?.role === "assistant" ? last : undefined;
  if (prefill !== undefined && messages.at(-2)?.role === "assistant") {
    throw new ServerFault(
      400,
      "invalid_request_error",
      "Cannot have 2 or more assistant messages at the end of the list.",
    );
  }
  const lastUser = messages.findLastIndex((message) => message.role === "user");
  let prompt = systemBlock(messages, tools);
  for (const [at, message] of messages.entries()) {
    if (message === prefill || (at === 0 && message.role === "system")) continue;
    const keepThinking = options.thinkTemplate === "keep" || at > lastUser;
    prompt += messageBlock(message, keepThinking);
  }
  prompt += `${messageStart}assistant\n`;
  return prefill === undefined ? prompt : prompt + assistantText(prefill, true);
}

/** Parses `messages` as the server does: few things are refused, unknown fields and roles are let through. */
export function parseMessages(value: unknown): ChatMessage[] {
  if (value === undefined) throw new ServerFault(400, "invalid_request_error", "'messages' is required");
  if (!Array.isArray(value)) {
    throw new ServerFault(400, "invalid_request_error", "Expected 'messages' to be an array");
  }
  for (const message of value) {
    if (typeof message !== "object" || message === null || typeof message.role !== "string") {
      throw new ServerFault(
        400,
        "invalid_request_error",
        "Expected each message to be an object with a 'role'",
      );
    }
    const { content, tool_calls: calls } = message;
    if (content !== undefined && content !== null && typeof content !== "string" && !Array.isArray(content)) {
      throw new ServerFault(400, "invalid_request_error", "Expected 'content' to be a string or an array");
    }
    if (calls !== undefined && calls !== null && !(Array.isArray(calls) && calls.every(isToolCall))) {
      throw new ServerFault(400, "invalid_request_error", "Expected 'tool_calls' to be an array of calls");
    }
  }
  return value;
}

export function parseTools(value: unknown): Tool[] {
  if (value === undefined || value === null) return [];
  const fits = Array.isArray(value) && value.every((tool) =>
    typeof tool?.function?.name === "string" &&
    (tool.function.description === undefined || typeof tool.function.description === "string")
  );
  if (!fits) {
    throw new ServerFault(500, "server_error", "Failed to parse tools: a tool needs a function with a name");
  }
  return value;
}

/** The text of a message's content; text parts are joined by newlines. */
export function contentText(message: ChatMessage): string {
  if (!Array.isArray(message.content)) return message.content ?? "";
  if (message.content.some((part) => part.type !== "text")) {
    throw new ServerFault(500, "server_error", "image input is not supported - hint: provide the mmproj");
  }
  return message.content.map((part) => part.text ?? "").join("\n");
}

/** JSON as the template writes it: one space after `,` and `:`, key order kept, numbers in shortest form. */
export function dumpJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(dumpJson).join(", ")}]`;
  if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value).filter(([, each]) => each !== undefined);
    return `{${entries.map(([key, each]) => `${JSON.stringify(key)}: ${dumpJson(each)}`).join(", ")}}`;
  }
  return JSON.stringify(value) ?? "null";
}

/** What stands before, and what after, the arguments of a call in the model's own text. */
export function callFrame(name: string): { open: string; close: string } {
  return { open: `<tool_call>\n{"name": ${JSON.stringify(name)}, "arguments": `, close: "}\n</tool_call>" };
}

export const thinkFrame = { open: "<think>\n", close: "\n</think>\n\n" };

function systemBlock(messages: ChatMessage[], tools: Tool[]): string {
  const system = messages[0]?.role === "system" ? contentText(messages[0]) : undefined;
  if (tools.length === 0) {
    return system === undefined ? "" : `${messageStart}system\n${system}${messageEnd}\n`;
  }
  const listed = tools.map(({ function: { name, description, parameters } }) =>
    "\n" + dumpJson({ type: "function", function: { name, description, parameters } })
  );
  return `${messageStart}system\n` +
    (system === undefined ? "" : `${system}\n\n`) +
    `# Tools\n\nThese functions can be called:\n<tools>${listed.join("")}\n</tools>\n\n` +
    `A call is a JSON object inside tags:\n<tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call>` +
    `${messageEnd}\n`;
}

function messageBlock(message: ChatMessage, keepThinking: boolean): string {
  switch (message.role) {
    case "system":
    case "user":
      return `${messageStart}${message.role}\n${contentText(message)}${messageEnd}\n`;
    case "assistant":
      return `${messageStart}assistant\n${assistantText(message, keepThinking)}${messageEnd}\n`;
    case "tool":
      return `${messageStart}user\n<tool_response>\n${contentText(message)}\n</tool_response>${messageEnd}\n`;
    default:
      return "";
  }
}

function assistantText(message: ChatMessage, keepThinking: boolean): string {
  const thinking = keepThinking ? message.reasoning_content ?? "" : "";
  let text = contentText(message);
  for (const call of message.tool_calls ?? []) {
    const frame = callFrame(call.function.name);
    text += (text === "" ? "" : "\n") + frame.open + rewrittenArguments(call.function.arguments) +
      frame.close;
  }
  return thinking === "" ? text : thinkFrame.open + thinking + thinkFrame.close + text;
}

function rewrittenArguments(text: string): string {
  try {
    return dumpJson(JSON.parse(text));
  } catch {
    throw new ServerFault(500, "server_error", `Failed to parse tool call arguments as JSON: ${text}`);
  }
}

function isToolCall(value: unknown): value is ToolCall {
  const called = (value as Partial<ToolCall> | null)?.function;
  return typeof called?.name === "string" && typeof called.arguments === "string";
}

/** Refuses a history in which calls and results do not stand in pairs, as strict templates do. */
function requirePairs(messages: ChatMessage[]): void {
  const open = new Set<string>();
  const refuse = (message: string): never => {
    throw new ServerFault(400, "invalid_request_error", message);
  };
  const requireNoneOpen = () => {
    if (open.size > 0) {
      refuse(`tool call ${JSON.stringify([...open][0])} has no tool message that answers it`);
    }
  };
  for (const message of messages) {
    if (message.role === "tool") {
      if (!open.delete(message.tool_call_id ?? "")) {
        refuse(
          `tool message answers ${JSON.stringify(message.tool_call_id ?? null)}, which is no open tool call`,
        );
      }
      continue;
    }
    requireNoneOpen();
    for (const call of message.tool_calls ?? []) {
      if (typeof call.id !== "string" || call.id === "" || open.has(call.id)) {
        refuse(`tool call id ${JSON.stringify(call.id ?? null)} is missing or stands twice`);
      }
      open.add(call.id as string);
    }
  }
  requireNoneOpen();
}
