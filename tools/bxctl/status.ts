// `bx status` and `bx doctor`: how the two roles, the slots and the inference server stand, and what to do about what is wrong. They
// ask; they change nothing.

import { describeError, exitCodes } from "../../core/errors.ts";
import { describeLabel } from "../../core/labels.ts";
import { probeAnswerSchema } from "../../core/protocol/common.ts";
import { type StatusAnswer, statusAnswerSchema } from "../../core/protocol/loop.ts";
import { auditHeadSchema } from "../../core/protocol/owner.ts";
import { runbookPointer } from "../../core/runbook.ts";
import { ask, doneSchema, type Peer, socketOf } from "./client.ts";
import { type Command, CommandFailure, type Context } from "./command.ts";
import { count, duration, safeJson, table, visible, visibleLine } from "./render.ts";

export const statusCommands: readonly Command[] = [
  {
    words: "status",
    summary: "Show slots, who holds and who waits, the inference server and the broker",
    example: "status",
    async run(context) {
      const status = await ask(context, "loopd", { method: "GET", path: "/v1/status" }, statusAnswerSchema);
      if (context.json) context.print(safeJson(status));
      else printStatus(context, status);
    },
  },
  {
    words: "doctor",
    summary: "Check both roles, the inference server and the audit log, with advice",
    example: "doctor",
    run: doctor,
  },
];

function printStatus(context: Context, status: StatusAnswer): void {
  const { inference, broker } = status;
  const word = (reachable: boolean) =>
    reachable ? context.paint("green", "reachable") : context.paint("red", "not reachable");
  const note = (text: string | undefined) => text === undefined ? "" : `  ${visibleLine(text, 300)}`;
  const remote = inference.remote ? context.paint("yellow", "  remote: texts leave this device") : "";
  const slots = inference.totalSlots === undefined ? "" : `, ${count(inference.totalSlots, "slot")}`;
  context.print(
    `inference  ${visibleLine(inference.url, 300)}  ${word(inference.reachable)}${slots}${remote}${
      note(inference.text)
    }`,
  );
  context.print(`broker     ${word(broker.reachable)}${note(broker.text)}`);
  context.print(`sessions   ${status.sessions}, ${status.held.length} held`);
  context.print("");
  context.print(table(
    ["slot", "use", "state", "holder", "waiting"],
    status.slots.map((slot) => [
      `${slot.slot}`,
      slot.use,
      slot.state,
      slot.holder ?? "-",
      slot.queue.map((waiter) => `${waiter.session} (${waiter.priority}, ${duration(waiter.waitedMs)})`).join(
        ", ",
      ) || "-",
    ]),
  ));
  if (status.held.length > 0) {
    context.print("");
    context.print(table(
      ["held", "status", "label", "slot", "cached"],
      status.held.map((row) => [
        row.session,
        row.status,
        describeLabel(row.label),
        `${row.slot}`,
        row.cachedShare === null ? "-" : `${Math.round(row.cachedShare * 100)} %`,
      ]),
    ));
  }
  if (status.schedule.length > 0) {
    context.print("");
    context.print(table(
      ["schedule", "session", "next", "last start", "last skip"],
      status.schedule.map(({ name, session, next, lastStart, lastSkip }) => [
        name,
        session,
        next ?? "-",
        lastStart ?? "-",
        lastSkip === null ? "-" : `${lastSkip.time} ${lastSkip.reason}`,
      ]),
    ));
  }
}

interface Finding {
  readonly check: string;
  readonly ok: boolean;
  readonly text: string;
  readonly advice?: string;
}

async function doctor(context: Context): Promise<number> {
  const loopd = await examineLoopd(context);
  const brokerd = await examineBrokerd(context);
  const findings = [...loopd, ...brokerd];
  // The first finding of each says whether it runs at all.
  const running = loopd[0].ok && brokerd[0].ok;
  if (context.json) context.print(safeJson({ ok: findings.every(({ ok }) => ok), findings }));
  else printFindings(context, findings);
  if (!running) return exitCodes.notRunning;
  return findings.every(({ ok }) => ok) ? exitCodes.done : exitCodes.failed;
}

async function examineLoopd(context: Context): Promise<Finding[]> {
  const greeting = await greet(context, "loopd");
  if (!greeting[0].ok) return greeting;
  const request = { method: "POST", path: "/v1/probe", body: {} } as const;
  const probe = await attempt("probe", () => ask(context, "loopd", request, probeAnswerSchema));
  return [...greeting, ...("findings" in probe ? probe.findings : [probe])];
}

async function examineBrokerd(context: Context): Promise<Finding[]> {
  const greeting = await greet(context, "brokerd");
  if (!greeting[0].ok) return greeting;
  const request = { method: "GET", path: "/v1/audit/head" } as const;
  const head = await attempt("audit log", () => ask(context, "brokerd", request, auditHeadSchema));
  if (!("seq" in head)) return [...greeting, head];
  const text = `${count(head.seq, "record")}, head ${head.seq}:${head.hash}`;
  const advice = "write the head down elsewhere, for audit verify --head";
  const probe = await attempt(
    "probe",
    () => ask(context, "brokerd", { method: "POST", path: "/v1/probe", body: {} }, probeAnswerSchema),
  );
  return [
    ...greeting,
    { check: "audit log", ok: true, text, advice },
    ...("findings" in probe ? probe.findings : [probe]),
  ];
}

/** First whether the role runs, then what its hello complains of. */
async function greet(context: Context, peer: Peer): Promise<Finding[]> {
  const answer = await attempt(peer, async () => ({
    hello: await ask(context, peer, { method: "GET", path: "/v1/hello" }, doneSchema),
  }));
  if (!("hello" in answer)) return [answer];
  const { role, denyAll } = answer.hello;
  if (role !== peer) {
    const text = `${socketOf(context, peer)} is answered by ${safeJson(role ?? null)}, wanted ${peer}`;
    return [{
      check: peer,
      ok: false,
      text,
      advice: "stop what serves this home and start deno task up again",
    }];
  }
  const runs = { check: peer, ok: true, text: "runs" };
  if (typeof denyAll !== "string") return [runs];
  const text = `every call is denied: ${denyAll}`;
  return [runs, { check: "calls", ok: false, text, advice: runbookPointer("audit-unavailable") }];
}

async function attempt<T extends object>(check: string, work: () => Promise<T>): Promise<T | Finding> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof CommandFailure)) throw error;
    return { check, ok: false, text: describeError(error) };
  }
}

function printFindings(context: Context, findings: readonly Finding[]): void {
  const width = Math.max(...findings.map(({ check }) => check.length));
  for (const { check, ok, text, advice } of findings) {
    const mark = ok ? context.paint("green", "ok  ") : context.paint("red", "FAIL");
    context.print(`${mark}  ${visibleLine(check, 64).padEnd(width)}  ${visible(text).replaceAll("\n", " ")}`);
    if (advice !== undefined) {
      context.print(`      ${context.paint("dim", `-> ${visibleLine(advice, 600)}`)}`);
    }
  }
}
