// Commands about what may leave: approvals, what the grants would decide, the exact body of a consult. All of them ask brokerd on the
// owner's socket, which no agent holds. The owner sees the exact bytes before deciding on them.

import { exitCodes } from "../../core/errors.ts";
import {
  describeLabel,
  type Label,
  publicTrusted,
  type SensitivityClass,
  sensitivityClasses,
} from "../../core/labels.ts";
import {
  type Approval,
  approvalsAnswerSchema,
  type CheckAnswer,
  checkAnswerSchema,
  type CheckRequest,
} from "../../core/protocol/owner.ts";
import { ask, doneSchema, Refusal } from "./client.ts";
import { type Command, CommandFailure, type Context, type Given, sessionOf } from "./command.ts";
import { safeJson, table, visible, visibleLine } from "./render.ts";
import { listSessions } from "./sessions.ts";

const approvalArgument = { name: "id", text: "an approval's id, as approvals list shows it" };
const bodyOption = {
  flags: "--body <SHA256>",
  text: "decide only if the body still has this hash, as approvals show prints it",
};

export const grantCommands: readonly Command[] = [
  {
    words: "approvals list",
    summary: "List the calls that wait for the owner",
    example: "approvals",
    isDefault: true,
    async run(context) {
      const approvals = await listApprovals(context);
      if (context.json) return context.print(safeJson(approvals));
      if (approvals.length === 0) return context.print("nothing waits for approval");
      context.print(table(
        ["id", "tool", "session", "label", "bytes", "expires"],
        approvals.map((one) => [
          one.id,
          one.tool,
          [one.session, ...one.ancestors].join(" < "),
          describeLabel(one.label),
          `${new TextEncoder().encode(one.body).length}`,
          one.expiresAt,
        ]),
      ));
      context.print("\nsee the exact body with: bx approvals show ID");
    },
  },
  {
    words: "approvals show",
    summary: "Show one waiting call: who asks, under which label, and the exact body that would leave",
    arguments: [approvalArgument],
    example: "approvals show a7",
    async run(context, given) {
      const approval = await findApproval(context, given.argument("id"));
      if (context.json) context.print(safeJson(approval));
      else printApproval(context, approval);
    },
  },
  {
    words: "approvals approve",
    summary: "Let one waiting call go, for these bytes and once",
    arguments: [approvalArgument],
    options: [bodyOption],
    example: "approvals approve a7",
    run: (context, given) => decide(context, given, "approve"),
  },
  {
    words: "approvals deny",
    summary: "Refuse one waiting call",
    arguments: [approvalArgument],
    options: [bodyOption],
    example: "approvals deny a7",
    run: (context, given) => decide(context, given, "deny"),
  },
  {
    words: "grants check",
    summary: "Show what the grants would decide; nothing is sent or recorded",
    options: [
      { flags: "--tool <tool>", text: "the tool that would be called", required: true },
      { flags: "--class <class>", text: "the session's class", required: true, choices: sensitivityClasses },
      { flags: "--untrusted", text: "the session holds text that someone else may have written" },
      { flags: "--session <id>", text: "as this session, its label in the ledger joined in" },
    ],
    example: "grants check --tool consult --class private --untrusted",
    async run(context, given) {
      const session = given.option("session");
      const sensitivity = sensitivityClasses.find((one) => one === given.option("class")) ?? "secret";
      printVerdict(
        context,
        await check(context, {
          tool: given.option("tool") ?? "",
          ...(session === undefined ? {} : { session: sessionOf(session) }),
          label: { class: sensitivity satisfies SensitivityClass, untrusted: given.flag("untrusted") },
        }),
      );
    },
  },
  {
    words: "grants reload",
    summary: "Read grants.toml again; approvals whose grant changed become void",
    example: "grants reload",
    async run(context) {
      const request = { method: "POST", path: "/v1/grants/reload", body: {} } as const;
      const answer = await ask(context, "brokerd", request, doneSchema);
      context.print(context.json ? safeJson(answer) : "grants.toml is read again");
    },
  },
  {
    words: "consult preview",
    summary: "Show the exact body of a consult and what would be decided; nothing is sent",
    arguments: [
      { name: "id", text: "the session that would ask" },
      { name: "question", text: "the question", rest: true },
    ],
    example: 'consult preview chat-20261201-1 "What is 2+2, one word."',
    async run(context, given) {
      const session = given.session();
      printVerdict(
        context,
        await check(context, {
          tool: "consult",
          session,
          label: await labelOf(context, session),
          arguments: { question: given.argument("question") },
        }),
      );
    },
  },
];

async function listApprovals(context: Context): Promise<Approval[]> {
  return (await ask(context, "brokerd", { method: "GET", path: "/v1/approvals" }, approvalsAnswerSchema))
    .approvals;
}

async function findApproval(context: Context, id: string): Promise<Approval> {
  const approval = (await listApprovals(context)).find((one) => one.id === id);
  if (approval === undefined) {
    throw new CommandFailure(
      exitCodes.failed,
      `no approval ${visibleLine(id, 60)} waits; bx approvals lists those that do`,
      "approval",
    );
  }
  return approval;
}

async function decide(context: Context, given: Given, decision: "approve" | "deny"): Promise<void> {
  const approval = await findApproval(context, given.argument("id"));
  const wanted = given.option("body");
  if (wanted !== undefined && wanted !== approval.bodySha256) {
    throw new CommandFailure(
      exitCodes.failed,
      `the body of ${approval.id} has the hash ${approval.bodySha256}, not ${
        visibleLine(wanted, 80)
      }; nothing was decided`,
      "approval",
    );
  }
  if (!context.json) printApproval(context, approval);
  const request = {
    method: "POST",
    path: `/v1/approvals/${encodeURIComponent(approval.id)}`,
    body: { decision, bodySha256: approval.bodySha256 },
  } as const;
  const answer = await ask(context, "brokerd", request, doneSchema).catch((error) => {
    if (!(error instanceof Refusal)) throw error;
    const text = `${approval.id} could not be decided any more, it may be void or expired: ${error.message}`;
    throw new CommandFailure(exitCodes.failed, text, "approval");
  });
  context.print(
    context.json
      ? safeJson(answer)
      : `${decision === "approve" ? "approved" : "denied"} ${visibleLine(approval.id)}`,
  );
}

function printApproval(context: Context, approval: Approval): void {
  const rows = [
    ["approval", approval.id],
    ["tool", `${approval.tool}, call ${approval.call}, grant ${approval.grant}`],
    ["session", [approval.session, ...approval.ancestors].join(" < ")],
    ["label", describeLabel(approval.label)],
    ["expires", approval.expiresAt],
    ["sha256", approval.bodySha256],
  ];
  for (const [name, value] of rows) context.print(`${name.padEnd(8)}  ${visibleLine(value)}`);
  printBody(context, approval.body);
}

// Whole, whatever its length: the owner decides on these bytes.
function printBody(context: Context, body: string): void {
  context.print(`body      ${new TextEncoder().encode(body).length} bytes, exactly:`);
  context.print(visible(body));
}

function check(context: Context, request: CheckRequest): Promise<CheckAnswer> {
  return ask(context, "brokerd", { method: "POST", path: "/v1/check", body: request }, checkAnswerSchema);
}

function printVerdict(context: Context, answer: CheckAnswer): void {
  if (context.json) return context.print(safeJson(answer));
  const style = { allow: "green", ask: "yellow", deny: "red" } as const;
  const because = [answer.code, answer.cause].filter((part) => part !== undefined).join(", ");
  context.print(
    context.paint(style[answer.verdict], answer.verdict) + (because === "" ? "" : ` (${because})`),
  );
  context.print(`label     ${describeLabel(answer.label)}`);
  if (answer.grant !== undefined) context.print(`grant     ${answer.grant} of grants.toml`);
  if (answer.lacks !== undefined) context.print(`lacks     ${visibleLine(answer.lacks, 600)}`);
  if (answer.text !== `lacks ${answer.lacks}`) context.print(visibleLine(answer.text, 600));
  if (answer.bodySha256 !== undefined) context.print(`sha256    ${answer.bodySha256}`);
  if (answer.body !== undefined) printBody(context, answer.body);
}

// What loopd knows of the session; brokerd joins its own ledger in, so a session loopd does not know is still judged by that.
async function labelOf(context: Context, session: string): Promise<Label> {
  return (await listSessions(context)).find((row) => row.session === session)?.label ?? publicTrusted;
}
