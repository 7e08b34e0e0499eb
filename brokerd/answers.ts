// What the model may read of a call that brought no answer: one constant sentence for each code, with the runbook pointer.
// Never a private value, never a word of the outside, never advice on how to lift the gate.

import type { CallAnswer, DenialCode, TaintCause } from "../core/protocol/broker.ts";
import { type RunbookEntry, runbookPointer } from "../core/runbook.ts";

const denials: Readonly<Record<DenialCode, { text: string; runbook: RunbookEntry | undefined }>> = {
  // Which entry it is depends on the tool.
  NotConfigured: { text: "This tool is not configured.", runbook: undefined },
  NoGrant: { text: "This tool is not granted to this session.", runbook: "no-grant" },
  TaintTooHigh: { text: "What this session has read may not leave by this tool.", runbook: "taint-too-high" },
  BudgetSpent: { text: "This tool has been used as often as it may be today.", runbook: "budget-spent" },
  ApprovalDenied: { text: "The call was not approved.", runbook: "approval" },
  ApprovalExpired: { text: "Nobody decided about the call in time.", runbook: "approval" },
  AuditUnavailable: {
    text: "Nothing can be recorded now, so nothing is done.",
    runbook: "audit-unavailable",
  },
};

export function deniedAnswer(
  code: DenialCode,
  { cause, runbook = denials[code].runbook }: { cause?: TaintCause; runbook?: RunbookEntry } = {},
): CallAnswer & { status: "denied" } {
  const { text } = denials[code];
  const pointer = runbook === undefined ? "" : ` (${runbookPointer(runbook)})`;
  return {
    status: "denied",
    code,
    ...(cause === undefined ? {} : { cause }),
    ...(runbook === undefined ? {} : { runbook }),
    text: `denied: ${code}\n${text}${pointer}`,
  };
}

const errors = {
  "duplicate-call": "A call with this number was already made in this session; nothing was done again.",
  "unknown-tool": "There is no tool of this name.",
  "too-many-calls": "Too many calls are waiting; nothing was done.",
} as const;

export function errorAnswer(code: keyof typeof errors): CallAnswer {
  return { status: "error", code, text: `error: ${code}\n${errors[code]}` };
}

/** `reason` is a constant of the tool's own, never a part of the arguments. */
export function invalidArguments(reason: string): CallAnswer {
  return { status: "error", code: "invalid-arguments", text: `error: invalid-arguments\n${reason}` };
}

const failures = {
  http: "The other side refused the request.",
  timeout: "The other side did not answer in time.",
  unreachable: "The other side could not be reached; nothing was sent.",
  unknown:
    "The request was sent and no full answer came; whether it was read is not known. It is not sent again.",
  unusable: "The other side answered with something that cannot be used.",
} as const;

/** `error: consult-timeout` and its like. */
export function failureAnswer(prefix: string, outcome: keyof typeof failures): CallAnswer {
  const code = `${prefix}-${outcome}`;
  return {
    status: "error",
    code,
    text: `error: ${code}\n${failures[outcome]} (${runbookPointer("consult-failed")})`,
  };
}
