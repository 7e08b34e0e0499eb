// subagent(task): the tool's face. What a child is and how it ends stands in loopd/subagent.ts.

import { z } from "zod";
import type { CallContext, Tool, ToolResult } from "../turn_types.ts";

/** Runs, or after a restart finishes, the child of one call. */
export type RunChild = (task: string, context: CallContext) => Promise<ToolResult>;

export function subagentTool(runChild: RunChild): Tool<{ task: string }> {
  return {
    definition: {
      name: "subagent",
      description:
        "Have a child session do one piece of long work on its own, with the same tools, and return its summary. Waits until it ends.",
      parameters: {
        type: "object",
        properties: {
          task: {
            type: "string",
            description: "everything the child needs to know; it sees nothing else of this session",
          },
        },
        required: ["task"],
        additionalProperties: false,
      },
    },
    argumentsSchema: z.strictObject({ task: z.string().regex(/\S/, { error: "is blank" }) }),
    run: ({ task }, context) => runChild(task, context),
    resume: ({ task }, context) => runChild(task, context),
  };
}
