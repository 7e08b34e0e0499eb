// A home that has lived for years: thousands of sessions and a long audit log, written by the product's own writers. For what must stay quick
// whatever is on disk.

import { sha256 } from "../../core/audit/chain.ts";
import { type Clock, systemClock } from "../../core/clock.ts";
import type { HomePaths } from "../../core/home.ts";
import { childSessionId, parseSessionId, type SessionId } from "../../core/ids.ts";
import type { Label } from "../../core/labels.ts";
import { AuditLog } from "../../brokerd/audit_log.ts";
import { Fold } from "../../brokerd/fold.ts";
import { createSessionLog } from "../../loopd/session/log.ts";
import type { NewRecord } from "../../loopd/session/record.ts";

export interface LargeHomeSize {
  readonly sessions: number;
  readonly auditRecords: number;
}

/** Turns of each session. */
const turns = 3;
/** One session in so many has a child. */
const childEvery = 5;
/** Records between two waits for the disk. */
const auditGroup = 2_000;
/** Calls of one session before the next begins. */
const callsPerSession = 100;

const label: Label = { class: "private", untrusted: false };

/** Sessions as loopd writes them; every fifth has a child. */
export async function writeSessions(
  paths: HomePaths,
  count: number,
  clock: Clock = systemClock,
): Promise<void> {
  const system = "You are the personal agent of this device's owner. ".repeat(12);
  const tools = JSON.stringify([{
    type: "function",
    function: { name: "clock", description: "x".repeat(1_800) },
  }]);
  const write = async (id: SessionId, parent: SessionId | null, child: SessionId | undefined) => {
    const log = await createSessionLog(paths.sessions, id, clock);
    const records: NewRecord[] = [
      { kind: "open", session: id, parent, label },
      { kind: "epoch", epoch: 1, system, tools },
    ];
    for (let turn = 1; turn <= turns; turn++) {
      records.push(...turnRecords(turn, turn === 1 ? child : undefined));
    }
    await log.append(records);
    await log.close();
  };
  for (let number = 1; number <= count;) {
    const id = parseSessionId(`chat-${String(number).padStart(8, "0")}`);
    const child = number % childEvery === 0 ? childSessionId(id, 1) : undefined;
    await write(id, null, child);
    number++;
    if (child !== undefined && number <= count) {
      await write(child, id, undefined);
      number++;
    }
  }
}

function turnRecords(turn: number, child: SessionId | undefined): NewRecord[] {
  const timings = { cacheN: 900 * turn, promptN: 120, predictedN: 60 };
  const said = {
    turn,
    thinking: "",
    slot: 0,
    timings,
    lostN: 0,
    queuedMs: 0,
    firstTokenMs: 300,
    elapsedMs: 2_000,
  };
  const text = `Message ${turn}: what was it about <the letter> & "the invoice" again?`;
  const spawned: NewRecord[] = child === undefined ? [] : [
    {
      kind: "assistant",
      ...said,
      content: "",
      calls: [{ call: 1, name: "call_tool", arguments: '{"name":"subagent","arguments":{"task":"look"}}' }],
    },
    { kind: "spawn", call: 1, child, task: "look" },
    {
      kind: "result",
      call: 1,
      tool: "subagent",
      status: "ok",
      text: `subagent ${child} completed\nfound`,
      label,
    },
  ];
  return [
    { kind: "user", turn, text },
    ...spawned,
    { kind: "assistant", ...said, content: "It was about the invoice of May. ".repeat(20), calls: [] },
    { kind: "end", turn, status: "completed" },
  ];
}

/** An audit log as brokerd writes it: for each call a label, and an intent with its decision, or a refusal. */
export async function writeAudit(paths: HomePaths, count: number, clock: Clock = systemClock): Promise<void> {
  const fold = new Fold();
  const log = await AuditLog.open({ dir: paths.audit, clock, fold });
  let seq = 0;
  const append = (record: Parameters<AuditLog["append"]>[0]) => seq = log.append(record);
  for (let call = 1; seq < count; call++) {
    const session = parseSessionId(`chat-${String(Math.ceil(call / callsPerSession)).padStart(8, "0")}`);
    const of = { session, call: (call - 1) % callsPerSession + 1, tool: "consult", label };
    const body = JSON.stringify({
      model: "big-model",
      temperature: 0.6,
      messages: [{
        role: "user",
        content: `Question ${call}: what is the usual period of notice for a rented flat?`,
      }],
    });
    const exact = { grant: 1, body, bodySha256: sha256(body) };
    append({ kind: "label", session, label });
    if (call % 4 === 0) {
      const denied = { verdict: "deny", code: "TaintTooHigh", cause: "class" } as const;
      append({ kind: "decision", ...of, ...denied, ...exact, reason: 'lacks max_taint = "secret"' });
    } else {
      const intent = append({ kind: "intent", ...of, ...exact });
      append({
        kind: "decision",
        ...of,
        verdict: "allow",
        grant: 1,
        intent,
        outcome: "answered",
        status: 200,
        answer: "Three months, as a rule, to the end of a month. ".repeat(4),
        elapsedMs: 2_400,
        answerLabel: { class: "private", untrusted: true },
      });
    }
    if (call % auditGroup === 0) await log.commit();
  }
  await log.commit();
  await log.close();
}
