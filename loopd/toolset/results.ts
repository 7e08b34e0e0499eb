// The forms in which a tool's end reaches the model, pinned in docs/protocol.md.

import { type Label, publicTrusted } from "../../core/labels.ts";
import type { RunbookEntry } from "../../core/runbook.ts";
import { runbookPointer } from "../../core/runbook.ts";
import type { ToolResult } from "../turn_types.ts";

export function ok(text: string, label: Label = publicTrusted): ToolResult {
  return { status: "ok", text, label };
}

/** `error: <code>: <text>`, with the runbook entry where one helps. */
export function toolError(code: string, text: string, runbook?: RunbookEntry): ToolResult {
  const pointer = runbook === undefined ? "" : ` (${runbookPointer(runbook)})`;
  return { status: "error", code, text: `error: ${code}: ${text}${pointer}`, label: publicTrusted };
}

export function interrupted(tool: string): ToolResult {
  return toolError(
    "interrupted",
    `a restart interrupted ${tool}; whether it took effect is not known, and it is not run again`,
  );
}
