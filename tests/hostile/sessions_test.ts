// Session directories that are not what their names say, and many callers at once on the sessions' store: refused to whoever asks, or
// served, and loopd lives. Each of these once ended the role.

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { requestJson } from "../../core/wire/client.ts";
import { says, startLoopdRig } from "../support/loopd_rig.ts";

/** More than loopd keeps open at once. */
const sessionsWanted = 40;

Deno.test("B1 a session's directory that was copied or renamed by hand is refused by name, and the others are served", async () => {
  await using rig = await startLoopdRig({ script: () => says("Hello.") });
  assertEquals((await rig.send("chat-a", "hi")).status, "completed");
  const { sessions } = rig.paths;
  await Deno.mkdir(`${sessions}/chat-copy`, { mode: 0o700 });
  await Deno.copyFile(`${sessions}/chat-a/log.jsonl`, `${sessions}/chat-copy/log.jsonl`);
  const before = await Deno.readTextFile(`${sessions}/chat-copy/log.jsonl`);
  const turn = await requestJson(rig.paths.loopSocket, {
    method: "POST",
    path: "/v1/sessions/chat-copy/turns",
    body: { text: "hi" },
  });
  assertEquals(turn.httpStatus, 409);
  const { code, text } = turn.body as { code: string; text: string };
  assertEquals(code, "other-session");
  assertStringIncludes(text, "sessions/chat-copy is that of chat-a");
  const list = await requestJson(rig.paths.loopSocket, { method: "GET", path: "/v1/sessions" });
  assertEquals((list.body as { sessions: { session: string }[] }).sessions.map(({ session }) => session), [
    "chat-a",
  ]);
  assertEquals(await Deno.readTextFile(`${sessions}/chat-copy/log.jsonl`), before);
  await rig.restart();
  assertEquals((await rig.send("chat-a", "and now?")).status, "completed");
});

Deno.test("B1 a log whose records do not follow from one another is refused by name, and the others are served", async () => {
  await using rig = await startLoopdRig({
    script: ({ messages }) =>
      messages.at(-1)?.role === "user" ? { toolCalls: [{ name: "clock", arguments: {} }] } : says("Late."),
  });
  assertEquals((await rig.send("chat-a", "What time is it?")).status, "completed");
  assertEquals((await rig.send("chat-b", "What time is it?")).status, "completed");
  await rig.restart();
  const path = `${rig.paths.sessions}/chat-b/log.jsonl`;
  const damaged = (await Deno.readTextFile(path)).replace(
    '"kind":"result","call":1',
    '"kind":"result","call":7',
  );
  await Deno.writeTextFile(path, damaged);
  const turn = await requestJson(rig.paths.loopSocket, {
    method: "POST",
    path: "/v1/sessions/chat-b/turns",
    body: { text: "hi" },
  });
  assertEquals([turn.httpStatus, (turn.body as { code: string }).code], [409, "damaged-session"]);
  assertEquals(
    (await requestJson(rig.paths.loopSocket, { method: "GET", path: "/v1/sessions" })).httpStatus,
    200,
  );
  assertEquals(await Deno.readTextFile(path), damaged);
  assertEquals((await rig.send("chat-a", "And now?")).status, "completed");
});

Deno.test("B1 lists that are asked for at once close no session twice, however many there are", async () => {
  await using rig = await startLoopdRig({ script: () => says("Hello.") });
  for (let at = 0; at < sessionsWanted; at++) await rig.newSession();
  const list = () => requestJson(rig.paths.loopSocket, { method: "GET", path: "/v1/sessions" });
  for (let round = 0; round < 3; round++) {
    for (const { httpStatus, body } of await Promise.all([list(), list(), list(), list()])) {
      assertEquals(httpStatus, 200);
      assertEquals((body as { sessions: unknown[] }).sessions.length, sessionsWanted);
    }
  }
});

Deno.test("B1 a session that never began is begun by its first message, though others look for it at the same moment", async () => {
  await using rig = await startLoopdRig({ script: () => says("Hello.") });
  for (let at = 0; at < 20; at++) {
    const id = `chat-begun-${at}`;
    await Deno.mkdir(`${rig.paths.sessions}/${id}`, { mode: 0o700 });
    await Deno.writeTextFile(`${rig.paths.sessions}/${id}/log.jsonl`, "", { mode: 0o600 });
    const look = () => requestJson(rig.paths.loopSocket, { method: "GET", path: `/v1/sessions/${id}` });
    const [, outcome, ...looks] = await Promise.all([look(), rig.send(id, "hi"), look(), look()]);
    assertEquals(outcome.status, "completed");
    for (const { httpStatus } of looks) assert(httpStatus === 200 || httpStatus === 404);
  }
});
