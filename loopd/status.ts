// What the owner sees of a running loopd: slots, holds, queue, sessions. Read only.

import { timestamp } from "../core/clock.ts";
import { ProtocolError } from "../core/errors.ts";
import type { SessionId } from "../core/ids.ts";
import { parentSessionId, sessionKind } from "../core/ids.ts";
import type { SessionRow, SlotHistoryAnswer, StatusAnswer } from "../core/protocol/loop.ts";
import { laneOf } from "./root_turns.ts";
import type { Scheduler } from "./scheduler.ts";
import type { Services } from "./services.ts";
import type { Session } from "./session/session.ts";

export async function status(services: Services, scheduler: Scheduler): Promise<StatusAnswer> {
  const { config, store, broker, server } = services;
  const [state, brokerState] = await Promise.all([server?.look(), broker.reachable()]);
  return {
    inference: {
      url: config.inference?.url ?? "",
      remote: config.inference?.remote ?? false,
      reachable: state?.kind === "ready",
      ...(state?.kind === "ready" && state.totalSlots !== undefined ? { totalSlots: state.totalSlots } : {}),
      ...(state === undefined
        ? { text: "no [inference] url is configured in loopd.toml" }
        : state.kind === "loading"
        ? { text: "the server is loading its model" }
        : state.kind === "ready"
        ? {}
        : { text: state.text }),
    },
    broker: brokerState,
    slots: slotRows(services),
    schedule: scheduler.rows(),
    held: heldRows(services),
    sessions: (await store.ids()).length,
  };
}

/** From memory alone: may be asked for every second. */
export function slotHistory(services: Services): SlotHistoryAnswer {
  const { history } = services.gate;
  return {
    time: timestamp(services.clock),
    since: history.since,
    slots: slotRows(services),
    held: heldRows(services),
    spans: [...history.spans()],
  };
}

function slotRows({ config, gate }: Services): StatusAnswer["slots"] {
  const views = new Map(gate.view().map((view) => [view.slot, view]));
  const uses = [["main", config.slots.main], ["background", config.slots.background]] as const;
  return uses.map(([use, slot]) => {
    const view = views.get(slot);
    return {
      slot,
      use,
      state: view?.state ?? "idle",
      ...(view?.holder === undefined ? {} : { holder: view.holder }),
      queue: (view?.queue ?? []).map((waiter) => ({ ...waiter, waitedMs: Math.round(waiter.waitedMs) })),
    };
  });
}

function heldRows(services: Services): SessionRow[] {
  return services.holds.all().map((turn) => rowOf(turn.session, services));
}

export async function sessionRows(services: Services): Promise<SessionRow[]> {
  const rows: SessionRow[] = [];
  for (const id of await services.store.ids()) {
    const row = await sessionRow(id, services).catch((error) => {
      // A session that cannot be read is no reason to show none.
      if (error instanceof ProtocolError) return undefined;
      throw error;
    });
    if (row !== undefined) rows.push(row);
    await services.store.trim((other) => services.holds.has(other));
  }
  return rows;
}

/** Undefined for a directory that holds no session that ever began. */
export async function sessionRow(id: SessionId, services: Services): Promise<SessionRow | undefined> {
  try {
    return rowOf(await services.store.get(id), services);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

function rowOf(session: Session, { holds, config }: Services): SessionRow {
  const turn = holds.get(session.id);
  const parent = parentSessionId(session.id);
  const { promptTokens, cachedTokens } = session.usage;
  return {
    session: session.id,
    parent: parent === undefined || parent === "malformed" ? null : parent,
    kind: sessionKind(session.id) ?? "unknown",
    status: turn === undefined
      ? session.lastEnd?.status ?? (session.turnOpen ? "waiting" : "idle")
      : turn.waitsFor === undefined
      ? "running"
      : "waiting",
    label: session.label,
    slot: laneOf(session.id).background ? config.slots.background : config.slots.main,
    turns: session.turn,
    cachedShare: promptTokens === 0 ? null : Math.round(cachedTokens / promptTokens * 10_000) / 10_000,
    usage: session.usage,
  };
}
