// What was wrong with a tool's arguments, in words a model can act on: which key, and which keys there are.

import type { z } from "zod";
import { describeMisfit } from "../../core/misfit.ts";
import type { Tool, ToolDefinition } from "../turn_types.ts";

const issuesShownMax = 5;

/** The arguments as the tool takes them, or issues in our own words. */
export function parseArguments(tool: Tool, value: unknown): z.ZodSafeParseResult<unknown> {
  return tool.argumentsSchema.safeParse(value, { error: describeMisfit });
}

export function describeIssues(error: z.ZodError, definition: ToolDefinition): string {
  const known = Object.keys((definition.parameters.properties ?? {}) as object);
  const wanted = known.length === 0 ? "it takes no arguments" : `its arguments are ${known.join(", ")}`;
  const issues = error.issues.slice(0, issuesShownMax).map((issue) =>
    issue.code === "unrecognized_keys"
      ? issue.message
      : `${issue.path.join(".") || "arguments"}: ${issue.message}`
  );
  return `${issues.join("; ")}; ${wanted}`;
}
