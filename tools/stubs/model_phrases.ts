// The practice model that a person can play with: simple phrases in, tool calls or short sentences out.
// Owns: the table of phrases and the sentence that follows a tool result. The same words always get the same
// answer. It never invents: what it cannot do it says, and it says that it is a practice model, not a real one.

import { type ChatMessage, contentText, type Tool } from "./model_template.ts";
import type { Reply, Script, ScriptRequest } from "./model_script.ts";

const wordsMax = 50_000;
const quoteCharactersMax = 400;

interface Phrase {
  /** How a person would type it; `help` lists these. */
  example: string;
  pattern: RegExp;
  reply: (match: RegExpExecArray, request: ScriptRequest) => Reply;
}

/** The order matters: what carries a task for another comes first, so that the task's own words do not match. */
const phrasesInOrder: readonly Phrase[] = [
  {
    example: "delegate: TASK (or: have a subagent TASK)",
    pattern: /^(?:delegate\s*:|have a subagent\b:?|ask a subagent to\b|subagent\b:?)\s*(\S.*)$/is,
    reply: ([, task]) => call("call_tool", { name: "subagent", arguments: { task } }),
  },
  {
    example: "ask the cloud: QUESTION (or: consult QUESTION, second opinion: QUESTION)",
    pattern: /^(?:ask the cloud\s*:?|consult\b:?|second opinion\s*:?)\s*(\S.*)$/is,
    reply: ([, question]) => call("call_tool", { name: "consult", arguments: { question } }),
  },
  {
    example: "ask memory: QUESTION",
    pattern: /^ask memory\s*:?\s*(\S.*)$/is,
    reply: ([, question]) => call("ask_memory", { question }),
  },
  {
    example: "what time is it",
    pattern: /^(?:what(?:'s|’s| is) the time|what time is it|(?:the )?time|clock)(?: now)?[\s?.!]*$/i,
    reply: () => call("clock", {}),
  },
  {
    example: "remember THING",
    pattern: /^(?:please )?remember\b(?: that\b)?:?\s*(\S.*)$/is,
    reply: ([, text]) => call("memory", { action: "add", target: "notes", text }),
  },
  {
    example: "forget THING",
    pattern: /^(?:please )?forget\b:?\s*(\S.*)$/is,
    reply: ([, text]) => call("memory", { action: "remove", target: "notes", text }),
  },
  {
    example: "my name is NAME (or: I am WHAT YOU ARE)",
    pattern: /^((?:my name is|i am|i'm|i’m)\s+\S.*)$/is,
    reply: ([, text]) => call("memory", { action: "add", target: "identity", text }),
  },
  {
    example: "recall THING (or: what do you know about THING)",
    pattern: /^(?:recall\b:?|what do you know about\b)\s*(\S.*?)\s*\??$/is,
    reply: ([, query]) => call("recall", { query }),
  },
  {
    example: "find tools WORDS",
    pattern: /^find (?:a )?tools?\b(?: for\b)?:?\s*(\S.*)$/is,
    reply: ([, query]) => call("find_tool", { query }),
  },
  {
    example: "think about THING",
    pattern: /^think (?:about|of)\s+(\S.*)$/is,
    reply: ([, thing]) => ({
      thinking: `The owner asks me to think about this: ${quote(thing)}\n` +
        "A practice model has no thoughts of its own; these lines stand where a real one would put them.",
      content: `I have thought about ${quote(thing)}, as far as a practice model can: it is what you wrote.`,
    }),
  },
  {
    example: "write N words",
    pattern: /^write (\d{1,9}) words[\s.!]*$/i,
    reply: ([, count]) => ({ content: words(Math.min(Number(count), wordsMax)) }),
  },
  {
    example: "summarise",
    pattern: /^(?:please )?summari[sz]e\b.*$/is,
    reply: (_, { messages }) => ({ content: summary(messages) }),
  },
  {
    example: "help",
    pattern: /^(?:help|\?)[\s.!?]*$/i,
    reply: () => ({ content: helpText() }),
  },
];

/** The script of the practice model. */
export function phrases(): Script {
  return (request) => {
    const { messages } = request;
    const results = trailingResults(messages);
    if (results.length > 0) return { content: results.map((each) => sentence(messages, each)).join(" ") };
    const last = messages.at(-1);
    const said = last?.role === "user" ? withoutTimeLine(contentText(last)).trim() : "";
    for (const phrase of phrasesInOrder) {
      const match = phrase.pattern.exec(said);
      if (match !== null) return withToolsAtHand(phrase.reply(match, request), request.tools);
    }
    if (request.mustCall) return firstCall(request.tools);
    return {
      content:
        `This is the practice model, not a real one: it knows only a few phrases, and ${
          quote(said)
        } is none ` +
        "of them. Say “help” for the list.",
    };
  };
}

/** The text without the line of the clock that may stand before a task. */
export function withoutTimeLine(text: string): string {
  return text.replace(/^\[[A-Z][a-z]{2} \d{4}-\d{2}-\d{2} \d{2}:\d{2}(?::\d{2})?, [^\]\n]+\]\r?\n/, "");
}

function call(name: string, args: Record<string, unknown>): Reply {
  return { toolCalls: [{ name, arguments: args }] };
}

/** The first tool, with a word for each argument that it wants. */
function firstCall([tool]: readonly Tool[]): Reply {
  const { name, parameters } = tool.function;
  const { required } = (parameters ?? {}) as { required?: string[] };
  return call(name, Object.fromEntries((required ?? []).map((key) => [key, "practice"])));
}

function withToolsAtHand(reply: Reply, tools: readonly Tool[]): Reply {
  const missing = reply.toolCalls?.find(({ name }) => !tools.some((tool) => tool.function.name === name));
  if (missing === undefined) return reply;
  return { content: `I would call ${missing.name} for that, but this request offers no such tool.` };
}

function trailingResults(messages: readonly ChatMessage[]): ChatMessage[] {
  return messages.slice(messages.findLastIndex((message) => message.role !== "tool") + 1);
}

function sentence(messages: readonly ChatMessage[], result: ChatMessage): string {
  const name = calledName(messages, result.tool_call_id);
  const text = contentText(result);
  if (text.startsWith("denied:")) return `${name} was denied: ${quote(text)}.`;
  if (/^(?:error:|subagent \S+ failed:)/.test(text)) return `${name} did not work: ${quote(text)}.`;
  return `${name} answered: ${quote(text)}.`;
}

/** The name of the tool that a result belongs to; for `call_tool`, of the tool that it named. */
function calledName(messages: readonly ChatMessage[], id: string | undefined): string {
  const called = messages.flatMap((message) => message.tool_calls ?? []).findLast((each) => each.id === id)
    ?.function;
  if (called === undefined) return "The tool";
  if (called.name !== "call_tool") return called.name;
  const inner = JSON.parse(called.arguments)?.name;
  return typeof inner === "string" ? inner : called.name;
}

function quote(text: string): string {
  const characters = [...text.trim().replaceAll(/\s+/g, " ")];
  const short = characters.slice(0, quoteCharactersMax).join("");
  return `“${short}${characters.length > quoteCharactersMax ? "…" : ""}”`;
}

function words(count: number): string {
  const list = "these are only words from the practice model and they mean nothing at all".split(" ");
  return Array.from({ length: count }, (_, at) => list[at % list.length]).join(" ");
}

function summary(messages: readonly ChatMessage[]): string {
  const asked = messages.filter((message) => message.role === "user").slice(0, -1).map((message) =>
    quote(withoutTimeLine(contentText(message)))
  );
  const most = 5;
  const listed = asked.slice(-most).join(" ");
  return `Summary by the practice model, of ${messages.length - 1} messages before this one. ` +
    (asked.length === 0 ? "The owner had said nothing yet." : `The owner's last words: ${listed}`);
}

function helpText(): string {
  return [
    "This is the practice model, not a real one. It knows these phrases:",
    ...phrasesInOrder.map(({ example }) => `- ${example}`),
    "A TASK may itself begin with “delegate:”, then the subagent delegates again.",
  ].join("\n");
}
