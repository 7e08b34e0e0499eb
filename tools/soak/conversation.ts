// What is said in a run of the soak: the owner's messages, and the model's script, which follows from the messages alone. A root turn notes
// a line, spawns a child that spawns another, and all three ask the cloud; a second turn asks once more, and each child is spoken to.
// Every text carries the run's number, so no two questions are ever alike.

import type { Reply, ScriptRequest } from "../stubs/model_script.ts";
import { contentText } from "../stubs/model_template.ts";

/** The owner's first message, which the kill falls into. */
export function firstText(run: number): string {
  return `soak ${run} begins: do all of it`;
}

/** The owner's second message, after everything is back. */
export function secondText(run: number): string {
  return `soak ${run} goes on: one more question`;
}

/** The owner's message to each child, last of all. */
export function lastText(run: number): string {
  return `soak ${run} ends: a word to each child`;
}

export function noteText(run: number): string {
  return `soak ${run} was here`;
}

export type Asker = "root" | "child" | "grandchild" | "afterwards";

export function question(run: number, asker: Asker): string {
  return `soak ${run}: what does the ${asker} want to know? 🍞`;
}

export function answerTo(asked: string): string {
  return `The answer to “${asked}” is yes.`;
}

/** Which messages a request belongs to, and what the model says at each of its steps. */
const parts: readonly { begins: RegExp; steps: readonly ((run: number) => Reply)[] }[] = [
  {
    begins: /soak (\d+) begins: do all of it/,
    steps: [
      (run) => ({
        toolCalls: [
          { name: "clock", arguments: {} },
          { name: "memory", arguments: { action: "add", target: "notes", text: noteText(run) } },
        ],
      }),
      (run) => callTool("subagent", { task: `soak ${run}, the child: ask, and have another ask` }),
      (run) => callTool("consult", { question: question(run, "root") }),
      () => ({ content: "The root has done all of it." }),
    ],
  },
  {
    begins: /soak (\d+), the child:/,
    steps: [
      () => ({ toolCalls: [{ name: "clock", arguments: {} }] }),
      (run) => callTool("subagent", { task: `soak ${run}, the grandchild: ask` }),
      (run) => callTool("consult", { question: question(run, "child") }),
      () => ({ content: "The child has asked." }),
    ],
  },
  {
    begins: /soak (\d+), the grandchild:/,
    steps: [
      (run) => ({
        toolCalls: [
          { name: "clock", arguments: {} },
          ...callTool("consult", { question: question(run, "grandchild") }).toolCalls!,
        ],
      }),
      () => ({ content: "The grandchild has asked." }),
    ],
  },
  {
    begins: /soak (\d+) goes on: one more question/,
    steps: [
      (run) => ({
        toolCalls: [
          { name: "recall", arguments: { query: noteText(run) } },
          ...callTool("consult", { question: question(run, "afterwards") }).toolCalls!,
        ],
      }),
      () => ({ content: "The second turn has asked, too." }),
    ],
  },
  { begins: /soak (\d+) ends: a word to each child/, steps: [() => ({ content: "A child has answered." })] },
];

/** The step is the number of things the model has said since the last user message, whatever its tools answered. */
export function conversation({ messages }: ScriptRequest): Reply {
  const at = messages.findLastIndex(({ role }) => role === "user");
  const text = at === -1 ? "" : contentText(messages[at]);
  const said = messages.slice(at + 1).filter(({ role }) => role === "assistant").length;
  for (const { begins, steps } of parts) {
    const run = begins.exec(text)?.[1];
    if (run !== undefined && said < steps.length) return steps[said](Number(run));
  }
  throw new Error(`the script has no step ${said} after ${JSON.stringify(text)}`);
}

function callTool(name: string, args: Record<string, unknown>): Reply {
  return { toolCalls: [{ name: "call_tool", arguments: { name, arguments: args } }] };
}
