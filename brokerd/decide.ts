// The gate: whether one call may leave, from the grants, the label and what was spent. Pure: the same question has the same answer.
// The order of refusals is fixed: NotConfigured, NoGrant, TaintTooHigh (class before untrusted), BudgetSpent; then approval.
// Arguments were refused before; what the model may read of a refusal is in answers.ts, what stands here is for the owner.

import type { Grant } from "../core/config/grants_toml.ts";
import type { SessionId } from "../core/ids.ts";
import { describeLabel, type Label } from "../core/labels.ts";
import type { DenialCode, TaintCause } from "../core/protocol/broker.ts";
import { admitsClass, admitsTrust, matchesSession } from "./grants.ts";

export interface Question {
  readonly tool: string;
  /** Why the tool cannot be used at all, for the owner; absent where it can. */
  readonly notConfigured?: string;
  /** Absent when the owner asks about a label without a session: then grants for some sessions count as well. */
  readonly session?: SessionId;
  readonly label: Label;
  /** In file order. */
  readonly grants: readonly Grant[];
  /** Bodies sent under the grant today. */
  spent(grant: Grant): number;
}

export type Verdict =
  | { readonly verdict: "allow" | "ask"; readonly grant: Grant }
  | Denial;

export interface Denial {
  readonly verdict: "deny";
  readonly code: DenialCode;
  readonly cause?: TaintCause;
  /** The grant that came nearest. */
  readonly grant?: Grant;
  /** What it lacks, or what is missing altogether. */
  readonly lacks: string;
}

export function decide(question: Question): Verdict {
  const { tool, notConfigured, session, label, grants } = question;
  if (notConfigured !== undefined) {
    return { verdict: "deny", code: "NotConfigured", lacks: notConfigured };
  }

  const forTool = grants.filter((grant) => grant.tool === tool);
  const matching = session === undefined
    ? forTool
    : forTool.filter((grant) => matchesSession(grant, session));
  if (matching.length === 0) return noGrant(tool, forTool);

  const admitting = matching.find((grant) => admitsClass(grant, label) && admitsTrust(grant, label));
  if (admitting === undefined) return taintTooHigh(matching, label);

  const { perDay } = admitting;
  if (perDay !== undefined && question.spent(admitting) >= perDay) {
    const lacks = `per_day above ${perDay}: that many were sent today (UTC)`;
    return { verdict: "deny", code: "BudgetSpent", grant: admitting, lacks };
  }
  return { verdict: admitting.mode, grant: admitting };
}

function noGrant(tool: string, forTool: readonly Grant[]): Denial {
  const nearest = forTool.at(0);
  return nearest === undefined
    ? { verdict: "deny", code: "NoGrant", lacks: `a grant with tool = "${tool}": there is none` }
    : {
      verdict: "deny",
      code: "NoGrant",
      grant: nearest,
      lacks: `a pattern in sessions that matches this root session: it has ${
        JSON.stringify(nearest.sessions)
      }`,
    };
}

function taintTooHigh(matching: readonly Grant[], label: Label): Denial {
  // The nearest admits the class and lacks only trust; where none admits the class, the cause is the class, whatever else refuses.
  const byTrustAlone = matching.find((grant) => admitsClass(grant, label));
  const nearest = byTrustAlone ?? matching.find((grant) => admitsTrust(grant, label)) ?? matching[0];
  const lacks = [
    ...(admitsClass(nearest, label)
      ? []
      : [`max_taint = "${label.class}": it has max_taint = "${nearest.maxTaint}"`]),
    ...(admitsTrust(nearest, label) ? [] : ["allow_untrusted = true"]),
  ];
  return {
    verdict: "deny",
    code: "TaintTooHigh",
    cause: byTrustAlone === undefined ? "class" : "untrusted",
    grant: nearest,
    lacks: `${lacks.join("; and ")} (the session is ${describeLabel(label)})`,
  };
}
