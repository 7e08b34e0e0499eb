// Whether a model's template renders raw history verbatim, asked of the server without inference (`/apply-template`, facts 2b): the prompt with
// the reply and its result appended must begin with the earlier prompt followed by the reply's own text.

import { isJsonObject } from "../../core/json.ts";
import type { TagTokens } from "./raw_grammar.ts";
import type { HistoryMode } from "../session/record.ts";

export interface HistoryFinding {
  readonly mode: HistoryMode;
  /** Why, for `bx doctor`. */
  readonly text: string;
  /** How the tokenizer sees the tags of a call; decides the grammar of raw calls. */
  readonly tags: TagTokens;
}

/** Posts `/apply-template`; resolves to the prompt, or undefined where the server has no such path or refuses the messages. */
export type ApplyTemplate = (body: { messages: unknown[]; tools: unknown[] }) => Promise<string | undefined>;

const tool = {
  type: "function",
  function: {
    name: "probe_tool",
    description: "A probe.",
    parameters: { type: "object", properties: {}, additionalProperties: false },
  },
};
const callText = `<tool_call>\n{"name": "probe_tool", "arguments": {}}\n</tool_call>`;
const asked = [{ role: "system", content: "Probe." }, { role: "user", content: "Call it." }];
const answered = { role: "tool", tool_call_id: "call00001", content: "done" };
const nextTurn = [{ role: "assistant", content: "It is done." }, { role: "user", content: "And now?" }];

export async function probeHistory(applyTemplate: ApplyTemplate, tags: TagTokens): Promise<HistoryFinding> {
  const structured = (text: string): HistoryFinding => ({ mode: "structured", text, tags: "plain-text" });
  const render = (messages: unknown[]) => applyTemplate({ messages, tools: [tool] });

  const before = await render(asked);
  if (before === undefined) return structured("the server does not show how its template renders messages");
  const parsed = await render([...asked, {
    role: "assistant",
    content: "",
    tool_calls: [{ id: "call00001", type: "function", function: { name: "probe_tool", arguments: "{}" } }],
  }, answered]);
  if (parsed === undefined || !parsed.includes("<tool_call>") || !parsed.includes(`"probe_tool"`)) {
    return structured("the model writes tool calls in a form that loopd does not read itself");
  }
  // A template that opens with thinking has the model's text begin inside it.
  const opensThinking = /<think>\s*$/.test(before);
  for (const thinking of ["", "<think>\nProbing.\n</think>\n\n"]) {
    const raw = `${opensThinking ? thinking.replace(/^<think>\n/, "") : thinking}Calling.\n${callText}`;
    const content = opensThinking && thinking === "" ? undefined : raw;
    if (content === undefined) continue;
    const said = { role: "assistant", content: opensThinking ? `<think>\n${content}` : content };
    for (const after of [[answered], [answered, ...nextTurn]]) {
      const prompt = await render([...asked, said, ...after]);
      if (prompt === undefined) {
        return structured("the model's template does not take a tool result after plain text");
      }
      if (!prompt.startsWith(before + content)) {
        return structured(
          thinking === ""
            ? "the model's template changes text that holds a tool call"
            : "the model's template drops or changes earlier thinking",
        );
      }
    }
  }
  return { mode: "raw", tags, text: "the model's template keeps its own text byte for byte" };
}

/** The prompt of an `/apply-template` answer. */
export function promptOf(answer: unknown): string | undefined {
  return isJsonObject(answer) && typeof answer.prompt === "string" ? answer.prompt : undefined;
}
