// Session logs of any length, made of a turn that loopd itself wrote: its lines again and again, with the numbers that must go on. So the form
// is always the product's own. The same conversation as the floor loop keeps it comes with it.

import { join } from "node:path";
import type { HomePaths } from "../../core/home.ts";

interface LogRecord {
  seq: number;
  kind: string;
  [key: string]: unknown;
}

/** One session as loopd has it on disk: what it begins with, and its one turn with a call of `clock`. */
export interface Template {
  readonly opening: readonly LogRecord[];
  readonly turn: readonly LogRecord[];
}

export function logPath(paths: HomePaths, session: string): string {
  return join(paths.sessions, session, "log.jsonl");
}

export async function readTemplate(paths: HomePaths, session: string): Promise<Template> {
  const lines = (await Deno.readTextFile(logPath(paths, session))).trimEnd().split("\n");
  const records: LogRecord[] = lines.map((line) => JSON.parse(line));
  const first = records.findIndex(({ kind }) => kind === "user");
  // What settles the form of history stands inside the first turn, and once in a log.
  const turn = records.slice(first);
  return {
    opening: [...records.slice(0, first), ...turn.filter(({ kind }) => kind === "history")],
    turn: turn.filter(({ kind }) => kind !== "history"),
  };
}

export interface LongSession {
  readonly records: number;
  readonly messages: number;
  readonly bytes: number;
}

/** Writes `turns` turns. With `compacted`, a new epoch behind all but the last ten of them, so that little of the log is in context. */
export async function writeLongSession(
  paths: HomePaths,
  session: string,
  { template, turns, compacted = false }: { template: Template; turns: number; compacted?: boolean },
): Promise<LongSession> {
  await Deno.mkdir(join(paths.sessions, session), { mode: 0o700 });
  using file = await Deno.open(logPath(paths, session), { write: true, createNew: true, mode: 0o600 });
  let seq = 0;
  let bytes = 0;
  let messages = 0;
  let batch: string[] = [];
  const write = async (record: Record<string, unknown>) => {
    batch.push(JSON.stringify({ ...record, seq: ++seq }) + "\n");
    if (batch.length >= 10_000) await flush();
  };
  const flush = async () => {
    const text = new TextEncoder().encode(batch.join(""));
    for (let at = 0; at < text.length;) at += await file.write(text.subarray(at));
    bytes += text.length;
    batch = [];
  };
  for (const record of template.opening) {
    await write(record.kind === "open" ? { ...record, session } : record);
  }
  for (let turn = 1; turn <= turns; turn++) {
    if (compacted && turn === Math.max(2, turns - 10)) {
      const epoch = template.opening.find(({ kind }) => kind === "epoch");
      await write({ ...epoch, epoch: 2, summary: "They asked for the time, often.", coversTo: seq });
    }
    for (const record of template.turn) {
      if (record.kind !== "end") messages++;
      await write(inTurn(record, turn));
    }
  }
  await flush();
  return { records: seq, messages, bytes };
}

/** The template's turn has one call. */
function inTurn(record: LogRecord, turn: number): Record<string, unknown> {
  const changed: Record<string, unknown> = { ...record };
  if ("turn" in record) changed.turn = turn;
  if ("call" in record) changed.call = turn;
  if (Array.isArray(record.calls)) changed.calls = record.calls.map((call) => ({ ...call, call: turn }));
  return changed;
}

/** The same number of messages of the same sizes, in the floor loop's own log. */
export async function writeFloorLog(
  path: string,
  { template, turns }: { template: Template; turns: number },
): Promise<void> {
  const of = (kind: string) => template.turn.filter((record) => record.kind === kind);
  const lines = template.turn.filter(({ kind }) => kind !== "end").map((record) =>
    JSON.stringify(
      record.kind === "user"
        ? { role: "user", content: record.text }
        : record.kind === "result"
        ? { role: "tool", content: record.text }
        : { role: "assistant", content: record.raw ?? record.content },
    ) + "\n"
  );
  if (of("assistant").length === 0) throw new Error("the template turn has no model message");
  await Deno.writeTextFile(path, lines.join("").repeat(turns));
}
