// One brokered call from request to answer, in order: its number, its label, its arguments, the verdict, the owner if he is asked, the
// intent on disk, the bytes out, the decision on disk, the answer. Nothing is sent before its intent is durable, nothing is released
// before its decision and the label it raises are, and what may have been sent is never sent again.
//
// A (session, call) pair is decided once, across restarts: decided numbers live in the fold (exact, as ranges, carried into each new
// segment by its ledger record); the answer itself is read back from the log when somebody asks for it again.

import {
  type AuditRecord,
  auditRecordSchema,
  type NewAuditRecord,
  type Outcome,
  type RecordOf,
} from "../core/audit/record.ts";
import { sha256 } from "../core/audit/chain.ts";
import { readEnvelope } from "../core/audit/line.ts";
import { readAuditPage } from "../core/audit/read.ts";
import { readAt, segmentAt } from "../core/audit/segments.ts";
import { type Clock, timestamp } from "../core/clock.ts";
import type { Grant } from "../core/config/grants_toml.ts";
import { assertOurs } from "../core/errors.ts";
import type { CallId, SessionId } from "../core/ids.ts";
import { type Label, labelAtMost, labelsEqual } from "../core/labels.ts";
import { auditLineBytesMax, pendingCallsMax } from "../core/limits.ts";
import {
  type CallAnswer,
  type CallRequest,
  type CallState,
  type DenialCode,
  denialCodes,
} from "../core/protocol/broker.ts";
import type { RunbookEntry } from "../core/runbook.ts";
import { deniedAnswer, errorAnswer, failureAnswer, invalidArguments } from "./answers.ts";
import type { Approvals } from "./approvals.ts";
import { type AuditLog, AuditUnavailable } from "./audit_log.ts";
import { decide, type Verdict } from "./decide.ts";
import { callKey, type Fold, type OpenCall, type RecordPlace } from "./fold.ts";
import { answerLabel, budgetKey, grantContent } from "./grants.ts";
import type { Ledger } from "./ledger.ts";
import { post } from "./sender.ts";
import type { Endpoint, Tool } from "./toolset.ts";

export interface CallsOptions {
  readonly clock: Clock;
  readonly log: AuditLog;
  readonly fold: Fold;
  readonly ledger: Ledger;
  readonly approvals: Approvals;
  readonly toolset: ReadonlyMap<string, Tool>;
  /** Those in force now. */
  readonly grants: () => readonly Grant[];
}

/** What every record of one call begins with, but for the label, which is the fold's at that moment. */
interface Subject {
  readonly session: SessionId;
  readonly call: CallId;
  readonly tool: string;
}

type Decision = Extract<NewAuditRecord, { kind: "decision" }>;
type DecisionDetail = Omit<Decision, "kind" | "session" | "call" | "tool" | "label">;

export class Calls {
  readonly #clock: Clock;
  readonly #log: AuditLog;
  readonly #fold: Fold;
  readonly #ledger: Ledger;
  readonly #approvals: Approvals;
  readonly #toolset: ReadonlyMap<string, Tool>;
  readonly #grants: () => readonly Grant[];
  readonly #running = new Map<string, { approval: string | undefined; ended: Promise<unknown> }>();
  readonly #stopping = new AbortController();

  constructor({ clock, log, fold, ledger, approvals, toolset, grants }: CallsOptions) {
    this.#clock = clock;
    this.#log = log;
    this.#fold = fold;
    this.#ledger = ledger;
    this.#approvals = approvals;
    this.#toolset = toolset;
    this.#grants = grants;
  }

  /** Throws ProtocolError for a `sub-` id without a known parent. `closed()` aborts when the caller has gone; asked for only by a call that waits. */
  async call(request: CallRequest, closed: () => AbortSignal): Promise<CallAnswer> {
    const { session, call } = request;
    if (this.#log.failure !== undefined || this.#stopping.signal.aborted) {
      return deniedAnswer("AuditUnavailable");
    }
    const key = callKey(session, call);
    if (this.#running.has(key) || this.#fold.isDecided(session, call)) return errorAnswer("duplicate-call");
    if (this.#running.size >= pendingCallsMax) return errorAnswer("too-many-calls");
    const { promise: ended, resolve: end } = Promise.withResolvers<void>();
    this.#running.set(key, { approval: undefined, ended });
    try {
      return await this.#run(request, closed);
    } catch (error) {
      if (error instanceof AuditUnavailable) return deniedAnswer("AuditUnavailable");
      throw error;
    } finally {
      this.#running.delete(key);
      end();
    }
  }

  async #run(request: CallRequest, closed: () => AbortSignal): Promise<CallAnswer> {
    const { session, call } = request;
    const subject: Subject = { session, call, tool: request.tool };
    const label = this.#ledger.state(session, request.label);

    const tool = this.#toolset.get(request.tool);
    if (tool === undefined) {
      return await this.#refuse(subject, { code: "unknown-tool" }, errorAnswer("unknown-tool"));
    }
    const parsed = tool.parse(request.arguments);
    if ("invalid" in parsed) {
      const detail = { code: "invalid-arguments", reason: parsed.invalid };
      return await this.#refuse(subject, detail, invalidArguments(parsed.invalid));
    }
    const { endpoint } = tool;
    const { question } = parsed;
    const verdict = this.verdict(tool, { session, label });
    if (endpoint === undefined) {
      assertOurs(verdict.verdict === "deny", "a tool without an endpoint is refused");
      return await this.#deny(subject, verdict, { question }, tool.missing.runbook);
    }

    const body = endpoint.body(question);
    const bytes = new TextEncoder().encode(body);
    const exact = { body, bodySha256: sha256(bytes) };
    if (verdict.verdict === "deny") return await this.#deny(subject, verdict, exact);
    const { grant } = verdict;
    if (verdict.verdict === "ask") {
      const refusal = await this.#ask(subject, tool, { grant, label, exact, closed });
      if (refusal !== undefined) return refusal;
    }
    return await this.#send(subject, { tool, endpoint, grant, question, exact, bytes });
  }

  /** What the gate says of the tool under this label now. */
  verdict(tool: Tool, { session, label }: { session: SessionId | undefined; label: Label }): Verdict {
    const today = timestamp(this.#clock).slice(0, 10);
    return decide({
      tool: tool.description.name,
      notConfigured: tool.endpoint === undefined ? tool.missing.text : undefined,
      session,
      label,
      grants: this.#grants(),
      spent: (grant) => this.#fold.spent(budgetKey(grant), today),
    });
  }

  // Nothing of what was true when the owner was asked is taken for granted afterwards.
  async #ask(
    subject: Subject,
    tool: Tool,
    { grant, label, exact, closed }: { grant: Grant; label: Label; exact: Exact; closed: () => AbortSignal },
  ): Promise<CallAnswer | undefined> {
    const key = callKey(subject.session, subject.call);
    const end = await this.#approvals.wait({ ...subject, label, grant, ...exact }, {
      closed: AbortSignal.any([closed(), this.#stopping.signal]),
      onListed: (id) => this.#running.get(key)!.approval = id,
    });
    this.#running.get(key)!.approval = undefined;
    const denied = (code: DenialCode, reason: string | undefined) =>
      this.#refuse(subject, { code, grant: grant.index, ...exact, reason }, deniedAnswer(code));
    if (end.state === "expired") return await denied("ApprovalExpired", end.reason);
    if (end.state !== "approved") return await denied("ApprovalDenied", end.reason);
    const now = this.#label(subject.session);
    const again = this.verdict(tool, { session: subject.session, label: now });
    if (again.verdict === "deny" && again.code === "BudgetSpent") {
      return await this.#deny(subject, again, exact);
    }
    const stands = labelsEqual(now, label) && again.verdict === "ask" &&
      grantContent(again.grant) === grantContent(grant);
    return stands
      ? undefined
      : await denied("ApprovalDenied", "what the approval was bound to changed before it was sent");
  }

  async #send(
    subject: Subject,
    { tool, endpoint, grant, question, exact, bytes }: {
      tool: Tool;
      endpoint: Endpoint;
      grant: Grant;
      question: string;
      exact: Exact;
      bytes: Uint8Array;
    },
  ): Promise<CallAnswer> {
    const intent = this.#log.append({
      kind: "intent",
      ...subject,
      label: this.#label(subject.session),
      grant: grant.index,
      ...exact,
      grantSha256: budgetKey(grant),
    });
    await this.#log.commit();

    const began = this.#clock.monotonic();
    const result = await post({
      url: endpoint.url,
      bearer: endpoint.bearer,
      body: bytes,
      timeoutMs: endpoint.timeoutMs,
      replyBytesMax: endpoint.replyBytesMax,
      clock: this.#clock,
      signal: this.#stopping.signal,
    });
    const elapsedMs = Math.round(this.#clock.monotonic() - began);
    const reading = result.outcome === "reply" ? endpoint.read(result.body, question) : undefined;
    const sent = { verdict: "allow", grant: grant.index, intent, ...exact } as const;

    if (reading !== undefined && "answer" in reading) {
      const carried = answerLabel(grant);
      const { answer, replyModel } = reading;
      this.#decided(subject, {
        ...sent,
        outcome: "answered",
        status: result.status,
        answer,
        elapsedMs,
        answerLabel: carried,
        replyModel,
      });
      // Both records in one commit: the answer is released under its label or not at all.
      this.#ledger.raise(subject.session, carried);
      await this.#log.commit();
      return answeredWith(tool, answer, carried);
    }
    const outcome = result.outcome === "reply" ? "unusable" : result.outcome;
    const reason = result.outcome === "reply" ? reading?.unusable : result.reason;
    this.#decided(subject, { ...sent, outcome, status: result.status, elapsedMs, reason });
    await this.#log.commit();
    return failureAnswer(tool.failurePrefix, outcome);
  }

  #deny(
    subject: Subject,
    { code, cause, grant, lacks }: Verdict & { verdict: "deny" },
    detail: Pick<Decision, "body" | "bodySha256" | "question">,
    runbook?: RunbookEntry,
  ): Promise<CallAnswer> {
    return this.#refuse(
      subject,
      { code, cause, grant: grant?.index, ...detail, reason: `lacks ${lacks}` },
      deniedAnswer(code, { cause, runbook }),
    );
  }

  async #refuse(
    subject: Subject,
    detail: Omit<DecisionDetail, "verdict">,
    answer: CallAnswer,
  ): Promise<CallAnswer> {
    this.#decided(subject, { verdict: "deny", ...detail });
    await this.#log.commit();
    return answer;
  }

  // The one place that writes a decision; its keys in the order of docs/protocol.md.
  #decided({ session, call, tool }: Subject, detail: DecisionDetail): void {
    const { verdict, code, cause, grant, intent, body, bodySha256, question, outcome, status, answer } =
      detail;
    const { elapsedMs, answerLabel, replyModel, reason } = detail;
    this.#log.append({
      kind: "decision",
      session,
      call,
      tool,
      label: this.#label(session),
      verdict,
      code,
      cause,
      grant,
      intent,
      body,
      bodySha256,
      question,
      outcome,
      status,
      answer,
      elapsedMs,
      answerLabel,
      replyModel,
      reason,
    });
  }

  #label(session: SessionId): Label {
    const label = this.#fold.label(session);
    assertOurs(label !== undefined, "a session with a call is in the ledger");
    return label;
  }

  /** Whether a call of one of these sessions is under way. */
  isRunning(sessions: readonly SessionId[]): boolean {
    return [...this.#running.keys()].some((key) => sessions.some((session) => key.startsWith(`${session}/`)));
  }

  /** What was decided and answered, or where the call stands. */
  async state(session: SessionId, call: CallId): Promise<CallState> {
    const running = this.#running.get(callKey(session, call));
    if (running?.approval !== undefined) return { status: "waiting", approval: running.approval };
    if (running !== undefined) return { status: "running" };
    if (!this.#fold.isDecided(session, call)) return { status: "unknown" };
    const place = this.#fold.decisionPlace(session, call);
    const record = place !== undefined
      ? await this.#readRecord(place)
      : await this.#findRecord((envelope) =>
        envelope.kind === "decision" && envelope.session === session && envelope.call === call
      );
    return record?.kind === "decision" ? await this.#releaseAgain(record) : { status: "unknown" };
  }

  // Where a crash tore the commit of an answer, its decision may stand there without the label that it raises: the answer does not leave
  // before that is there, too.
  async #releaseAgain(record: RecordOf<"decision">): Promise<CallAnswer> {
    const { session, answerLabel } = record;
    if (answerLabel !== undefined && !labelAtMost(answerLabel, this.#label(session))) {
      try {
        this.#ledger.raise(session, answerLabel);
        await this.#log.commit();
      } catch (error) {
        if (error instanceof AuditUnavailable) return deniedAnswer("AuditUnavailable");
        throw error;
      }
    }
    return this.#answerOf(record);
  }

  #answerOf(record: RecordOf<"decision">): CallAnswer {
    const tool = this.#toolset.get(record.tool);
    const { code, cause, outcome, answer, answerLabel } = record;
    if (record.verdict === "deny") {
      const denial = denialCodes.find((denial) => denial === code);
      const runbook = denial === "NotConfigured" ? tool?.missing.runbook : undefined;
      if (denial !== undefined) return deniedAnswer(denial, { cause, runbook });
      return code === "unknown-tool" ? errorAnswer("unknown-tool") : invalidArguments(record.reason ?? "");
    }
    if (tool !== undefined && outcome === "answered" && answer !== undefined && answerLabel !== undefined) {
      return answeredWith(tool, answer, answerLabel);
    }
    return failureAnswer(tool?.failurePrefix ?? record.tool, failureOutcome(outcome));
  }

  /** At start: what was open when brokerd last ended is closed and never sent again. Durable after the next commit. */
  async closeOpen(): Promise<void> {
    for (const open of this.#fold.openCalls()) this.#closeOne(open, await this.#openingOf(open));
  }

  async #openingOf({ seq, place }: OpenCall): Promise<AuditRecord | undefined> {
    return place !== undefined
      ? await this.#readRecord(place)
      : await this.#findRecord((envelope) => envelope.seq === seq);
  }

  #closeOne({ session, call, seq }: OpenCall, opening: AuditRecord | undefined): void {
    if (opening?.kind === "approval") {
      const { tool, label, grant, body, bodySha256 } = opening;
      const reason = "brokerd ended while the owner was asked";
      this.#log.append({
        kind: "approval",
        session,
        call,
        tool,
        label,
        grant,
        state: "void",
        bodySha256,
        reason,
      });
      const detail = { verdict: "deny", code: "ApprovalDenied", grant, body, bodySha256, reason } as const;
      return this.#decided({ session, call, tool }, detail);
    }
    const detail = { verdict: "allow", intent: seq, outcome: "unknown" } as const;
    const reason = "found open at start: whether it was sent is not known";
    if (opening?.kind !== "intent") {
      return this.#decided({ session, call, tool: "unknown" }, { ...detail, reason });
    }
    const { tool, grant, body, bodySha256 } = opening;
    this.#decided({ session, call, tool }, { ...detail, grant, body, bodySha256, reason });
  }

  async #readRecord({ segment, offset, length }: RecordPlace): Promise<AuditRecord | undefined> {
    const envelope = readEnvelope(await readAt(segmentAt(this.#log.dir, segment).path, offset, length));
    const record = auditRecordSchema.safeParse(envelope);
    return record.success ? record.data : undefined;
  }

  async #findRecord(
    matches: Parameters<typeof readAuditPage>[1]["matches"],
  ): Promise<AuditRecord | undefined> {
    const page = await readAuditPage(this.#log.dir, { matches, recordsMax: 1, bytesMax: auditLineBytesMax });
    const record = auditRecordSchema.safeParse(page.records.at(0));
    return record.success ? record.data : undefined;
  }

  /** Ends what runs: approvals are void, what was sent is `unknown`. Resolves when every call has its decision. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await Promise.all([...this.#running.values()].map(({ ended }) => ended));
  }
}

interface Exact {
  readonly body: string;
  readonly bodySha256: string;
}

function answeredWith(tool: Tool, answer: string, label: Label): CallAnswer {
  return { status: "ok", text: `${tool.answerLine}\n${answer}`, label };
}

function failureOutcome(outcome: Outcome | undefined): Exclude<Outcome, "answered"> {
  return outcome === undefined || outcome === "answered" ? "unknown" : outcome;
}
