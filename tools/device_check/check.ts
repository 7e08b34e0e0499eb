// What both checks share: their surroundings, how a call is asked of the model until it is made, and the form of a report.

import type { TurnOutcome } from "../../core/protocol/loop.ts";
import type { Bx } from "../demo/bx.ts";
import type { ConsultEndpoint } from "../stubs/consult_endpoint.ts";
import type { BusySlot } from "./busy_slot.ts";
import { requestText, triesMax, type WantedCall } from "./request_text.ts";
import type { ServerView } from "./server_view.ts";
import type { Target } from "./target.ts";

export type CheckId = "D1" | "D2";

export interface Surroundings {
  readonly bx: Bx;
  readonly target: Target;
  readonly view: ServerView;
  readonly recorder: ConsultEndpoint;
  /** The slot that neither the conversation nor its children use. */
  readonly otherSlot: number;
  /** Present where the check itself keeps that slot busy. */
  readonly busy: BusySlot | undefined;
  readonly progress: (text: string) => void;
}

export interface Report {
  readonly id: CheckId;
  readonly ok: boolean;
  /** One sentence: what was shown, or why not. */
  readonly text: string;
  readonly lines: readonly (readonly [name: string, text: string])[];
  /** What `--json` adds. */
  readonly facts: Readonly<Record<string, unknown>>;
}

/** A check that could not be carried through; its text is the report's. */
export class NotShown extends Error {
  override readonly name = "NotShown";
}

export interface Answered {
  readonly session: string;
  readonly outcome: TurnOutcome;
  readonly call: TurnOutcome["calls"][number];
}

/**
 * Asks until the model makes the call of `tool` and it ends as wanted. A conversation that went astray would mislead the next try, so each
 * has a session of its own, unless `session` is where it must happen. Throws NotShown.
 */
export async function askForCall(
  { bx, progress }: Surroundings,
  { tool, wanted, session, status }: {
    readonly tool: string;
    readonly wanted: WantedCall;
    readonly session?: string;
    readonly status: "ok" | "denied";
  },
): Promise<Answered> {
  let last: TurnOutcome | undefined;
  for (let attempt = 1; attempt <= triesMax; attempt++) {
    progress(`asking the model to call ${tool}, try ${attempt} of ${triesMax}`);
    const place = session ?? await bx.newSession();
    last = await bx.send(place, requestText(wanted, attempt));
    const call = last.calls.findLast((each) => each.tool === tool);
    if (call?.status === status) return { session: place, outcome: last, call };
    // What was refused or allowed against expectation will not be otherwise the next time.
    if (call !== undefined && call.code !== "invalid-arguments") {
      throw new NotShown(
        `${tool} ended ${call.status}${call.code === undefined ? "" : ` (${call.code})`}, wanted ${status}`,
      );
    }
  }
  const how = last?.reason === undefined ? "" : ` (its last turn: ${last.reason})`;
  throw new NotShown(`the model did not call ${tool} in ${triesMax} tries; nothing was shown${how}`);
}
