// A child session: spawned by one call of its parent, run to its end on the background slot, and turned into one completion message.
// loopd answers this itself; brokerd never sees the spawn (S8). Whatever a restart cut, the same function finishes it.

import { type CallId, childSessionId } from "../core/ids.ts";
import { joinLabels } from "../core/labels.ts";
import { childrenPerTurnMax, sessionIdCharactersMax } from "../core/limits.ts";
import type { TurnOutcome } from "../core/protocol/loop.ts";
import { capText, isCut, neutralise } from "../core/text.ts";
import { withTimeLine } from "./context/time_line.ts";
import type { Services } from "./services.ts";
import type { Session } from "./session/session.ts";
import { toolError } from "./toolset/results.ts";
import { beginTurn, endEarly, resumeTurn } from "./turn.ts";
import type { CallContext, ToolResult, Turn, TurnFailure } from "./turn_types.ts";

/** Runs the child of one call, or finishes the one that a restart left: the result is the same. */
export async function runChild(
  task: string,
  { turn: parent, call }: CallContext,
  services: Services,
): Promise<ToolResult> {
  const id = childSessionId(parent.session.id, call);
  if (id === undefined) {
    const tooLong = `sub-${parent.session.id}-${call}`;
    return toolError(
      "invalid-arguments",
      `the child's id ${tooLong} would have ${tooLong.length} characters; at most ${sessionIdCharactersMax} fit`,
      "subagent-id",
    );
  }
  const resultChars = services.config.tools.resultChars;
  // The model wrote it, after whatever it had read: as the child's user text it must not pose as the template around it.
  const capped = capText(neutralise(task), resultChars);
  let child: Session;
  if (await services.store.exists(id)) child = await services.store.get(id);
  else {
    if (parent.tree.spawned >= childrenPerTurnMax) {
      return toolError(
        "too-many-children",
        `one turn spawns at most ${childrenPerTurnMax} children over its whole tree`,
        "too-many-children",
      );
    }
    // Durable before the child exists: a child without its parent's record would be nobody's after a crash.
    if (!parent.session.children.some((spawn) => spawn.call === call)) {
      await parent.session.append({ kind: "spawn", call, child: id, task: capped });
      parent.tree.spawned++;
    }
    child = await services.store.create(id, parent.session.label);
  }
  const outcome = await runToEnd(child, capped, parent, services);
  const result = completion(child, outcome, services);
  const taskNote = isCut(task, resultChars)
    ? `\n[the task was cut before the child got it] ${capped.slice(capped.lastIndexOf("\n") + 1)}`
    : "";
  return { ...result, text: result.text + taskNote };
}

/**
 * Ends what the child of a call left open, where the call itself ends early (its turn expired, was cancelled or given up); a child that had
 * finished has its answer delivered all the same.
 */
export async function abandonChild(
  parent: Turn,
  call: CallId,
  failure: TurnFailure,
  services: Services,
): Promise<ToolResult | undefined> {
  const id = parent.session.children.find((spawn) => spawn.call === call)?.child;
  if (id === undefined || !await services.store.exists(id)) return undefined;
  const child = await services.store.get(id);
  if (child.turnOpen && !services.holds.has(id)) {
    const turn: Turn = { ...parent, session: child, waitsFor: undefined, emit: () => {} };
    await services.holds.during(turn, () => endEarly(turn, failure, services));
  }
  const outcome: ChildOutcome = child.turn > 0
    ? endOf(child)
    : { status: "failed", content: "", reason: failure.reason, detail: failure.detail, label: child.label };
  return completion(child, outcome, services);
}

interface ChildOutcome {
  readonly status: TurnOutcome["status"];
  readonly content: string;
  /** The machine word, then detail. */
  readonly reason?: string;
  readonly detail?: string;
  readonly label: TurnOutcome["label"];
}

async function runToEnd(
  child: Session,
  task: string,
  parent: Turn,
  services: Services,
): Promise<ChildOutcome> {
  if (child.turn === 0 || child.turnOpen) {
    const turn: Turn = {
      session: child,
      tree: parent.tree,
      // What the parent has left after the round in which it called (S14).
      iterationsMax: parent.iterationsMax - parent.session.turnIterations,
      slot: services.config.slots.background,
      priority: "held-subagent",
      waitsFor: undefined,
      emit: () => {},
    };
    parent.waitsFor = "child";
    try {
      await services.holds.during(turn, () => startOrResume(turn, task, services));
    } finally {
      parent.waitsFor = undefined;
    }
  }
  return endOf(child);
}

function startOrResume(turn: Turn, task: string, services: Services): Promise<unknown> {
  if (turn.session.turn === 0) {
    return beginTurn(withTimeLine(task, services.clock.now(), services.timeZone), turn, services);
  }
  return resumeTurn(turn, services);
}

function endOf(child: Session): ChildOutcome {
  const end = child.lastEnd;
  return {
    status: end?.status ?? "failed",
    content: end?.status === "completed" ? child.lastContent : "",
    reason: end?.reason,
    detail: end?.detail,
    label: child.label,
  };
}

function completion(child: Session, outcome: ChildOutcome, services: Services): ToolResult {
  return {
    status: outcome.status === "completed" ? "ok" : "error",
    ...(outcome.status === "completed" ? {} : { code: outcome.reason }),
    text: completionMessage(child, outcome, services.config.compact.summaryChars),
    // What the child learned rises into its parent, also when it failed (S12).
    label: joinLabels(child.label, outcome.label),
  };
}

// The first line says how it ended; of a failed child no text is returned, so nothing it wrote can pass for a result (F5, F12).
function completionMessage(child: Session, outcome: ChildOutcome, summaryChars: number): string {
  if (outcome.status === "completed") {
    return `subagent ${child.id} completed\n${capText(neutralise(outcome.content), summaryChars)}`;
  }
  const detail = (outcome.detail ?? "").replaceAll(/completed/gi, "finished");
  return `subagent ${child.id} failed: ${outcome.reason ?? "interrupted"}${
    detail === "" ? "" : ` (${detail})`
  }`;
}
