// The entries of docs/runbook.md that messages point at. A test holds this list and that page together, both ways (K2).

export const runbookEntries = [
  "consult-not-configured",
  "consult-secret-unreadable",
  "consult-failed",
  "no-grant",
  "taint-too-high",
  "budget-spent",
  "approval",
  "audit-unavailable",
  "broker-unavailable",
  "broker-timeout",
  "config-fault",
  "home",
  "inference-unreachable",
  "inference-slots",
  "roles-not-running",
  "subagent-id",
  "too-many-children",
] as const;

/** The anchor of one entry in docs/runbook.md. */
export type RunbookEntry = typeof runbookEntries[number];

/** `see docs/runbook.md#<entry>`, the one form in which a message points at its entry. */
export function runbookPointer(entry: RunbookEntry): string {
  return `see docs/runbook.md#${entry}`;
}
