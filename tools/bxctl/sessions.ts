// Commands about sessions: make one, list them, show their tree and their log, run a turn, cancel, retire, forget. loopd holds the
// sessions; nothing here opens a session's files.

import { exitCodes } from "../../core/errors.ts";
import type { SessionId } from "../../core/ids.ts";
import { describeLabel, sensitivityClasses } from "../../core/labels.ts";
import { userTextBytesMax } from "../../core/limits.ts";
import {
  newSessionAnswerSchema,
  type SessionRow,
  sessionsAnswerSchema,
  type Usage,
} from "../../core/protocol/loop.ts";
import { sayWhatWaits } from "./chat_approvals.ts";
import { ask, doneSchema, followLog, logAnswerSchema, Refusal, turnEvents } from "./client.ts";
import { type Command, CommandFailure, type Context, type Given, sessionOf } from "./command.ts";
import { recordLines } from "./log_view.ts";
import { safeJson, table } from "./render.ts";
import { describeOutcome, TurnView } from "./turn_view.ts";

const idArgument = { name: "id", text: "a session's id, a child's (sub-…) too" };

export const sessionCommands: readonly Command[] = [
  {
    words: "new",
    summary: "Make a session and print its id",
    options: [{
      flags: "--class <class>",
      text: "sensitivity it starts at; default: [session] class of loopd.toml",
      choices: sensitivityClasses,
    }],
    example: "new --class public",
    async run(context, given) {
      const session = await newSession(context, given.option("class"));
      context.print(context.json ? safeJson({ session }) : session);
    },
  },
  {
    words: "send",
    summary:
      "Send a text to a session and show the answer; only the final text where the output is no terminal",
    arguments: [idArgument, { name: "text", text: "what to say; - reads standard input", rest: true }],
    example: 'send chat-20261201-1 "What is on for today?"',
    run: send,
  },
  {
    words: "sessions",
    summary: "List all sessions",
    example: "sessions",
    async run(context) {
      const rows = await listSessions(context);
      if (context.json) return context.print(safeJson(rows));
      if (rows.length === 0) return context.print("no session yet; begin one with: bx chat");
      context.print(table(
        ["session", "status", "label", "slot", "turns", "cached"],
        rows.map((row) => [
          row.session,
          row.status,
          describeLabel(row.label),
          `${row.slot}`,
          `${row.turns}`,
          row.cachedShare === null ? "-" : `${Math.round(row.cachedShare * 100)} %`,
        ]),
      ));
    },
  },
  {
    words: "tree",
    summary: "Show sessions as parents and children, with status, label and slot",
    arguments: [{ ...idArgument, optional: true }],
    example: "tree chat-20261201-1",
    async run(context, given) {
      const id = given.optionalArgument("id");
      printTree(context, await listSessions(context), id === undefined ? undefined : sessionOf(id));
    },
  },
  {
    words: "log",
    summary: "Show a session's log",
    arguments: [idArgument],
    options: [{ flags: "--follow", text: "go on with new records until Ctrl-C" }],
    example: "log sub-chat-20261201-1-3 --follow",
    run: log,
  },
  {
    words: "cancel",
    summary: "Cancel the turn that a session runs, its children's too",
    arguments: [idArgument],
    example: "cancel chat-20261201-1",
    async run(context, given) {
      const session = given.session();
      const answer = await cancelTurn(context, session);
      const text = answer.cancelled === false
        ? `${session} runs no turn`
        : `cancelled the turn of ${session}`;
      context.print(context.json ? safeJson(answer) : text);
    },
  },
  {
    words: "retire",
    summary: "Archive a session and let its id begin anew, its label too (recorded in the audit log)",
    arguments: [idArgument],
    example: "retire heartbeat",
    run: retire,
  },
  {
    words: "forget",
    summary: "Delete a session's text and its search index; its audit records stay",
    arguments: [idArgument],
    example: "forget chat-20261201-1",
    async run(context, given) {
      const session = given.session();
      const path = `/v1/sessions/${session}/forget`;
      const answer = await ask(context, "loopd", { method: "POST", path, body: {} }, doneSchema);
      context.print(context.json ? safeJson(answer) : `forgot ${session}; its audit records stay`);
    },
  },
];

export async function newSession(context: Context, sensitivity?: string): Promise<SessionId> {
  const body = sensitivity === undefined ? {} : { class: sensitivity };
  const request = { method: "POST", path: "/v1/sessions", body } as const;
  return (await ask(context, "loopd", request, newSessionAnswerSchema)).session;
}

export async function listSessions(context: Context): Promise<SessionRow[]> {
  return (await ask(context, "loopd", { method: "GET", path: "/v1/sessions" }, sessionsAnswerSchema))
    .sessions;
}

export function cancelTurn(context: Context, session: SessionId): Promise<Record<string, unknown>> {
  return ask(
    context,
    "loopd",
    { method: "POST", path: `/v1/sessions/${session}/cancel`, body: {} },
    doneSchema,
  );
}

async function send(context: Context, given: Given): Promise<number> {
  const session = given.session();
  const text = await textOf(context, given.argument("text"));
  const stop = cancelOnInterrupt(context, session);
  const ended = new AbortController();
  const view = new TurnView(context);
  let callRuns = false;
  const said = sayWhatWaits(context, session, {
    waits: () => callRuns,
    say(waiting) {
      view.freshLine();
      context.warn(waiting);
    },
    signal: ended.signal,
  });
  try {
    for await (const event of turnEvents(context, session, text)) {
      callRuns = event.event === "call" || (callRuns && event.event !== "result");
      const outcome = view.show(event);
      if (outcome === undefined) continue;
      if (context.json) context.print(safeJson(outcome));
      if (outcome.status === "completed") return exitCodes.done;
      context.warn(describeOutcome(outcome));
    }
    return exitCodes.failed;
  } finally {
    stop();
    ended.abort();
    await said;
  }
}

/** The first Ctrl-C cancels the turn, which then ends by itself; the second leaves at once. */
function cancelOnInterrupt(context: Context, session: SessionId): () => void {
  let pressed = false;
  return context.terminal.onInterrupt(() => {
    if (pressed) Deno.exit(exitCodes.failed);
    pressed = true;
    cancelTurn(context, session).catch((error) =>
      context.warn(error instanceof Error ? error.message : "not cancelled")
    );
  });
}

async function textOf(context: Context, given: string): Promise<string> {
  if (given !== "-") return given;
  const lines: string[] = [];
  let length = 0;
  for await (const line of context.terminal.lines()) {
    length += line.length + 1;
    if (length > userTextBytesMax) {
      throw new CommandFailure(
        exitCodes.usage,
        `standard input is over ${userTextBytesMax} characters, wanted a shorter text`,
      );
    }
    lines.push(line);
  }
  if (lines.length === 0) throw new CommandFailure(exitCodes.usage, "standard input is empty, wanted a text");
  return lines.join("\n");
}

async function log(context: Context, given: Given): Promise<void> {
  const session = given.session();
  const show = (record: Record<string, unknown>) =>
    context.print(context.json ? safeJson(record) : recordLines(record, context.paint).join("\n"));
  if (!given.flag("follow")) {
    const request = { method: "GET", path: `/v1/sessions/${session}/log` } as const;
    for (const record of (await ask(context, "loopd", request, logAnswerSchema)).records) show(record);
    return;
  }
  const abort = new AbortController();
  const stop = context.terminal.onInterrupt(() => abort.abort());
  try {
    for await (const record of followLog(context, session, abort.signal)) show(record);
  } finally {
    stop();
  }
}

// loopd first: were the ledger lowered while the old text still ran, its next turn would raise it again.
async function retire(context: Context, given: Given): Promise<void> {
  const session = given.session();
  const archive = { method: "POST", path: `/v1/sessions/${session}/retire`, body: {} } as const;
  await ask(context, "loopd", archive, doneSchema).catch((error) => {
    // An earlier try may have archived it already.
    if (!(error instanceof Refusal && error.code === "unknown-session")) throw error;
  });
  const answer = await ask(
    context,
    "brokerd",
    { method: "POST", path: "/v1/retire", body: { session } },
    doneSchema,
  );
  context.print(context.json ? safeJson(answer) : `retired ${session}; its id begins anew`);
}

/** The tree below `root`, or all trees. */
export function printTree(context: Context, rows: readonly SessionRow[], root?: SessionId): void {
  const nodes = (root === undefined ? rootsOf(rows) : [rowOf(rows, root)]).map((row) => nodeOf(row, rows));
  if (context.json) return context.print(safeJson(nodes));
  if (nodes.length === 0) return context.print("no session yet; begin one with: bx chat");
  for (const node of nodes) printNode(context, node, "", "");
}

interface TreeNode extends SessionRow {
  readonly children: readonly TreeNode[];
  /** Its own usage and that of all below it, each request counted once (F33). */
  readonly treeUsage: Usage;
}

function nodeOf(row: SessionRow, rows: readonly SessionRow[]): TreeNode {
  // A child's id is longer than its parent's, so this ends.
  const children = rows.filter(({ parent, session }) =>
    parent === row.session && session.length > row.session.length
  );
  const nodes = children.map((child) => nodeOf(child, rows));
  return {
    ...row,
    children: nodes,
    treeUsage: [row.usage, ...nodes.map((node) => node.treeUsage)].reduce(addUsage),
  };
}

function addUsage(a: Usage, b: Usage): Usage {
  return {
    promptTokens: a.promptTokens + b.promptTokens,
    cachedTokens: a.cachedTokens + b.cachedTokens,
    completionTokens: a.completionTokens + b.completionTokens,
  };
}

// A child whose parent was forgotten is shown at the top.
function rootsOf(rows: readonly SessionRow[]): SessionRow[] {
  const known = new Set<string>(rows.map(({ session }) => session));
  return rows.filter(({ parent }) => parent === null || !known.has(parent));
}

function rowOf(rows: readonly SessionRow[], session: SessionId): SessionRow {
  const row = rows.find((one) => one.session === session);
  if (row === undefined) {
    throw new CommandFailure(
      exitCodes.failed,
      `there is no session ${session}; bx sessions lists those that are`,
    );
  }
  return row;
}

const statusStyles = {
  idle: "dim",
  completed: "dim",
  running: "green",
  waiting: "yellow",
  failed: "red",
  cancelled: "red",
} as const;

function printNode(context: Context, node: TreeNode, first: string, rest: string): void {
  const status = context.paint(statusStyles[node.status], node.status);
  const tokens = describeUsage(node.treeUsage, node.children.length > 0 ? "tree " : "");
  context.print(
    `${first}${node.session}  ${status}  ${describeLabel(node.label)}  slot ${node.slot}${tokens}`,
  );
  node.children.forEach((child, index) => {
    const last = index === node.children.length - 1;
    printNode(context, child, `${rest}${last ? "└─ " : "├─ "}`, `${rest}${last ? "   " : "│  "}`);
  });
}

// Nothing for a session that has asked nothing yet.
function describeUsage({ promptTokens, cachedTokens, completionTokens }: Usage, of: string): string {
  if (promptTokens === 0) return "";
  return `  ${of}${
    promptTokens - cachedTokens
  } computed, ${cachedTokens} cached, ${completionTokens} written`;
}
