// memory(action, target, text): adds or removes one entry of identity.md or notes.md, under the label of the session that asks (S12).

import { z } from "zod";
import type { MemoryFiles, MemoryTarget } from "../memory/memory_files.ts";
import { memoryTargets } from "../memory/memory_files.ts";
import type { Tool } from "../turn_types.ts";
import { interrupted, ok, toolError } from "./results.ts";

interface MemoryArguments {
  action: "add" | "remove";
  target: MemoryTarget;
  text: string;
}

export function memoryTool(files: MemoryFiles): Tool<MemoryArguments> {
  return {
    definition: {
      name: "memory",
      description: "Keep or drop one fact. identity: who the owner is. notes: anything else worth keeping.",
      parameters: {
        type: "object",
        properties: {
          action: { type: "string", enum: ["add", "remove"] },
          target: { type: "string", enum: ["identity", "notes"] },
          text: { type: "string", description: "the fact, one sentence; to remove, exactly as it stands" },
        },
        required: ["action", "target", "text"],
        additionalProperties: false,
      },
    },
    argumentsSchema: z.strictObject({
      action: z.enum(["add", "remove"]),
      target: z.enum(memoryTargets),
      text: z.string().min(1),
    }),
    async run({ action, target, text }, { turn }) {
      const writer = { session: turn.session.id, label: turn.session.label };
      const change = await files[action](target, text, writer);
      if (change.kind === "refused") return toolError("memory-refused", change.text);
      if (change.target !== target) {
        return ok(`kept as a note in ${change.target}, not in ${target}: this session's label is too high`);
      }
      return ok(change.kind === "added" ? `added to ${change.target}` : `removed from ${change.target}`);
    },
    resume: () => Promise.resolve(interrupted("memory")),
  };
}
