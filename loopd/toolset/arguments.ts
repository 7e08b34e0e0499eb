// What was wrong with a tool's arguments, in words a model can act on: which key, and which keys there are.

import type { z } from "zod";
import type { ToolDefinition } from "../turn_types.ts";

const issuesShownMax = 5;

export function describeIssues(error: z.ZodError, definition: ToolDefinition): string {
  const known = Object.keys((definition.parameters.properties ?? {}) as object);
  const wanted = known.length === 0 ? "it takes no arguments" : `its arguments are ${known.join(", ")}`;
  const issues = error.issues.slice(0, issuesShownMax).map((issue) =>
    issue.code === "unrecognized_keys"
      ? `unknown key ${issue.keys.map((key) => JSON.stringify(key.slice(0, 40))).join(", ")}`
      : `${issue.path.join(".") || "arguments"}: ${issue.message}`
  );
  return `${issues.join("; ")}; ${wanted}`;
}
