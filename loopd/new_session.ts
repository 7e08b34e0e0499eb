// Where roots come from: a new chat id, or the first message to a chat or channel that is not there yet.

import { STATUS_CODE } from "@std/http";
import { ProtocolError } from "../core/errors.ts";
import { parseSessionId, type SessionId, sessionKind } from "../core/ids.ts";
import { wasForgotten } from "./archive.ts";
import { isAwaited } from "./recovery.ts";
import type { Services } from "./services.ts";
import type { Session } from "./session/session.ts";
import { unknownSession } from "./session/store.ts";

const idCharacters = "abcdefghijkmnpqrstuvwxyz23456789";
const idLength = 8;

/** `chat-` and eight characters that are hard to confuse. */
export function newChatId(): SessionId {
  const bytes = crypto.getRandomValues(new Uint8Array(idLength));
  return parseSessionId(
    "chat-" + [...bytes].map((byte) => idCharacters[byte % idCharacters.length]).join(""),
  );
}

/**
 * The session that a message goes to. A chat or a channel begins with its first message; a child, a job and the heartbeat are begun by
 * loopd alone, so an id of those kinds that is not there is an error.
 */
export async function openOrCreate(id: SessionId, services: Services, directory: string): Promise<Session> {
  if (await services.store.exists(id)) {
    // After a start the parent may not have come to its open call yet: its child is held all the same (S17).
    if (await isAwaited(id, services)) {
      throw new ProtocolError(
        "busy",
        STATUS_CODE.Conflict,
        `session ${id} works for its parent; wait for it, or cancel it`,
      );
    }
    return await existing(id, services);
  }
  if (await wasForgotten(directory, id)) {
    throw new ProtocolError(
      "forgotten",
      STATUS_CODE.NotFound,
      `session ${id} was forgotten; its id is not used again`,
    );
  }
  const kind = sessionKind(id);
  if (kind !== "chat" && kind !== "mm") {
    throw unknownSession(
      id,
      `no session is named ${id}; a new one is named chat-… or mm-…, or made with bx new`,
    );
  }
  return await services.store.create(id, { class: services.config.session.class, untrusted: false })
    .catch((error) => {
      // Another message to it was first.
      if (error instanceof Deno.errors.AlreadyExists) return existing(id, services);
      throw error;
    });
}

function existing(id: SessionId, services: Services): Promise<Session> {
  return services.store.get(id).catch((error) => {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    throw unknownSession(id, `session ${id} was retired or forgotten meanwhile`);
  });
}
