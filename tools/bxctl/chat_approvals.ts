// Approvals in a conversation: while a call of this session or of a child waits, the owner sees the exact body that would leave and
// decides with one key. What is decided on was shown whole; what is pressed before the question is asked decides nothing. It polls
// owner.sock only while a turn waits, and holds nothing afterwards.

import { delay, systemClock } from "../../core/clock.ts";
import type { SessionId } from "../../core/ids.ts";
import { describeLabel } from "../../core/labels.ts";
import { type Approval, approvalsAnswerSchema } from "../../core/protocol/owner.ts";
import { ask, doneSchema } from "./client.ts";
import { CommandFailure, type Context } from "./command.ts";
import { count, visible, visibleLine } from "./render.ts";

const pollMs = 400;
/** Of a body, until the owner asks for all of it. */
const bodyCharactersShownMax = 1_200;
const bodyLinesShownMax = 12;

export interface ApprovalFace {
  /** Lines that stay. */
  print(text: string): void;
  /** The first key, in lower case, that is one of `keys`; rejects with the signal's reason. */
  ask(question: string, keys: string, signal: AbortSignal): Promise<string>;
}

export class ApprovalWatch {
  readonly #seen = new Set<string>();
  #open: { readonly id: string; readonly gone: AbortController; readonly done: Promise<void> } | undefined;

  constructor(
    private readonly context: Context,
    private readonly session: SessionId,
    private readonly face: ApprovalFace,
  ) {}

  /** Looks while `waits` says so, until the signal. Never throws. */
  async run(waits: () => boolean, signal: AbortSignal): Promise<void> {
    for (;;) {
      await delay(systemClock, pollMs, signal).catch(() => {});
      if (signal.aborted) break;
      if (waits()) await this.#look(signal);
      else this.#open?.gone.abort();
    }
    await this.#open?.done;
  }

  async #look(signal: AbortSignal): Promise<void> {
    const approvals = await listApprovals(this.context, signal);
    if (approvals === undefined) return;
    const open = this.#open;
    if (open !== undefined) {
      if (!approvals.some(({ id }) => id === open.id)) open.gone.abort();
      return;
    }
    const next = approvals.find((approval) => !this.#seen.has(approval.id) && isOf(approval, this.session));
    if (next === undefined) return;
    this.#seen.add(next.id);
    const gone = new AbortController();
    const done = this.#decide(next, AbortSignal.any([signal, gone.signal])).catch((error) => {
      if (!(error instanceof CommandFailure)) throw error;
      this.face.print(this.context.paint("red", error.message));
    }).finally(() => this.#open = undefined);
    this.#open = { id: next.id, gone, done };
  }

  async #decide(approval: Approval, signal: AbortSignal): Promise<void> {
    const { paint } = this.context;
    const id = visibleLine(approval.id, 60);
    this.face.print(headOf(approval, paint("yellow", `approval ${id}`)));
    let unseen = cutBody(approval.body);
    this.face.print(unseen.shown);
    for (;;) {
      const rest = unseen.rest;
      if (rest !== "") this.face.print(paint("yellow", `… ${count(rest.length, "more character")}`));
      const question = rest === ""
        ? `${id}: y approves these bytes, n denies, s shows all again`
        : `${id}: s shows all, which comes before y; n denies`;
      const key = await this.face.ask(question, "yns", signal).catch(() => undefined);
      if (key === undefined) {
        return this.face.print(`${id} waits no longer: decided elsewhere, expired or void`);
      }
      if (key === "n") return await this.#settle(approval, "deny");
      if (key === "y" && rest === "") return await this.#settle(approval, "approve");
      unseen = { shown: visible(approval.body), rest: "" };
      this.face.print(unseen.shown);
    }
  }

  async #settle({ id, bodySha256 }: Approval, decision: "approve" | "deny"): Promise<void> {
    const path = `/v1/approvals/${encodeURIComponent(id)}`;
    const request = { method: "POST", path, body: { decision, bodySha256 } } as const;
    await ask(this.context, "brokerd", request, doneSchema);
    const word = decision === "approve" ? "approved" : "denied";
    this.face.print(
      this.context.paint(decision === "approve" ? "green" : "red", `${word} ${visibleLine(id, 60)}`),
    );
  }
}

/** Where nobody is asked: says once of each call that waits how it is decided on. Never throws. */
export async function sayWhatWaits(
  context: Context,
  session: SessionId,
  { waits, say, signal }: { waits(): boolean; say(text: string): void; signal: AbortSignal },
): Promise<void> {
  const said = new Set<string>();
  for (;;) {
    await delay(systemClock, pollMs, signal).catch(() => {});
    if (signal.aborted) return;
    if (!waits()) continue;
    for (const approval of await listApprovals(context, signal) ?? []) {
      if (said.has(approval.id) || !isOf(approval, session)) continue;
      said.add(approval.id);
      const { id, tool } = approval;
      say(
        `${visibleLine(tool, 64)} of ${approval.session} waits for you: bx approvals show ${
          visibleLine(id, 60)
        }`,
      );
    }
  }
}

function isOf({ session, ancestors }: Approval, root: SessionId): boolean {
  return session === root || ancestors.includes(root);
}

/** `undefined` while brokerd does not answer. */
async function listApprovals(context: Context, signal: AbortSignal): Promise<Approval[] | undefined> {
  try {
    const request = { method: "GET", path: "/v1/approvals", signal } as const;
    return (await ask(context, "brokerd", request, approvalsAnswerSchema)).approvals;
  } catch (error) {
    if (signal.aborted || error instanceof CommandFailure) return undefined;
    throw error;
  }
}

function headOf(approval: Approval, title: string): string {
  const bytes = new TextEncoder().encode(approval.body).length;
  const family = [approval.session, ...approval.ancestors].join(" < ");
  return [
    `${title}: ${visibleLine(approval.tool, 64)} of ${family} (${describeLabel(approval.label)}), until ${
      visibleLine(approval.expiresAt, 40)
    }`,
    `sha256 ${approval.bodySha256}; ${count(bytes, "byte")}, exactly:`,
  ].join("\n");
}

/** The body's beginning, and what is left of it. */
function cutBody(body: string): { shown: string; rest: string } {
  const lines = body.split("\n").slice(0, bodyLinesShownMax).join("\n");
  const cut = [...lines.slice(0, bodyCharactersShownMax + 1)].slice(0, bodyCharactersShownMax).join("");
  return { shown: visible(cut), rest: body.slice(cut.length) };
}
