// Session and call ids: their grammar, and what an id says about its family.
// An id becomes a file name and a line in the audit log, so everything here refuses before it touches either.

import { z } from "zod";
import { sessionIdCharactersMax } from "./limits.ts";

/** `[a-z0-9-]`, 1 to 64 characters (S2). */
export type SessionId = string & { readonly __brand: "SessionId" };
/** Decimal integer from 1, one for each tool call in a model message of one session, never reused. */
export type CallId = number;

export type SessionKind = "chat" | "mm" | "job" | "heartbeat" | "sub";

const sessionIdPattern = new RegExp(`^[a-z0-9-]{1,${sessionIdCharactersMax}}$`);

export const sessionIdSchema = z.custom<SessionId>(
  (value) => typeof value === "string" && sessionIdPattern.test(value),
  { error: `a session id is 1 to ${sessionIdCharactersMax} characters of a-z, 0-9 and -` },
);
export const callIdSchema = z.int().min(1);

export function isSessionId(text: string): text is SessionId {
  return sessionIdPattern.test(text);
}

/** Throws RangeError naming the wanted form; for ids that our own code or the owner wrote. */
export function parseSessionId(text: string): SessionId {
  if (!isSessionId(text)) {
    throw new RangeError(
      `${
        JSON.stringify(text.slice(0, 80))
      } is no session id; wanted 1 to ${sessionIdCharactersMax} characters of a-z, 0-9 and -`,
    );
  }
  return text;
}

/** The id of the child that call `call` of `parent` spawns (S1), or `undefined` where it would not fit (S2). */
export function childSessionId(parent: SessionId, call: CallId): SessionId | undefined {
  const id = `sub-${parent}-${call}`;
  return isSessionId(id) ? id : undefined;
}

/**
 * The parent that a `sub-` id names: `sub-` and the last `-<n>` cut (n decimal, no leading zero).
 * `undefined` for a root; `"malformed"` for a `sub-` id that names none.
 */
export function parentSessionId(id: SessionId): SessionId | undefined | "malformed" {
  if (!id.startsWith("sub-")) return undefined;
  const match = /^sub-([a-z0-9-]+)-([1-9][0-9]*)$/.exec(id);
  return match !== null && isSessionId(match[1]) ? match[1] : "malformed";
}

/** From the parent up to the root, nearest first. A malformed id ends the walk: the caller meets it as its own root. */
export function ancestorSessionIds(id: SessionId): SessionId[] {
  const ancestors: SessionId[] = [];
  for (let at = parentSessionId(id); at !== undefined && at !== "malformed"; at = parentSessionId(at)) {
    ancestors.push(at);
  }
  return ancestors;
}

/** The root whose owner, schedule or channel a session serves; grants match against it. */
export function rootSessionId(id: SessionId): SessionId {
  return ancestorSessionIds(id).at(-1) ?? id;
}

/** The kind by its name (B13); `undefined` for an id that no part of Boxmaker makes. */
export function sessionKind(id: SessionId): SessionKind | undefined {
  if (id === "heartbeat") return "heartbeat";
  return (["chat", "mm", "job", "sub"] as const).find((kind) => id.startsWith(`${kind}-`));
}
