// The gate as a table: every label against every grant, the order of refusals, the nearest grant.

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import fc from "fast-check";
import { decide } from "../../../brokerd/decide.ts";
import { matchesPattern } from "../../../brokerd/grants.ts";
import type { Grant } from "../../../core/config/grants_toml.ts";
import type { SessionId } from "../../../core/ids.ts";
import { type Label, sensitivityClasses } from "../../../core/labels.ts";

const labels: Label[] = sensitivityClasses.flatMap((name) =>
  [false, true].map((untrusted) => ({ class: name, untrusted }))
);
const id = (text: string) => text as SessionId;
const privateTrusted: Label = { class: "private", untrusted: false };

function grant(changes: Partial<Grant> = {}): Grant {
  return {
    index: 1,
    tool: "consult",
    maxTaint: "private",
    resultClass: "private",
    untrusted: true,
    allowUntrusted: false,
    mode: "allow",
    perDay: undefined,
    sessions: ["*"],
    ...changes,
  };
}

function ask(grants: Grant[], changes: Partial<Parameters<typeof decide>[0]> = {}) {
  const numbered = grants.map((one, at) => ({ ...one, index: at + 1 }));
  return decide({
    tool: "consult",
    session: id("chat-a"),
    label: privateTrusted,
    grants: numbered,
    spent: () => 0,
    ...changes,
  });
}

Deno.test("C6 B7 of all labels and grants exactly those pass whose class and trust the grant admits", () => {
  const rank = (label: Label) => ["public", "private", "secret"].indexOf(label.class);
  for (const label of labels) {
    for (const [limit, maxTaint] of sensitivityClasses.entries()) {
      for (const allowUntrusted of [false, true]) {
        const verdict = ask([grant({ maxTaint, allowUntrusted })], { label });
        const byClass = rank(label) <= limit;
        const byTrust = !label.untrusted || allowUntrusted;
        assertEquals(verdict.verdict, byClass && byTrust ? "allow" : "deny");
        if (verdict.verdict !== "deny") continue;
        assertEquals([verdict.code, verdict.cause], ["TaintTooHigh", byClass ? "untrusted" : "class"]);
      }
    }
  }
});

Deno.test("C6 refusals come in order: not configured, no grant, taint, budget, then the owner is asked", () => {
  const tight = grant({ mode: "ask", perDay: 1 });
  const secret: Label = { class: "secret", untrusted: false };
  const code = (verdict: ReturnType<typeof decide>) =>
    verdict.verdict === "deny" ? verdict.code : verdict.verdict;
  const spentOut = { spent: () => 1 };
  assertEquals(
    code(ask([], { notConfigured: "no [consult]", label: secret, ...spentOut })),
    "NotConfigured",
  );
  assertEquals(
    code(ask([grant({ ...tight, sessions: ["job-*"] })], { label: secret, ...spentOut })),
    "NoGrant",
  );
  assertEquals(code(ask([tight], { label: secret, ...spentOut })), "TaintTooHigh");
  assertEquals(code(ask([tight], spentOut)), "BudgetSpent");
  assertEquals(code(ask([tight])), "ask");
});

Deno.test("B7 the first grant in file order that admits the label decides, even when its budget is spent", () => {
  const first = grant({ maxTaint: "public" });
  const second = grant({ perDay: 3, resultClass: "secret" });
  const third = grant();
  const verdict = ask([first, second, third]);
  assert(verdict.verdict === "allow");
  assertEquals(verdict.grant.index, 2);
  const spent = ask([first, second, third], { spent: (one) => one.index === 2 ? 3 : 0 });
  assert(spent.verdict === "deny");
  assertEquals([spent.code, spent.grant?.index], ["BudgetSpent", 2]);
  assertEquals(ask([first, second], { spent: () => 2 }).verdict, "allow");
});

Deno.test("C6 the owner reads the nearest grant and what it lacks; when class and trust both refuse the cause is class", () => {
  const secretUntrusted: Label = { class: "secret", untrusted: true };
  const both = ask([grant()], { label: secretUntrusted });
  assert(both.verdict === "deny");
  assertEquals(both.cause, "class");
  assertStringIncludes(both.lacks, 'max_taint = "secret"');
  assertStringIncludes(both.lacks, "allow_untrusted = true");

  const trustAlone = ask([grant({ allowUntrusted: true }), grant({ maxTaint: "secret" })], {
    label: secretUntrusted,
  });
  assert(trustAlone.verdict === "deny");
  assertEquals([trustAlone.cause, trustAlone.grant?.index], ["untrusted", 2]);
  assertEquals(trustAlone.lacks, "allow_untrusted = true (the session is secret, untrusted)");

  const other = ask([grant({ tool: "ask_memory" })]);
  assert(other.verdict === "deny");
  assertEquals([other.code, other.grant], ["NoGrant", undefined]);
});

Deno.test("B7 a grant's sessions are matched against the root ancestor, not the child's own id", () => {
  const forChats = [grant({ sessions: ["chat-*"] })];
  const forChildren = [grant({ sessions: ["sub-*"] })];
  assertEquals(ask(forChats, { session: id("sub-sub-chat-a-3-1") }).verdict, "allow");
  assertEquals(ask(forChats, { session: id("sub-job-a-3") }).verdict, "deny");
  assertEquals(ask(forChildren, { session: id("sub-chat-a-3") }).verdict, "deny");
});

Deno.test("B7 a pattern's star stands for any characters, none included, and the rest is literal", () => {
  for (
    const [pattern, text, matches] of [
      ["*", "heartbeat", true],
      ["chat-*", "chat-", true],
      ["chat-*", "chat", false],
      ["job-*-x", "job-a-b-x", true],
      ["job-*-x", "job-x", false],
      ["heartbeat", "heartbeats", false],
      ["*a*b", "xaxbxb", true],
    ] as const
  ) assertEquals(matchesPattern(pattern, text), matches, `${pattern} ~ ${text}`);
  // Against the same pattern as a regular expression.
  fc.assert(
    fc.property(
      fc.string({ unit: fc.constantFrom("a", "b", "-", "*"), maxLength: 8 }),
      fc.string({ unit: fc.constantFrom("a", "b", "-"), maxLength: 8 }),
      (pattern, text) => {
        assertEquals(
          matchesPattern(pattern, text),
          new RegExp(`^${pattern.replaceAll("*", ".*")}$`).test(text),
        );
      },
    ),
  );
  // A pattern made to backtrack ends at once.
  assertEquals(matchesPattern(`${"*a".repeat(31)}*b`, "a".repeat(64)), false);
});
