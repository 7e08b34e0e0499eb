// What the demo's practice model says: its phrases, and one thing more, a turn that asks the cloud and keeps a note of the answer.
// The note comes about as it would with any model: by two tool calls of one turn.

import { phrases } from "../stubs/model_phrases.ts";
import type { Reply, Script, ScriptRequest } from "../stubs/model_script.ts";
import { type ChatMessage, contentText } from "../stubs/model_template.ts";

const askAndNote = /^Ask the cloud, and keep a note of the answer: (\S.*)$/s;

/** How the owner says it. */
export function askAndNoteText(question: string): string {
  return `Ask the cloud, and keep a note of the answer: ${question}`;
}

export function demoScript(): Script {
  const otherwise = phrases();
  return (request) => noteReply(request) ?? otherwise(request);
}

function noteReply({ messages }: ScriptRequest): Reply | undefined {
  const at = messages.findLastIndex(({ role }) => role === "user");
  const question = at === -1 ? undefined : askAndNote.exec(contentText(messages[at]))?.[1];
  if (question === undefined) return undefined;
  const results = messages.slice(at + 1).filter(({ role }) => role === "tool");
  if (results.length === 0) {
    return { toolCalls: [{ name: "call_tool", arguments: { name: "consult", arguments: { question } } }] };
  }
  const answer = answerIn(results[0]);
  if (answer === undefined) return { content: "The cloud was not asked, so there is nothing to note." };
  if (results.length > 1) return { content: `The cloud says: ${answer} I have noted it.` };
  const text = `The cloud says: ${answer}`;
  return { toolCalls: [{ name: "memory", arguments: { action: "add", target: "notes", text } }] };
}

/** The text behind the line that marks it as outside text. */
function answerIn(result: ChatMessage): string | undefined {
  const text = contentText(result);
  if (/^(?:denied|error):/.test(text)) return undefined;
  return text.slice(text.indexOf("\n") + 1);
}
