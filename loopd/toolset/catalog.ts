// The tools that are not core: found with find_tool, run with call_tool (S4, C1). loopd's own `subagent`, and what brokerd offers.

import { z } from "zod";
import type { JsonObject } from "../../core/json.ts";
import type { BrokeredTool } from "../../core/protocol/broker.ts";
import { capText, isCut } from "../../core/text.ts";
import type { BrokerClient } from "../broker_client.ts";
import type { Tool } from "../turn_types.ts";

/** brokerd checks the arguments of its own tools; here they are only an object. */
const anyObject: z.ZodType<JsonObject> = z.record(z.string(), z.unknown());
/** brokerd's `ask_memory` is reached through the core tool of that name. */
const coreNames = new Set(["ask_memory"]);

export class ToolCatalog {
  #own: readonly Tool[];
  #broker: BrokerClient;
  #argumentCharactersMax: number;

  constructor(own: readonly Tool[], broker: BrokerClient, argumentCharactersMax: number) {
    this.#own = own;
    this.#broker = broker;
    this.#argumentCharactersMax = argumentCharactersMax;
  }

  async all(): Promise<Tool[]> {
    const brokered = (await this.#broker.tools() ?? []).filter(({ name }) => !coreNames.has(name));
    return [...this.#own, ...brokered.map((tool) => this.#brokered(tool) as Tool)];
  }

  /** While brokerd cannot be asked, any other name may be a tool of its own: then the call itself says what became of it. */
  async find(name: string): Promise<Tool | undefined> {
    const own = this.#own.find((tool) => tool.definition.name === name);
    if (own !== undefined || coreNames.has(name)) return own;
    const offered = await this.#broker.tools();
    const definition = offered === undefined
      ? { name, description: "", parameters: {} }
      : offered.find((tool) => tool.name === name);
    return definition && this.#brokered(definition) as Tool;
  }

  /** Tools that share a word with the query, best first; all of them where none does. */
  async search(query: string): Promise<Tool[]> {
    const words = query.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
    const scored = (await this.all()).map((tool) => ({ tool, score: score(tool, words) }));
    const matching = scored.filter((entry) => entry.score > 0).sort((a, b) => b.score - a.score);
    return (matching.length > 0 ? matching : scored).map((entry) => entry.tool);
  }

  #brokered(definition: BrokeredTool): Tool<JsonObject> {
    const broker = this.#broker;
    return {
      definition,
      argumentsSchema: anyObject,
      run: async (args, context) => {
        const { capped, notes } = capArguments(args, this.#argumentCharactersMax);
        const result = await broker.callTool(definition.name, capped, context);
        return notes.length === 0 ? result : { ...result, text: [result.text, ...notes].join("\n") };
      },
      resume: (_args, context) => broker.resumeCall(definition.name, context),
    };
  }
}

function score({ definition }: Tool, words: readonly string[]): number {
  const name = definition.name.toLowerCase();
  const description = definition.description.toLowerCase();
  return words.reduce(
    (sum, word) => sum + (name.includes(word) ? 3 : 0) + (description.includes(word) ? 1 : 0),
    0,
  );
}

// Long text arguments are cut to the tool-result cap before they are stated to brokerd, and the result says so (S5, C1).
function capArguments(args: JsonObject, charactersMax: number): { capped: JsonObject; notes: string[] } {
  const notes: string[] = [];
  const capped = Object.fromEntries(
    Object.entries(args).map(([key, value]) => {
      if (typeof value !== "string" || !isCut(value, charactersMax)) return [key, value];
      const capped = capText(value, charactersMax);
      notes.push(`[${key} was cut before it was used] ${capped.slice(capped.lastIndexOf("\n") + 1)}`);
      return [key, capped];
    }),
  );
  return { capped, notes };
}
