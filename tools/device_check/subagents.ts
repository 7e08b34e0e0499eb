// D1: a CLI session calls `subagent`; its child's requests run on the background slot while another slot is busy and the main one is live;
// the parent's next request finds its own prefix. Judged from the sessions' logs and from what the server shows of its slots.

import { childSessionId, parseSessionId } from "../../core/ids.ts";
import { count } from "../bxctl/render.ts";
import { keptPrefix, readSession } from "../demo/evidence.ts";
import { type Answered, askForCall, NotShown, type Report, type Surroundings } from "./check.ts";
import { throughCallTool } from "./request_text.ts";
import { type SlotView, watchingSlots } from "./server_view.ts";

const task = "Answer with one short sentence: what is two and two?";

export async function checkSubagents(around: Surroundings): Promise<Report> {
  const { target: { slots }, view, otherSlot, busy } = around;
  const restartsBefore = busy?.restarts ?? 0;
  const { result: asked, looks } = await watchingSlots(
    view,
    () =>
      askForCall(around, { tool: "subagent", wanted: throughCallTool("subagent", { task }), status: "ok" }),
  );
  const restarts = (busy?.restarts ?? 0) - restartsBefore;
  const after = await view.slots();
  const { child, ofParent, ofChild } = await readFamily(around, asked);
  const kept = keptPrefix(ofParent.requests, asked.call.call);
  if (kept === undefined) throw new NotShown("the parent made no request after its child had ended");

  const childSlots = ofChild.requests.map(({ slot }) => slot);
  const parentSlots = [...new Set(ofParent.requests.map(({ slot }) => slot))];
  const last = ofChild.requests.at(-1)?.timings;
  const childTokens = last === undefined ? 0 : last.cacheN + last.promptN + last.predictedN;
  const backgroundTokens = tokensOf(after, slots.background);
  const otherBusy = looks.filter((look) => look.some(({ id, busy }) => id === otherSlot && busy)).length;

  const faults = [
    childSlots.length > 0 && childSlots.every((slot) => slot === slots.background)
      ? undefined
      : `the child's requests were on slot ${childSlots.join(", ") || "none"}, wanted ${slots.background}`,
    parentSlots.length === 1 && parentSlots[0] === slots.main
      ? undefined
      : `the parent's requests were on slot ${parentSlots.join(", ")}, wanted ${slots.main}`,
    // Where the server shows its slots, the child's tokens must lie in that one: its last prompt, and what it said but the last token.
    backgroundTokens === undefined ||
      backgroundTokens >= childTokens - (last?.predictedN ?? 0) && backgroundTokens <= childTokens
      ? undefined
      : `the server shows ${backgroundTokens} tokens in slot ${slots.background}, wanted the child's ${childTokens}`,
    // A template that writes the call anew has that much computed again, and not more (facts 2b).
    kept.lostN <= kept.callN
      ? undefined
      : `the parent lost ${kept.lostN} tokens of its prefix, at most ${kept.callN} may be; is the server started with ` +
        `-np ${Math.max(slots.main, slots.background) + 1}?`,
    // A generation whose context is full is begun again: one look may fall in between.
    busy === undefined || otherBusy + restarts >= looks.length && otherBusy > 0
      ? undefined
      : `slot ${otherSlot} was busy in ${otherBusy} of ${count(looks.length, "look")}`,
  ].filter((fault) => fault !== undefined);

  return {
    id: "D1",
    ok: faults.length === 0,
    text: faults.length > 0
      ? faults.join("; ")
      : `the child ran on slot ${slots.background}; the parent's next request found ${kept.cacheN} of ${kept.previousTotal} tokens`,
    lines: [
      [
        "parent",
        `${asked.session} on slot ${slots.main}: ${kept.previousTotal} tokens when it called subagent`,
      ],
      [
        "child",
        `${child} on slot ${childSlots.join(", ")}: ${count(childTokens, "token")}` +
        (backgroundTokens === undefined
          ? ""
          : `, of which the server shows ${backgroundTokens} in slot ${slots.background}`),
      ],
      [
        "next",
        `cache_n ${kept.cacheN}, the law promises ${kept.lawN}: ${kept.lostN} lost (up to ${kept.callN}, the call itself, ` +
        `may be written anew); ${kept.computedN} computed`,
      ],
      ["slot " + otherSlot, otherSlotText(looks.length, otherBusy, { ours: busy !== undefined })],
    ],
    facts: {
      parent: asked.session,
      child,
      mainSlot: slots.main,
      childSlots,
      ...kept,
      toleranceN: kept.callN,
      childTokens,
      ...(backgroundTokens === undefined ? {} : { backgroundTokens }),
      otherSlot,
      otherSlotBusyLooks: otherBusy,
      looks: looks.length,
    },
  };
}

async function readFamily({ bx }: Surroundings, { session, call }: Answered) {
  const child = childSessionId(parseSessionId(session), call.call);
  if (child === undefined) throw new NotShown(`${session} has no room for a child's id`);
  return { child, ofParent: await readSession(bx, session), ofChild: await readSession(bx, child) };
}

function tokensOf(slots: readonly SlotView[] | undefined, wanted: number): number | undefined {
  return slots?.find(({ id }) => id === wanted)?.tokens;
}

function otherSlotText(looks: number, busyLooks: number, { ours }: { ours: boolean }): string {
  if (looks === 0) return "the server does not show its slots";
  const kept = ours ? "kept busy by this check" : "as it was found (--busy-slot-1 makes it busy)";
  return `busy in ${busyLooks} of ${count(looks, "look")} meanwhile, ${kept}`;
}
