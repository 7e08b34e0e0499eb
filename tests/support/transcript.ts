// What tests read out of a run: the tool results in a session's log, the messages of a recorded request, the words of a memory file.
// It only looks; what is right about them the tests say.

import { assert, assertEquals } from "@std/assert";
import type { RecordOf, SessionRecord } from "../../loopd/session/record.ts";
import type { ModelRequest } from "../../tools/stubs/model_requests.ts";

/** The records of one kind, in order. */
export function recordsOf<K extends SessionRecord["kind"]>(
  log: readonly SessionRecord[],
  kind: K,
): RecordOf<K>[] {
  return log.filter((record): record is RecordOf<K> => record.kind === kind);
}

/** The tool results of a session, in order. */
export function resultsOf(log: readonly SessionRecord[]): RecordOf<"result">[] {
  return recordsOf(log, "result");
}

/** The texts of a request's messages of one role, in order. */
export function textsOf(request: ModelRequest, role: string): string[] {
  return request.messages.filter((message) => message.role === role).map(({ content }) => String(content));
}

/** `later` carries every message of `earlier`, unchanged and first; returns what came after them. */
export function assertExtends(later: ModelRequest, earlier: ModelRequest): ModelRequest["messages"] {
  assertEquals(later.messages.slice(0, earlier.messages.length), earlier.messages);
  assertEquals(JSON.stringify(later.tools), JSON.stringify(earlier.tools));
  assert(later.messages.length > earlier.messages.length, "a later request has more messages");
  return later.messages.slice(earlier.messages.length);
}

/** What the law of the prefix promises for the next request on the same slot: all but the last sampled token (facts 2.1). */
export function lawfulCacheN({ cacheN, promptN, predictedN }: ModelRequest): number {
  return cacheN + promptN + predictedN - 1;
}

/** The file's text; empty where there is none. */
export async function textOf(path: string): Promise<string> {
  try {
    return await Deno.readTextFile(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return "";
    throw error;
  }
}

/** Names in a directory, sorted. */
export async function namesIn(directory: string): Promise<string[]> {
  return (await Array.fromAsync(Deno.readDir(directory))).map(({ name }) => name).sort();
}
