// The real brokerd against a small model of the design, with the same random commands: any tool, any arguments, any order, several
// families of sessions, restarts and retirements in between. What the model says, brokerd must say; and the log must bear both out.

import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import type { AuditRecord } from "../../core/audit/record.ts";
import { verifyAudit } from "../../core/audit/verify.ts";
import { type Label, sensitivityClasses } from "../../core/labels.ts";
import { type BrokerRig, brokerRig, decisions } from "../support/broker_rig.ts";

const sessions = [
  "chat-a",
  "sub-chat-a-1",
  "sub-sub-chat-a-1-2",
  "sub-chat-a-9",
  "job-b",
  "sub-job-b-1",
  "heartbeat",
];
const parents: Record<string, string | undefined> = {
  "sub-chat-a-1": "chat-a",
  "sub-sub-chat-a-1-2": "sub-chat-a-1",
  "sub-chat-a-9": "chat-a",
  "sub-job-b-1": "job-b",
};

interface ModelGrant {
  readonly maxTaint: Label["class"];
  readonly allowUntrusted: boolean;
  readonly untrusted: boolean;
  readonly resultClass: Label["class"];
  readonly perDay: number | undefined;
  readonly only: "chat-*" | "*";
}

const rank = (name: Label["class"]) => sensitivityClasses.indexOf(name);
const join = (a: Label, b: Label): Label => ({
  class: sensitivityClasses[Math.max(rank(a.class), rank(b.class))],
  untrusted: a.untrusted || b.untrusted,
});

function ancestors(session: string): string[] {
  const parent = parents[session];
  return parent === undefined ? [] : [parent, ...ancestors(parent)];
}

/** The design in a page: no log, no files, no sockets. */
class Model {
  readonly ledger = new Map<string, Label>();
  #decided = new Map<string, Set<number>>();
  #spent = new Map<ModelGrant, number>();
  allowed = 0;

  constructor(readonly grants: readonly ModelGrant[]) {}

  state(session: string, stated: Label): Label | "unknown-session" {
    const parent = parents[session];
    const known = this.ledger.get(session) ??
      (parent === undefined ? { class: "public", untrusted: false } : this.ledger.get(parent));
    if (known === undefined) return "unknown-session";
    const label = join(known, stated);
    this.ledger.set(session, label);
    for (const ancestor of ancestors(session)) {
      this.ledger.set(ancestor, join(this.ledger.get(ancestor)!, label));
    }
    return label;
  }

  call(session: string, call: number, question: unknown, stated: Label): string {
    if (this.#decided.get(session)?.has(call)) return "duplicate-call";
    const label = this.state(session, stated);
    if (label === "unknown-session") return label;
    this.#decided.set(session, (this.#decided.get(session) ?? new Set()).add(call));
    if (typeof question !== "string") return "invalid-arguments";
    const root = ancestors(session).at(-1) ?? session;
    const matching = this.grants.filter(({ only }) => only === "*" || root.startsWith("chat-"));
    if (matching.length === 0) return "NoGrant";
    const byClass = matching.filter(({ maxTaint }) => rank(label.class) <= rank(maxTaint));
    if (byClass.length === 0) return "TaintTooHigh/class";
    const grant = byClass.find(({ allowUntrusted }) => allowUntrusted || !label.untrusted);
    if (grant === undefined) return "TaintTooHigh/untrusted";
    const spent = this.#spent.get(grant) ?? 0;
    if (grant.perDay !== undefined && spent >= grant.perDay) return "BudgetSpent";
    this.#spent.set(grant, spent + 1);
    this.allowed++;
    this.state(session, { class: grant.resultClass, untrusted: grant.untrusted });
    return "ok";
  }

  retire(session: string): void {
    for (const id of [...this.ledger.keys()]) {
      if (id !== session && !ancestors(id).includes(session)) continue;
      this.ledger.delete(id);
      this.#decided.delete(id);
    }
  }
}

const labels = fc.record({ class: fc.constantFrom(...sensitivityClasses), untrusted: fc.boolean() });
const lowLabels = fc.oneof({
  weight: 4,
  arbitrary: fc.constant<Label>({ class: "public", untrusted: false }),
}, {
  weight: 1,
  arbitrary: labels,
});
const commands = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      kind: fc.constant("call" as const),
      session: fc.constantFrom(...sessions),
      call: fc.integer({ min: 1, max: 9 }),
      question: fc.oneof({ weight: 6, arbitrary: fc.string() }, { weight: 1, arbitrary: fc.constant(7) }),
      label: lowLabels,
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant("label" as const),
      session: fc.constantFrom(...sessions),
      label: lowLabels,
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("restart" as const) }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant("retire" as const), session: fc.constantFrom(...sessions) }),
  },
);
type Command = typeof commands extends fc.Arbitrary<infer T> ? T : never;
const grantsOf = fc.uniqueArray(
  fc.record({
    maxTaint: fc.constantFrom(...sensitivityClasses),
    allowUntrusted: fc.boolean(),
    untrusted: fc.boolean(),
    resultClass: fc.constantFrom(...sensitivityClasses),
    perDay: fc.option(fc.integer({ min: 1, max: 3 }), { nil: undefined }),
    only: fc.constantFrom("chat-*" as const, "*" as const),
  }),
  // Budgets are counted by whom a grant admits.
  {
    maxLength: 3,
    selector: ({ maxTaint, allowUntrusted, only }) => `${maxTaint} ${allowUntrusted} ${only}`,
  },
);

const toToml = (grant: ModelGrant) =>
  [
    "[[grant]]",
    'tool = "consult"',
    `max_taint = "${grant.maxTaint}"`,
    `allow_untrusted = ${grant.allowUntrusted}`,
    `untrusted = ${grant.untrusted}`,
    `result_class = "${grant.resultClass}"`,
    ...(grant.perDay === undefined ? [] : [`per_day = ${grant.perDay}`]),
    `sessions = ["${grant.only}"]`,
    "",
  ].join("\n");

Deno.test("P1 P2 whatever is asked in whatever order, brokerd answers as the model, and the log alone bears out what left", async () => {
  await fc.assert(
    fc.asyncProperty(grantsOf, fc.array(commands, { maxLength: 40, minLength: 10 }), async (grants, list) => {
      await using rig = await brokerRig({
        grants: grants.map(toToml).join(""),
        behaviour: { kind: "answer", content: "Noted." },
        audit: { segmentBytesMax: 8_000 },
      });
      const model = new Model(grants);
      for (const command of list) await runBoth(rig, model, command);
      assertEquals(await ledgerOf(rig), model.ledger);
      assertEquals(rig.endpoint.requests.length, model.allowed);
      await rig.stop();
      assertEquals((await verifyAudit(rig.paths.audit)).exit, 0);
      const records = await rig.records();
      assertLogBearsOut(records, rig.endpoint.requests.map(({ body }) => new TextDecoder().decode(body)));
    }),
    { numRuns: 12, seed: 4 },
  );
});

async function runBoth(
  rig: BrokerRig,
  model: Model,
  command: Command,
): Promise<void> {
  switch (command.kind) {
    case "restart":
      return await rig.restart();
    case "retire":
      model.retire(command.session);
      await rig.owner("POST", "/v1/retire", { session: command.session });
      return;
    case "label": {
      const { session, label } = command;
      const { body } = await rig.loop("POST", "/v1/label", { session, label });
      const answer = body as { status: string; code?: string; label?: Label };
      assertEquals(answer.status === "ok" ? answer.label : answer.code, model.state(session, label));
      return;
    }
    case "call": {
      const { session, call, question, label } = command;
      const { body } = await rig.loop("POST", "/v1/call", {
        session,
        call,
        tool: "consult",
        // Its number in the question: an answer is refused as an echo otherwise, and bodies are told apart.
        arguments: { question: typeof question === "string" ? `${session} ${call} ${question}` : question },
        label,
      });
      const { status, code, cause } = body as { status: string; code?: string; cause?: string };
      const got = status === "ok" ? "ok" : cause === undefined ? code : `${code}/${cause}`;
      assertEquals(got, model.call(session, call, question, label));
    }
  }
}

async function ledgerOf(rig: BrokerRig): Promise<Map<string, Label>> {
  const { body } = await rig.owner("GET", "/v1/ledger");
  return new Map(
    (body as { sessions: { session: string; label: Label }[] }).sessions.map((
      row,
    ) => [row.session, row.label]),
  );
}

/** By the records alone: labels never fall, each decision stands on the fold, and the allowed bodies are those of the wire. */
function assertLogBearsOut(records: readonly AuditRecord[], wire: readonly string[]): void {
  const fold = new Map<string, Label>();
  const intents = new Map<number, string>();
  for (const record of records) {
    if (record.kind === "label") {
      const before = fold.get(record.session);
      if (before !== undefined) assertEquals(join(before, record.label), record.label);
      fold.set(record.session, record.label);
    }
    if (record.kind === "retire") {
      for (const id of [...fold.keys()]) {
        if (id === record.session || ancestors(id).includes(record.session)) fold.delete(id);
      }
    }
    if (record.kind === "intent" || record.kind === "decision") {
      assertEquals(record.label, fold.get(record.session));
    }
    if (record.kind === "intent") intents.set(record.seq, record.body);
    if (record.kind === "decision" && record.verdict === "allow") {
      assert(record.intent !== undefined);
      assertEquals(record.body, intents.get(record.intent));
    }
  }
  const allowed = decisions(records).flatMap(({ verdict, body }) => verdict === "allow" ? [body ?? ""] : []);
  assertEquals(allowed.sort(), [...wire].sort());
}
