// Lists of sessions and pages of their logs: newest first, bounded, and the same as what a session itself says, without opening any.

import { assert, assertEquals } from "@std/assert";
import { parseSessionId, type SessionId } from "../../../core/ids.ts";
import {
  logPageAnswerSchema,
  sessionListAnswerSchema,
  type SessionListRow,
  type SessionRow,
} from "../../../core/protocol/loop.ts";
import { requestJson } from "../../../core/wire/client.ts";
import { sessionLogPath } from "../../../loopd/session/log.ts";
import { SessionSummary } from "../../../loopd/session/summary.ts";
import { callsTool, type LoopdRig, says, startLoopdRig } from "../../support/loopd_rig.ts";

async function get(
  rig: LoopdRig,
  path: string,
): Promise<{ httpStatus: number; body: Record<string, unknown> }> {
  const { httpStatus, body } = await requestJson(rig.paths.loopSocket, { method: "GET", path });
  const { status: _, ...answer } = body as Record<string, unknown>;
  return { httpStatus, body: answer };
}

async function page(rig: LoopdRig, query: string) {
  return sessionListAnswerSchema.parse((await get(rig, `/v1/sessions?${query}`)).body);
}

const ids = (rows: readonly { session: SessionId }[]) => rows.map(({ session }) => session);

function startRig(): Promise<LoopdRig> {
  return startLoopdRig({
    script: ({ slot, messages }) => {
      if (slot === 2) return says("counted");
      return messages.at(-1)?.role === "tool" || JSON.stringify(messages.at(-1)).includes("plain")
        ? says("done")
        : callsTool("subagent", { task: "count to three" });
    },
  });
}

function summaryOf(row: SessionRow | SessionListRow) {
  if (!("summary" in row)) return row;
  assert(row.summary !== null);
  return row.summary;
}

/** What a row of either list says of the same session. */
function common(row: SessionRow | SessionListRow) {
  const { session, parent, kind, status, slot } = row;
  const { label, turns, cachedShare, usage } = summaryOf(row);
  return { session, parent, kind, status, slot, label, turns, cachedShare, usage };
}

Deno.test("B11 a page of the list says of each session what the plain list says, newest first, with its title and children", async () => {
  await using rig = await startRig();
  const first = await rig.newSession("public");
  await rig.send(first, "have it counted");
  const second = await rig.newSession();
  await rig.send(second, "a plain word");
  const { sessions: plain } = (await get(rig, "/v1/sessions")).body as { sessions: SessionRow[] };
  for (const restarted of [false, true]) {
    if (restarted) await rig.restart();
    const { sessions, after } = await page(rig, "limit=10");
    assertEquals([ids(sessions), after], [[second, first, `sub-${first}-1` as SessionId], undefined]);
    assertEquals(
      sessions.map(common).sort((a, b) => a.session < b.session ? -1 : 1),
      plain.map(common).sort((a, b) => a.session < b.session ? -1 : 1),
    );
    assertEquals(sessions.map(({ title, children }) => ({ title, children })), [
      { title: "a plain word", children: 0 },
      { title: "have it counted", children: 1 },
      { title: "count to three", children: 0 },
    ]);
    assertEquals(ids((await page(rig, "parent=")).sessions), [second, first]);
    assertEquals((await page(rig, `session=${first}`)).sessions, [sessions[1]]);
    assertEquals((await page(rig, "session=chat-nobody")).sessions, []);
    assertEquals(ids((await page(rig, `parent=${first}`)).sessions), [`sub-${first}-1` as SessionId]);
  }
  await rig.send(first, "another plain word");
  assertEquals(ids((await page(rig, "parent=")).sessions), [first, second]);
});

Deno.test("a list is read in pages that leave none out, and what is retired is gone from it", async () => {
  await using rig = await startRig();
  const made: SessionId[] = [];
  for (let count = 1; count <= 7; count++) made.push(await rig.newSession());
  const seen: SessionId[] = [];
  let after: SessionId | undefined;
  do {
    const found = await page(rig, `limit=3${after === undefined ? "" : `&after=${after}`}`);
    assert(found.sessions.length <= 3);
    seen.push(...ids(found.sessions));
    after = found.after;
  } while (after !== undefined);
  assertEquals(seen.toSorted(), made.toSorted());
  await requestJson(rig.paths.loopSocket, {
    method: "POST",
    path: `/v1/sessions/${made[2]}/retire`,
    body: {},
  });
  assertEquals(ids((await page(rig, "limit=10")).sessions).includes(made[2]), false);
  for (const query of ["limit=0", "limit=501", "after=Chat", "parent=Chat", "other=1"]) {
    assertEquals([query, (await get(rig, `/v1/sessions?${query}`)).httpStatus], [query, 400]);
  }
});

Deno.test("a log is read in pages from its end, and joined they are the log", async () => {
  await using rig = await startRig();
  const session = await rig.newSession();
  for (const text of ["one", "two plain", "three"]) await rig.send(session, text);
  const records = (await rig.log(session)).map(({ seq }) => seq);
  const seen: unknown[] = [];
  let before: number | undefined;
  do {
    const { body } = await get(
      rig,
      `/v1/sessions/${session}/log?limit=4${before === undefined ? "" : `&before=${before}`}`,
    );
    const found = logPageAnswerSchema.parse(body);
    assert(found.records.length <= 4);
    seen.unshift(...found.records.map(({ seq }) => seq));
    before = found.before;
  } while (before !== undefined);
  assertEquals(seen, records);
  assertEquals((await get(rig, "/v1/sessions/chat-nobody/log?limit=4")).httpStatus, 404);
  assertEquals((await get(rig, `/v1/sessions/${session}/log?limit=1001`)).httpStatus, 400);
});

Deno.test("a summary is read on piece by piece, from the beginning again when another log took its place, and never past a torn end", async () => {
  const directory = await Deno.makeTempDir();
  try {
    const id = parseSessionId("chat-a");
    const path = sessionLogPath(directory, id);
    await Deno.mkdir(`${directory}/chat-a`);
    const label = { class: "private", untrusted: false };
    const line = (seq: number, fields: Record<string, unknown>) =>
      JSON.stringify({ v: 1, seq, time: "2026-12-01T12:00:00.000Z", ...fields }) + "\n";
    const user = (seq: number, turn: number) =>
      line(seq, { kind: "user", turn, text: `${turn}`.repeat(30_000) });
    const log = [
      line(1, { kind: "open", session: id, parent: null, label }),
      line(2, { kind: "epoch", epoch: 1, system: "s", tools: "[]" }),
      ...[1, 2, 3, 4, 5, 6, 7].map((turn) => user(turn + 2, turn)),
    ].join("");
    await Deno.writeTextFile(path, log + '{"v":1,"seq":10,"torn');
    const summary = new SessionSummary(path);
    const reads = [await summary.readOn(1), await summary.readOn(0), await summary.readOn(1e6)];
    assertEquals(reads.map(({ whole }) => whole), [false, false, true]);
    assertEquals([reads[1].bytes, summary.turns, summary.title.length], [0, 7, 120]);
    await Deno.writeTextFile(`${path}.new`, log.slice(0, log.indexOf("\n", 300) + 1));
    await Deno.rename(`${path}.new`, path);
    await summary.readOn(1e6);
    assertEquals(summary.turns, 1);
  } finally {
    await Deno.remove(directory, { recursive: true });
  }
});
