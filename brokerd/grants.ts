// The grants in force: which of them concern a call, and what each of them asks of its label.
// Pure questions about grants; the verdict is decide.ts's, and what was spent is the fold's to say.

import { sha256 } from "../core/audit/chain.ts";
import type { Grant } from "../core/config/grants_toml.ts";
import { rootSessionId, type SessionId } from "../core/ids.ts";
import { classAtMost, type Label } from "../core/labels.ts";

/** `*` stands for any characters, none included. Linear in practice: after a star only the last one is ever gone back to. */
export function matchesPattern(pattern: string, id: string): boolean {
  let at = 0;
  let inPattern = 0;
  let starAt = -1;
  let starId = 0;
  while (at < id.length) {
    if (pattern[inPattern] === "*") {
      starAt = inPattern++;
      starId = at;
    } else if (pattern[inPattern] === id[at]) {
      inPattern++;
      at++;
    } else if (starAt !== -1) {
      inPattern = starAt + 1;
      at = ++starId;
    } else return false;
  }
  while (pattern[inPattern] === "*") inPattern++;
  return inPattern === pattern.length;
}

/** Whether the grant's `sessions` name the root ancestor of `session`. */
export function matchesSession(grant: Grant, session: SessionId): boolean {
  const root = rootSessionId(session);
  return grant.sessions.some((pattern) => matchesPattern(pattern, root));
}

export function admitsClass(grant: Grant, label: Label): boolean {
  return classAtMost(label.class, grant.maxTaint);
}

export function admitsTrust(grant: Grant, label: Label): boolean {
  return !label.untrusted || grant.allowUntrusted;
}

/** The label of an answer under this grant (C7). */
export function answerLabel(grant: Grant): Label {
  return { class: grant.resultClass, untrusted: grant.untrusted };
}

/**
 * One grant by what it says, whatever its place in the file: what an approval is bound to. Any change makes another.
 */
export function grantContent(grant: Grant): string {
  const { tool, maxTaint, resultClass, untrusted, allowUntrusted, mode, perDay, sessions } = grant;
  return JSON.stringify([
    tool,
    maxTaint,
    resultClass,
    untrusted,
    allowUntrusted,
    mode,
    perDay ?? null,
    sessions,
  ]);
}

/** What a budget is counted under: the grant by whom it admits, so that neither its place nor a new `per_day` begins the count anew. */
export function budgetKey(grant: Grant): string {
  const { tool, maxTaint, allowUntrusted, sessions } = grant;
  return sha256(JSON.stringify([tool, maxTaint, allowUntrusted, sessions]));
}
