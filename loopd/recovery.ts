// What a restart left open: root turns without an end. They are found by the ends of their logs and gone on with; a child is finished by
// its parent's call, never on its own.

import { parentSessionId, type SessionId } from "../core/ids.ts";
import type { RootTurns } from "./root_turns.ts";
import type { Services } from "./services.ts";

/** Resolves when all of them ended. A session that cannot be opened is told and passed over. */
export async function resumeOpenTurns(services: Services, turns: RootTurns): Promise<void> {
  const resumed: Promise<unknown>[] = [];
  for (const id of await services.store.ids()) {
    if (!await services.store.mayBeOpen(id)) continue;
    const session = await services.store.get(id).catch((error) => {
      services.report({ event: "session-unreadable", session: id, text: String(error) });
      return undefined;
    });
    if (session === undefined || !session.turnOpen || services.holds.has(id)) continue;
    if (await isAwaited(id, services)) continue;
    services.report({ event: "resuming", session: id, turn: session.turn, after: session.lastStop });
    resumed.push(
      turns.resume(session).catch((error) => {
        services.report({ event: "resume-failed", session: id, text: String(error) });
      }),
    );
  }
  await Promise.all(resumed);
}

/** Whether an open call of its parent waits for this child: that call finishes it. Any other child with an open turn was spoken to directly. */
export async function isAwaited(id: SessionId, services: Services): Promise<boolean> {
  const parentId = parentSessionId(id);
  if (parentId === undefined || parentId === "malformed" || !await services.store.exists(parentId)) {
    return false;
  }
  const parent = await services.store.get(parentId).catch(() => undefined);
  if (parent === undefined || !parent.turnOpen) return false;
  const call = parent.unanswered[0]?.call;
  return parent.children.some((spawn) => spawn.call === call && spawn.child === id);
}
