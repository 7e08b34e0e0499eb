// The core tools, in the one order in which every epoch lists them (S4), and their text as the model reads it.

import { rawCallGrammar, type TagTokens } from "../inference/raw_grammar.ts";
import type { Tool, ToolDefinition } from "../turn_types.ts";

export interface CoreTools {
  readonly byName: ReadonlyMap<string, Tool>;
  /** The `tools` array of a request as JSON text, made once. */
  readonly json: string;
  /** What a model may write where its calls are read from its own text. */
  readonly rawGrammar: Readonly<Record<TagTokens, string>>;
}

export const coreToolNames = ["clock", "recall", "memory", "ask_memory", "find_tool", "call_tool"] as const;
export type CoreToolName = typeof coreToolNames[number];

// deno-lint-ignore no-explicit-any -- a table of tools whose argument types differ; each parses its own
export function coreTools(tools: Readonly<Record<CoreToolName, Tool<any>>>): CoreTools {
  return {
    byName: new Map(coreToolNames.map((name) => [name, tools[name]])),
    rawGrammar: {
      "single-tokens": rawCallGrammar(coreToolNames, "single-tokens"),
      "plain-text": rawCallGrammar(coreToolNames, "plain-text"),
    },
    json: JSON.stringify(coreToolNames.map((name) => wireTool(tools[name].definition))),
  };
}

function wireTool({ name, description, parameters }: ToolDefinition) {
  return { type: "function", function: { name, description, parameters } };
}
