// The end of a session's life: `retire` sets it aside so that its id begins anew, `forget` deletes its text. Its children go the same way, since
// a child's id follows from its parent's. Audit records are brokerd's and stay.

import { STATUS_CODE } from "@std/http";
import { join } from "node:path";
import { ProtocolError } from "../core/errors.ts";
import { ancestorSessionIds, isSessionId, type SessionId, sessionKind } from "../core/ids.ts";
import type { MemoryIndex } from "./memory/index.ts";
import type { Services } from "./services.ts";
import { unknownSession } from "./session/store.ts";

export interface Archive {
  retire(id: SessionId): Promise<void>;
  forget(id: SessionId): Promise<void>;
}

/** A dot can stand in no session id: an archived folder is never taken for a session. */
const retiredMark = ".retired-";
const forgottenMark = ".forgotten";

export function sessionArchive(directory: string, services: Services, index: MemoryIndex): Archive {
  const { store, holds, clock, broker } = services;

  async function family(id: SessionId): Promise<SessionId[]> {
    const ids = (await store.ids()).filter((other) => other === id || ancestorSessionIds(other).includes(id));
    const busy = ids.find((other) => holds.has(other));
    if (busy !== undefined) {
      throw new ProtocolError(
        "busy",
        STATUS_CODE.Conflict,
        `session ${busy} is in a turn; wait for it, or cancel it`,
      );
    }
    return ids;
  }

  async function archives(id: SessionId): Promise<string[]> {
    const names: string[] = [];
    for await (const { name } of Deno.readDir(directory)) {
      const [of, mark] = name.split(retiredMark);
      if (mark !== undefined && isSessionId(of) && (of === id || ancestorSessionIds(of).includes(id))) {
        names.push(name);
      }
    }
    return names;
  }

  /** Closes the session for good; what another request took away first is nobody's fault. */
  async function takeAway(id: SessionId, work: () => Promise<void>): Promise<void> {
    await store.remove(id, work).catch((error) => {
      if (error instanceof Deno.errors.NotFound) throw unknownSession(id);
      throw error;
    });
    index.forget(id);
  }

  return {
    async retire(id) {
      const ids = await family(id);
      if (!ids.includes(id)) throw unknownSession(id);
      for (const one of ids) {
        await takeAway(
          one,
          () => Deno.rename(join(directory, one), join(directory, `${one}${retiredMark}${clock.now()}`)),
        );
        broker.forgetSession(one);
      }
    },

    async forget(id) {
      const ids = await family(id);
      const kind = sessionKind(id);
      if (ids.includes(id) && (kind === "job" || kind === "heartbeat")) {
        throw new ProtocolError(
          "retire-first",
          STATUS_CODE.Conflict,
          `${id} is used again at its next time; retire it first, then forget deletes what was set aside`,
        );
      }
      const old = await archives(id);
      if (ids.length === 0 && old.length === 0) throw unknownSession(id);
      for (const one of ids) {
        await takeAway(one, async () => {
          // brokerd knows this id's calls by number for ever: an id that began again from 1 would have every call refused.
          await Deno.writeTextFile(join(directory, one + forgottenMark), "", { mode: 0o600 });
          await Deno.remove(join(directory, one), { recursive: true });
        });
      }
      for (const name of old) {
        await Deno.remove(join(directory, name), { recursive: true }).catch((error) => {
          if (!(error instanceof Deno.errors.NotFound)) throw error;
        });
      }
    },
  };
}

/** Whether this id's session was forgotten: it cannot begin again. */
export async function wasForgotten(directory: string, id: SessionId): Promise<boolean> {
  try {
    await Deno.lstat(join(directory, id + forgottenMark));
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}
