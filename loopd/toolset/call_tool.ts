// call_tool(name, arguments): runs one tool of the catalog under the same call id. The result names the inner tool.

import { z } from "zod";
import type { JsonObject } from "../../core/json.ts";
import type { CallContext, Tool, ToolResult } from "../turn_types.ts";
import { describeIssues, parseArguments } from "./arguments.ts";
import type { ToolCatalog } from "./catalog.ts";
import { toolError } from "./results.ts";

interface CallToolArguments {
  name: string;
  arguments: JsonObject;
}

export function callTool(catalog: ToolCatalog, coreNames: readonly string[]): Tool<CallToolArguments> {
  return {
    definition: {
      name: "call_tool",
      description: "Run a tool that find_tool named.",
      parameters: {
        type: "object",
        properties: {
          name: { type: "string" },
          arguments: { type: "object", description: "as the tool's own schema asks" },
        },
        required: ["name", "arguments"],
        additionalProperties: false,
      },
    },
    argumentsSchema: z.strictObject({
      name: z.string().min(1).max(64),
      arguments: z.record(z.string(), z.unknown()),
    }),
    run: (args, context) => inner(args, (tool, parsed) => tool.run(parsed, context)),
    resume: (args, context) => inner(args, (tool, parsed) => resumeOrRun(tool, parsed, context)),
  };

  async function inner(
    { name, arguments: args }: CallToolArguments,
    act: (tool: Tool, parsed: unknown) => Promise<ToolResult>,
  ): Promise<ToolResult> {
    const tool = coreNames.includes(name) ? undefined : await catalog.find(name);
    if (tool === undefined) return { ...unknownTool(name), tool: shownName(name) };
    const parsed = parseArguments(tool, args);
    if (!parsed.success) {
      return {
        ...toolError("invalid-arguments", `${name}: ${describeIssues(parsed.error, tool.definition)}`),
        tool: name,
      };
    }
    return { ...await act(tool, parsed.data), tool: name };
  }

  function unknownTool(name: string): ToolResult {
    return coreNames.includes(name)
      ? toolError("unknown-tool", `${name} is a core tool: call it directly, not through call_tool`)
      : toolError(
        "unknown-tool",
        `no tool is named ${JSON.stringify(shownName(name))}; find_tool lists what there is`,
      );
  }
}

/** After a restart: a tool that may have acted ends as its own rule says, one that only reads is run again. */
export function resumeOrRun(tool: Tool, parsed: unknown, context: CallContext): Promise<ToolResult> {
  return tool.resume?.(parsed, context) ?? tool.run(parsed, context);
}

function shownName(name: string): string {
  return name.replace(/[^\w.-]/g, "?").slice(0, 64);
}
