// Holds: who works on which session. One turn per session (B4, S9); a waiting parent stays held while its child is held too.

import type { SessionId } from "../core/ids.ts";
import type { Turn } from "./turn_types.ts";

export class Holds {
  #turns = new Map<SessionId, Turn>();

  get(session: SessionId): Turn | undefined {
    return this.#turns.get(session);
  }

  has(session: SessionId): boolean {
    return this.#turns.has(session);
  }

  all(): Turn[] {
    return [...this.#turns.values()];
  }

  /** Holds the turn's session while `work` runs. The caller has made sure that nobody holds it. */
  async during<T>(turn: Turn, work: () => Promise<T>): Promise<T> {
    this.#turns.set(turn.session.id, turn);
    try {
      return await work();
    } finally {
      this.#turns.delete(turn.session.id);
    }
  }
}
