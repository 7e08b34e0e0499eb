// Turns that begin at a root: the owner's message, or what a restart left open. Each gets its tree and its cancel; children join it later.

import type { SessionId } from "../core/ids.ts";
import { sessionKind } from "../core/ids.ts";
import { describeError, isStorageError, ProtocolError } from "../core/errors.ts";
import type { TurnEvent, TurnOutcome } from "../core/protocol/loop.ts";
import { STATUS_CODE } from "@std/http";
import type { Services } from "./services.ts";
import type { Session } from "./session/session.ts";
import type { Priority } from "./slots/gate.ts";
import { beginTurn, resumeTurn, turnOutcome } from "./turn.ts";
import { Cancelled, RoleStopping, type Turn } from "./turn_types.ts";

interface RootTurn {
  readonly turn: Turn;
  readonly abort: AbortController;
  /** Settles when the turn ended, whatever way. */
  readonly done: Promise<unknown>;
}

export class RootTurns {
  #services: Services;
  #running = new Map<SessionId, RootTurn>();
  #stopping = false;

  constructor(services: Services) {
    this.#services = services;
  }

  /** Starts a turn with the owner's text. Throws ProtocolError `busy` while the session is held (S17). */
  begin(session: Session, text: string, emit: (event: TurnEvent) => void): Promise<TurnOutcome> {
    return this.#start(session, 0, emit, (turn) => beginTurn(text, turn, this.#services));
  }

  /** Goes on with the turn that a restart left open. */
  async resume(session: Session): Promise<TurnOutcome> {
    const spawned = await this.#spawnedSoFar(session);
    // Taken up anew: nobody held it while its children were read.
    const again = await this.#services.store.get(session.id);
    return await this.#start(again, spawned, () => {}, (turn) => resumeTurn(turn, this.#services));
  }

  /** Ends the whole tree that this session works in. False when nothing runs there. */
  async cancel(id: SessionId): Promise<boolean> {
    const held = this.#services.holds.get(id);
    const running = held === undefined ? undefined : this.#running.get(held.tree.root);
    if (running === undefined) return false;
    running.abort.abort(new Cancelled());
    await running.done;
    return true;
  }

  /** Leaves every open turn as it is, for the next start. */
  async stop(): Promise<void> {
    this.#stopping = true;
    for (const { abort } of this.#running.values()) abort.abort(new RoleStopping());
    await Promise.all([...this.#running.values()].map(({ done }) => done));
  }

  #start(
    session: Session,
    spawned: number,
    emit: (event: TurnEvent) => void,
    run: (turn: Turn) => Promise<TurnOutcome>,
  ): Promise<TurnOutcome> {
    if (this.#stopping) {
      throw new ProtocolError("stopping", STATUS_CODE.ServiceUnavailable, "loopd is stopping");
    }
    if (this.#services.holds.has(session.id)) {
      throw new ProtocolError(
        "busy",
        STATUS_CODE.Conflict,
        `session ${session.id} is in a turn; wait for it, or cancel it`,
      );
    }
    const abort = new AbortController();
    const { slots, session: { toolIterations } } = this.#services.config;
    const lane = laneOf(session.id);
    const turn: Turn = {
      session,
      tree: { root: session.id, signal: abort.signal, spawned },
      iterationsMax: toolIterations,
      slot: lane.background ? slots.background : slots.main,
      priority: lane.priority,
      waitsFor: undefined,
      emit,
    };
    const outcome = this.#services.holds.during(turn, () => run(turn)).catch((error) =>
      this.#broken(turn, error)
    );
    const done = outcome.catch(() => {}).finally(() => {
      this.#running.delete(session.id);
      return this.#services.store.trim((id) => this.#services.holds.has(id));
    });
    this.#running.set(session.id, { turn, abort, done });
    return outcome;
  }

  // No end could be recorded, so none is: the log shows an open turn, which the next start or the next message ends. A fault of ours is not
  // survived: the process must not go on in a state that it does not understand.
  #broken(turn: Turn, error: unknown): TurnOutcome {
    if (error instanceof RoleStopping) throw error;
    if (!isStorageError(error)) {
      this.#services.fatal(error);
      throw error;
    }
    const reason = describeError(error);
    this.#services.report({ event: "turn-broken", session: turn.session.id, text: reason });
    const outcome = {
      ...turnOutcome(turn),
      status: "failed",
      content: "",
      reason: `storage: ${reason}`,
    } as const;
    turn.emit({ event: "done", data: outcome });
    return outcome;
  }

  async #spawnedSoFar(session: Session): Promise<number> {
    let spawned = 0;
    for (const { child } of session.childrenOfTurn) {
      spawned++;
      if (await this.#services.store.exists(child)) {
        spawned += await this.#spawnedSoFar(await this.#services.store.get(child));
      }
    }
    return spawned;
  }
}

// Live sessions use the main slot, everything else the background slot (S9). A child that its parent does not wait for ranks last but one.
export function laneOf(id: SessionId): { background: boolean; priority: Priority } {
  switch (sessionKind(id)) {
    case "sub":
      return { background: true, priority: "orphan-subagent" };
    case "job":
      return { background: true, priority: "cron" };
    case "heartbeat":
      return { background: true, priority: "heartbeat" };
    default:
      return { background: false, priority: "live" };
  }
}
