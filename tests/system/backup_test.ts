// Backups taken while the real roles work, at the two worst moments: a child in the middle of its turn, and a consult on its way. Each is
// restored to a home of its own, where the roles take up what was open.

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { verifyAudit } from "../../core/audit/verify.ts";
import { readAudit } from "../../core/audit/read.ts";
import { type HomePaths, homePaths } from "../../core/home.ts";
import { isSessionId, type SessionId } from "../../core/ids.ts";
import type { TurnOutcome } from "../../core/protocol/loop.ts";
import { requestEvents } from "../../core/wire/client.ts";
import { readSessionLog, sessionLogPath } from "../../loopd/session/log.ts";
import { makePrivateHome } from "../../tools/demo/private_home.ts";
import { startRoles } from "../../tools/demo/running_roles.ts";
import { ownEnvironment } from "../../tools/launch/environment.ts";
import { bxArguments } from "../../tools/launch/command.ts";
import { ownRoot } from "../../tools/launch/root.ts";
import { startConsultEndpoint } from "../../tools/stubs/consult_endpoint.ts";
import { startModelStub } from "../../tools/stubs/model.ts";
import { phrases } from "../../tools/stubs/model_phrases.ts";
import { contentText } from "../../tools/stubs/model_template.ts";

const own = ownEnvironment();
const duringChild = "the child's turn is copied here";
const duringConsult = "this question is copied on its way";
const chats = ["chat-a", "chat-b", "chat-c"] as const;

async function bx(...words: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: bxArguments(words, { root: ownRoot, own }),
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).output();
  return { code, stdout: new TextDecoder().decode(stdout), stderr: new TextDecoder().decode(stderr) };
}

async function send(paths: HomePaths, session: string, text: string): Promise<TurnOutcome> {
  const path = `/v1/sessions/${session}/turns`;
  for await (
    const { event, data } of requestEvents(paths.loopSocket, { method: "POST", path, body: { text } })
  ) {
    if (event === "done") return data as TurnOutcome;
  }
  throw new Error("the stream ended without done");
}

async function logs(paths: HomePaths) {
  const ids = (await Array.fromAsync(Deno.readDir(paths.sessions))).map(({ name }) => name).filter(
    isSessionId,
  );
  return await Promise.all(
    ids.sort().map(async (id) => ({ id, records: await readSessionLog(sessionLogPath(paths.sessions, id)) })),
  );
}

/** Resolves when no session has an open turn. */
async function allEnded(paths: HomePaths): Promise<void> {
  for (const { id, records } of await logs(paths)) {
    const turns = records.filter(({ kind }) => kind === "user").length;
    if (records.filter(({ kind }) => kind === "end").length === turns) continue;
    let ended = 0;
    const path = `/v1/sessions/${id}/log?follow=1`;
    for await (const { data } of requestEvents(paths.loopSocket, { method: "GET", path })) {
      if ((data as { kind: string }).kind === "end" && ++ended === turns) break;
    }
  }
}

async function intentsOf(paths: HomePaths): Promise<string[]> {
  const bodies: string[] = [];
  for await (const line of readAudit(paths.audit, {})) {
    if ("record" in line && line.record.kind === "intent") bodies.push(String(line.record.body));
  }
  return bodies;
}

Deno.test("B1 B8 a backup of a home under load restores to one whose audit verifies, whose open turns end, and whose sessions go on", async () => {
  const outside = await Deno.realPath(await Deno.makeTempDir({ prefix: "bx-b-" }));
  const backups = new Map<string, Promise<Awaited<ReturnType<typeof bx>>>>();
  let source: HomePaths | undefined;
  /** The roles wait for the model or the endpoint meanwhile; the other sessions go on. */
  const backUpAs = async (name: string) => {
    const [paths, taken] = [source, backups.has(name)];
    if (paths === undefined || taken) return;
    const made = bx("backup", `${outside}/${name}`, "--with-secrets", "--home", paths.home);
    backups.set(name, made);
    await made;
  };
  await using model = await startModelStub({
    strictPairing: true,
    script: async (request) => {
      const said = contentText(request.messages.findLast(({ role }) => role === "user")!);
      const isChild = request.slot === 2;
      return {
        ...await phrases()(request),
        ...(isChild && said.includes(duringChild) ? { hold: backUpAs("child") } : {}),
      };
    },
  });
  await using cloud = await startConsultEndpoint({
    behaviour: async ({ content }) => {
      if (new TextDecoder().decode(content).includes(duringConsult)) await backUpAs("consult");
      return { kind: "answer", content: "The answer is yes." };
    },
  });
  try {
    await using home = await makePrivateHome({
      loopdToml: `[inference]\nurl = "${model.url}"\n`,
      brokerdToml: `[consult]\nurl = "${cloud.url}"\nmodel = "practice-cloud"\nsecret = "consult"\n`,
      grantsToml: `[[grant]]\ntool = "consult"\nmax_taint = "private"\nallow_untrusted = true\n`,
      secrets: { consult: "practice-key" },
    }, { prefix: "bx-" });
    await using _roles = await startRoles(home.paths, { own, signal: new AbortController().signal });
    source = home.paths;
    let done = false;
    const load = Promise.all(
      chats.slice(1).map(async (chat, at) => {
        for (let turn = 1; !done; turn++) {
          const text = turn % 2 === 0
            ? `ask the cloud: ${chat} ${turn}`
            : `delegate: remember ${chat} ${turn}`;
          assertEquals(
            (await send(home.paths, chat, text)).status,
            "completed",
            `turn ${turn} of load ${at}`,
          );
        }
      }),
    );
    for (const text of [`delegate: ask the cloud: ${duringChild}`, `ask the cloud: ${duringConsult}`]) {
      assertEquals((await send(home.paths, "chat-a", text)).status, "completed");
    }
    done = true;
    await load;
    source = undefined;
  } finally {
    // The home is gone, and its roles: what follows stands on the backups alone.
    source = undefined;
  }
  try {
    for (const [name, made] of backups) {
      const { code, stdout, stderr } = await made;
      assertEquals([code, stderr], [0, ""]);
      assertStringIncludes(stdout, "audit   Sound: ");
      const paths = homePaths(`${outside}/home-${name}`);
      const restored = await bx("restore", `${outside}/${name}`, "--home", paths.home);
      assertEquals([restored.code, restored.stderr], [0, ""]);
      assertStringIncludes(restored.stdout, "audit   Sound: ");

      const open = (await logs(paths)).filter(({ records }) => records.at(-1)?.kind !== "end").map(({ id }) =>
        id
      );
      assert(open.includes("chat-a" as SessionId), `${name}: ${open}`);
      const sentBefore = await intentsOf(paths);
      const arrivedBefore = cloud.requests.length;
      {
        await using _roles = await startRoles(paths, { own, signal: new AbortController().signal });
        await allEnded(paths);
        for (const chat of chats) {
          const { status, content } = await send(paths, chat, "what time is it");
          assertEquals([status, content.includes("clock answered")], ["completed", true], `${name} ${chat}`);
          const asked = await send(paths, chat, `ask the cloud: ${chat} in ${name}`);
          assertStringIncludes(asked.content, "consult answered");
        }
        assertEquals((await bx("audit", "verify", "--home", paths.home)).code, 0);
      }
      const arrived = cloud.requests.slice(arrivedBefore).map(({ content }) =>
        new TextDecoder().decode(content)
      );
      assertEquals(
        arrived.filter((body) => sentBefore.includes(body)),
        [],
        "a consult of the backup was sent again",
      );
      const interrupted = (await readSessionLog(sessionLogPath(paths.sessions, "chat-a" as SessionId)))
        .flatMap((record) => record.kind === "result" && record.code !== undefined ? [record.code] : []);
      assertEquals(interrupted, name === "consult" ? ["consult-unknown"] : []);
      for (const { id, records } of await logs(paths)) {
        const calls = records.flatMap((record) => record.kind === "assistant" ? record.calls : []);
        const results = records.flatMap((record) => record.kind === "result" ? [record.call] : []);
        assertEquals(results, calls.map(({ call }) => call), `${id}: one result for each call, in order`);
        assertEquals(records.at(-1)?.kind, "end", id);
      }
      assertEquals((await verifyAudit(paths.audit)).exit, 0);
    }
    assertEquals([...backups.keys()].sort(), ["child", "consult"]);
  } finally {
    await Deno.remove(outside, { recursive: true });
  }
});
