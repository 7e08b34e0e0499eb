// What must hold after a kill and a restart, whatever the point was: nothing lost, nothing done twice, nothing left open. One function for
// each promise; each names what it found, never what to do about it. They read evidence and change nothing.

import { verifyAudit } from "../../core/audit/verify.ts";
import type { AuditRecord } from "../../core/audit/record.ts";
import type { HomePaths } from "../../core/home.ts";
import { parentSessionId, type SessionId } from "../../core/ids.ts";
import { describeLabel, joinLabels, type Label, labelAtMost, publicTrusted } from "../../core/labels.ts";
import type { ConsultRequest } from "../stubs/consult_endpoint.ts";
import type { ModelRequest } from "../stubs/model_requests.ts";
import { noteText } from "./conversation.ts";
import { type Evidence, type LogReading, type LogRecord, readEvidence } from "./evidence.ts";

export interface Violation {
  /** Of one kind, the same text in every run. */
  readonly check: string;
  readonly text: string;
}

export interface Seen {
  readonly run: number;
  readonly paths: HomePaths;
  readonly root: SessionId;
  /** How often brokerd was killed. */
  readonly brokerKills: number;
  /** loopd may have lost a line that it had acted on: what it does again for that is refused. */
  readonly torn: boolean;
  /** Of this run alone. */
  readonly bodies: readonly ConsultRequest[];
  readonly modelRequests: readonly ModelRequest[];
}

type Of<K extends LogRecord["kind"]> = Extract<LogRecord, { kind: K }>;
type Decision = Extract<AuditRecord, { kind: "decision" }>;

/** Every role must be stopped. */
export async function checkRun(seen: Seen): Promise<Violation[]> {
  const evidence = await readEvidence(seen.paths);
  return [
    ...[...evidence.logs].flatMap(([session, log]) => checkLog(session, log)),
    ...checkFamilies(evidence),
    ...checkConsults(evidence, seen),
    ...checkLedger(evidence),
    ...checkAfterwards(evidence, seen),
    ...checkWire(evidence, seen),
    ...checkModel(seen),
    ...checkNotes(evidence, seen),
    ...await checkAudit(seen),
  ];
}

/** One result for each call, in order, before the model is asked again; every turn begun once and ended once, completed. */
function checkLog(session: SessionId, { records, damage }: LogReading): Violation[] {
  const found: Violation[] = [];
  const say = (check: string, text: string) => found.push({ check, text: `${session}: ${text}` });
  if (damage !== undefined) say("a session log is whole", damage);
  if (records.length === 0) say("a session log holds its session", "the log is empty");
  let open: number[] = [];
  let turn: number | undefined;
  let turns = 0;
  const answered = new Set<number>();
  for (const record of records) {
    switch (record.kind) {
      case "user":
        if (turn !== undefined || open.length > 0) {
          say("a turn begins when none is open", `seq ${record.seq}: turn ${turn} is open`);
        }
        if (record.turn !== ++turns) say("turns are counted once", `seq ${record.seq}: turn ${record.turn}`);
        turn = record.turn;
        break;
      case "assistant":
        if (turn === undefined) say("the model speaks inside a turn", `seq ${record.seq}`);
        if (open.length > 0) {
          say(
            "every call has a result before the model is asked again",
            `seq ${record.seq}: call ${open[0]}`,
          );
        }
        open = record.calls.map(({ call }) => call);
        break;
      case "result":
        if (answered.has(record.call)) {
          say("one result for each call", `call ${record.call} has two results`);
        }
        answered.add(record.call);
        if (open.shift() !== record.call) {
          say("a result answers the first open call", `seq ${record.seq}: call ${record.call}`);
        }
        break;
      case "end":
        if (turn !== record.turn) say("one end for each turn", `seq ${record.seq}: turn ${record.turn}`);
        if (open.length > 0) say("every call has a result", `call ${open[0]} has none at the end`);
        if (record.status !== "completed") {
          say("every turn completes", `turn ${record.turn} ${record.status}: ${record.detail ?? ""}`);
        }
        turn = undefined;
        break;
    }
  }
  if (turn !== undefined) say("every turn ends", `turn ${turn} has no end`);
  return found;
}

/** A child belongs to a recorded spawn, runs once, ends before its parent goes on, and its label is in its parent's. */
function checkFamilies({ logs }: Evidence): Violation[] {
  const found: Violation[] = [];
  for (const [session, { records }] of logs) {
    for (const spawn of of(records, "spawn")) {
      if (!of(records, "result").some(({ call }) => call === spawn.call)) {
        found.push({
          check: "every spawn has a result",
          text: `${session}: ${spawn.child} has none in its parent`,
        });
      }
    }
    const calls = of(records, "spawn").map(({ call }) => call);
    if (new Set(calls).size < calls.length) {
      found.push({ check: "a call spawns once", text: `${session}: calls ${calls.join(", ")}` });
    }
    const parent = parentSessionId(session);
    if (parent === undefined || parent === "malformed") continue;
    found.push(...checkChild(session, records, logs.get(parent)?.records ?? []));
  }
  return found;
}

function checkChild(
  child: SessionId,
  records: readonly LogRecord[],
  parent: readonly LogRecord[],
): Violation[] {
  const found: Violation[] = [];
  const say = (check: string, text: string) => found.push({ check, text: `${child}: ${text}` });
  const spawn = of(parent, "spawn").find((spawn) => spawn.child === child);
  if (spawn === undefined) say("a child has its parent's spawn record", "no session spawned it");
  // Further turns are the owner's.
  const users = of(records, "user").filter(({ turn }) => turn === 1).length;
  const ends = of(records, "end").filter(({ turn }) => turn === 1);
  if (users !== 1 || ends.length !== 1) {
    say("a child runs once", `${users} user records and ${ends.length} ends`);
  }
  const result = of(parent, "result").find(({ call }) => call === spawn?.call);
  if (result !== undefined && ends[0] !== undefined && ends[0].time > result.time) {
    say(
      "a child ends before its parent's result",
      `it ended ${ends[0].time}, the result is of ${result.time}`,
    );
  }
  if (result !== undefined && !result.text.startsWith(`subagent ${child} completed\n`)) {
    say("the parent reads its child's answer", result.text.slice(0, 200));
  }
  const labels = [labelOf(records), labelOf(parent)] as const;
  if (!labelAtMost(...labels)) {
    const [own, parents] = labels.map(describeLabel);
    say("a parent's label holds its child's", `the child is (${own}), its parent (${parents})`);
  }
  return found;
}

/** What the model read of each consult is what the audit log says became of it, under its label. */
function checkConsults({ logs, audit }: Evidence, { run, torn }: Seen): Violation[] {
  const found: Violation[] = [];
  const decisions = audit.filter((record) => record.kind === "decision");
  const twice = decisions.find((one, at) =>
    decisions.findIndex(({ session, call }) => session === one.session && call === one.call) !== at
  );
  if (twice !== undefined) {
    found.push({ check: "a call is decided once", text: `${twice.session}, call ${twice.call}` });
  }
  for (const [session, { records }] of logs) {
    for (const result of of(records, "result").filter(({ tool }) => tool === "consult")) {
      const decision = decisions.find((one) => one.session === session && one.call === result.call);
      if (torn && decision !== undefined && refusals.includes(result.code ?? "")) continue;
      const fault = consultFault(result, decision);
      if (fault !== undefined) {
        found.push({
          check: fault,
          text: `${session}, call ${result.call}: ${describeDecision(decision)}, and the model reads ${
            JSON.stringify(result.text.slice(0, 120))
          }`,
        });
      }
    }
    for (const { text } of of(records, "result")) {
      const other = /soak (\d+)/.exec(text)?.[1];
      if (other !== undefined && Number(other) !== run) {
        found.push({ check: "runs do not mix", text: `${session} reads of run ${other}` });
      }
    }
  }
  return found;
}

/** What becomes of a call that loopd makes again because it lost the line that said so. */
const refusals = ["duplicate-call", "broker-unavailable"];

function consultFault(result: Of<"result">, decision: Decision | undefined): string | undefined {
  switch (decision?.outcome) {
    case "answered":
      if (result.status !== "ok" || !result.text.endsWith(decision.answer ?? "\0")) {
        return "an answer that was recorded reaches the model";
      }
      return result.label.untrusted ? undefined : "an answer carries its label";
    case "unknown":
      return result.code === "consult-unknown" ? undefined : "an unknown end is told as unknown";
    case undefined:
      return ["interrupted", "broker-unavailable"].includes(result.code ?? "")
        ? undefined
        : "a call that was never decided is told as such";
    default:
      return "a consult is answered, unknown or never begun";
  }
}

function describeDecision(decision: Decision | undefined): string {
  return decision === undefined
    ? "no decision"
    : `decision ${decision.seq}: ${decision.verdict} ${decision.code ?? decision.outcome ?? ""}`;
}

/** brokerd's own book has the label of every answer that the model has read. */
function checkLedger({ logs, audit }: Evidence): Violation[] {
  const book = new Map<SessionId, Label>();
  for (const record of audit) {
    if (record.kind !== "label") continue;
    book.set(record.session, joinLabels(book.get(record.session) ?? publicTrusted, record.label));
  }
  return [...logs].flatMap(([session, { records }]) =>
    of(records, "result").filter(({ tool, label }) =>
      tool === "consult" && !labelAtMost(label, book.get(session) ?? publicTrusted)
    ).map(({ call }) => ({
      check: "the ledger holds the label of every answer that was released",
      text: `${session}, call ${call}: the ledger has (${describeLabel(book.get(session) ?? publicTrusted)})`,
    }))
  );
}

/** The second turn is an ordinary one: the cloud answers, and what is in the notes is found. */
function checkAfterwards({ logs, notes }: Evidence, { root, run }: Seen): Violation[] {
  const records = logs.get(root)?.records ?? [];
  const begins = records.findIndex((record) => record.kind === "user" && record.turn === 2);
  const results = begins === -1 ? [] : of(records.slice(begins), "result");
  const consult = results.find(({ tool }) => tool === "consult");
  const recall = results.find(({ tool }) => tool === "recall");
  return [
    ...(consult?.status === "ok"
      ? []
      : [{ check: "a consult afterwards is answered", text: consult?.text ?? "there is none" }]),
    ...(!notes.includes(noteText(run)) || recall?.text.includes(noteText(run))
      ? []
      : [{ check: "what was noted is found afterwards", text: recall?.text ?? "nothing was recalled" }]),
  ];
}

/** What arrived is what was allowed: each body once, byte for byte an intent's, and none without a decision. */
function checkWire({ audit }: Evidence, { bodies, brokerKills }: Seen): Violation[] {
  const found: Violation[] = [];
  const decoder = new TextDecoder();
  const arrived = Map.groupBy(bodies, ({ body }) => decoder.decode(body));
  const sent = audit.filter((record) => record.kind === "decision" && record.outcome !== undefined);
  for (const [body, requests] of arrived) {
    if (requests.length > 1) {
      found.push({ check: "no body is sent twice", text: `${requests.length} times ${body}` });
    }
    if (!sent.some((decision) => decision.kind === "decision" && decision.body === body)) {
      found.push({ check: "what arrived was decided", text: body });
    }
  }
  let unknown = 0;
  for (const decision of sent) {
    if (decision.kind !== "decision") continue;
    if (decision.outcome === "unknown") unknown++;
    else if (!arrived.has(decision.body ?? "")) {
      found.push({ check: "what was answered had arrived", text: `seq ${decision.seq}: ${decision.body}` });
    }
    if (!audit.some((record) => record.kind === "intent" && record.seq === decision.intent)) {
      found.push({ check: "no send without its intent", text: `seq ${decision.seq}` });
    }
  }
  if (unknown > brokerKills) {
    found.push({
      check: "a kill leaves at most one call unknown",
      text: `${unknown} unknown, ${brokerKills} kills`,
    });
  }
  return found;
}

/** A strict server took every history, and no request met a slot that still worked on another. */
function checkModel({ modelRequests }: Seen): Violation[] {
  return modelRequests.flatMap(({ order, state, status, collided }) => [
    ...(state === "refused" || state === "failed" || (status !== 0 && status !== 200)
      ? [{
        check: "the model server takes every history",
        text: `request ${order}: ${state}, HTTP ${status}`,
      }]
      : []),
    ...(collided ? [{ check: "no request meets a busy slot", text: `request ${order}` }] : []),
  ]);
}

function checkNotes({ notes }: Evidence, { run, torn }: Seen): Violation[] {
  const times = notes.split(noteText(run)).length - 1;
  return times <= (torn ? 2 : 1)
    ? []
    : [{ check: "a note is made once", text: `it stands there ${times} times` }];
}

async function checkAudit({ paths }: Seen): Promise<Violation[]> {
  const { exit, text } = await verifyAudit(paths.audit);
  return exit === 0 ? [] : [{ check: "the audit log verifies", text: `exit ${exit}: ${text}` }];
}

function of<K extends LogRecord["kind"]>(records: readonly LogRecord[], kind: K): Of<K>[] {
  return records.filter((record): record is Of<K> => record.kind === kind);
}

function labelOf(records: readonly LogRecord[]): Label {
  return records.reduce(
    (label, record) =>
      record.kind === "open" || record.kind === "result" ? joinLabels(label, record.label) : label,
    publicTrusted,
  );
}
