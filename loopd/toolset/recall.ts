// recall(query): what earlier sessions and notes say. Each hit carries its label, and what is returned raises the session (S13, labels).

import { z } from "zod";
import { describeLabel, joinLabels, publicTrusted } from "../../core/labels.ts";
import type { MemoryIndex } from "../memory/index.ts";
import { rankedMatchesMax } from "../memory/index.ts";
import type { Tool } from "../turn_types.ts";
import { ok } from "./results.ts";

export function recallTool(index: MemoryIndex): Tool<{ query: string }> {
  return {
    definition: {
      name: "recall",
      description: "Search earlier sessions and notes by words. Returns short passages with their source.",
      parameters: {
        type: "object",
        properties: { query: { type: "string", description: "a few words that the passage would contain" } },
        required: ["query"],
        additionalProperties: false,
      },
    },
    argumentsSchema: z.strictObject({ query: z.string().min(1) }),
    async run({ query }, { turn }) {
      const { hits, partial } = await index.search(query, turn.session.label);
      if (hits.length === 0) return ok("nothing found");
      const lines = hits.map((hit) =>
        `- ${hit.source} (${describeLabel(hit.label)}): ${hit.snippet.replaceAll("\n", " ")}`
      );
      if (partial) lines.push(`(more matched; the newest ${rankedMatchesMax} were ranked)`);
      return ok(lines.join("\n"), hits.map((hit) => hit.label).reduce(joinLabels, publicTrusted));
    },
  };
}
