// find_tool(query): names, descriptions and argument schemas of the tools behind call_tool.

import { z } from "zod";
import type { Tool } from "../turn_types.ts";
import type { ToolCatalog } from "./catalog.ts";
import { ok } from "./results.ts";

const foundMax = 8;

export function findTool(catalog: ToolCatalog): Tool<{ query: string }> {
  return {
    definition: {
      name: "find_tool",
      description:
        "Find more tools by a few words. Returns each tool's name, purpose and arguments; run one with call_tool.",
      parameters: {
        type: "object",
        properties: { query: { type: "string" } },
        required: ["query"],
        additionalProperties: false,
      },
    },
    argumentsSchema: z.strictObject({ query: z.string() }),
    async run({ query }) {
      const found = (await catalog.search(query)).slice(0, foundMax);
      return ok(found.map(({ definition }) => JSON.stringify(definition)).join("\n"));
    },
  };
}
