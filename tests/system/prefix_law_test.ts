// The law of the prefix (facts 2.1) with everything at work at once: whatever runs on the other slots, and whatever befalls the session,
// each request of a live session finds all of the one before it cached but the last sampled token. `deno task bench --real` shows the same
// on a real server.

import { assert, assertEquals, assertGreater } from "@std/assert";
import { requestEvents, requestJson } from "../../core/wire/client.ts";
import type { SessionId } from "../../core/ids.ts";
import { readSessionLog, sessionLogPath } from "../../loopd/session/log.ts";
import { makePrivateHome } from "../../tools/demo/private_home.ts";
import { startRoles } from "../../tools/demo/running_roles.ts";
import { keepBusy } from "../../tools/device_check/busy_slot.ts";
import { ownEnvironment } from "../../tools/launch/environment.ts";
import { startModelStub } from "../../tools/stubs/model.ts";
import type { ModelRequest } from "../../tools/stubs/model_requests.ts";
import type { Reply, ScriptRequest } from "../../tools/stubs/model_script.ts";
import { callsTool, says, startLoopdRig } from "../support/loopd_rig.ts";
import { shiftedClock } from "../support/shifted_clock.ts";
import { assertExtends, lawfulCacheN, recordsOf } from "../support/transcript.ts";

const turns = 20;

/** Tokens of each request that were computed again beyond the law. */
function lostOf(requests: readonly ModelRequest[]): number[] {
  return requests.slice(1).map((request, at) => lawfulCacheN(requests[at]) - request.cacheN);
}

Deno.test("F14 F15 raw history: twenty turns, a child, an approval, a denial, a restart and midnight lose not one token of the prefix", async () => {
  const clock = shiftedClock(Date.UTC(2026, 11, 31, 23, 40));
  const asked: string[] = [];
  await using rig = await startLoopdRig({
    clock,
    model: { strictPairing: false },
    broker: {
      answer: ({ arguments: { question } }) => {
        asked.push(String(question));
        return question === "allowed?"
          ? { status: "ok", text: "four", label: { class: "private", untrusted: true } }
          : { status: "denied", code: "ApprovalDenied", text: "denied: ApprovalDenied: the owner said no" };
      },
    },
    script: ({ slot, messages }) => {
      if (slot === 2) return { content: "the child's answer", thinking: "short" };
      const last = messages.at(-1);
      if (last?.role === "tool") return { content: "so it is — é 😀 \u2028", thinking: "noted" };
      switch (last?.content) {
        case "turn 3":
          // Spaces that no template would write: only the model's own text keeps them.
          return { toolCalls: [{ name: "clock", arguments: "{   }" }] };
        case "turn 5":
          return callsTool("subagent", { task: "work" });
        case "turn 8":
          return callsTool("consult", { question: "allowed?" });
        case "turn 11":
          return callsTool("consult", { question: "denied?" });
        default:
          return { content: `answer to ${last?.content}`, thinking: "hm" };
      }
    },
  });
  const session = await rig.newSession();
  for (let turn = 1; turn <= turns; turn++) {
    clock.set(clock.now() + 120_000);
    if (turn === 14) await rig.restart();
    assertEquals((await rig.send(session, `turn ${turn}`)).status, "completed", `turn ${turn}`);
  }
  assertEquals(new Date(clock.now()).getUTCFullYear(), 2027, "midnight has passed");
  assertEquals(asked, ["allowed?", "denied?"]);

  const main = rig.model.requests.filter(({ slot }) => slot === 0);
  assertEquals(main.length, turns + 4);
  assertGreater(rig.model.requests.filter(({ slot }) => slot === 2).length, 0);
  for (const [at, request] of main.entries()) if (at > 0) assertExtends(request, main[at - 1]);
  assertEquals(lostOf(main), main.slice(1).map(() => 0));
  const log = await rig.log(session);
  assertEquals(recordsOf(log, "history").map(({ mode }) => mode), ["raw"]);
  assertEquals(recordsOf(log, "assistant").map(({ lostN }) => lostN), main.map(() => 0));
});

for (const history of ["raw", "structured"] as const) {
  Deno.test(
    `F15 ${history} history on real roles: with slot 1 busy, a heartbeat and nested children on slot 2, twenty turns with calls ${
      history === "raw" ? "lose nothing" : "lose at most the last generation"
    }`,
    async () => {
      const never = Promise.withResolvers<void>();
      await using model = await startModelStub({
        strictPairing: history === "structured",
        script: (request) =>
          request.slot === 1 ? { content: "counting", hold: never.promise } : speak(request),
      });
      const stopped = new AbortController();
      await using busy = await keepBusy({ url: model.url, bearer: undefined }, 1, stopped.signal);
      await using home = await makePrivateHome({
        loopdToml: `[inference]\nurl = "${model.url}"\nhistory = "${history}"\n` +
          `[heartbeat]\nevery_minutes = 0.005\nprompt = "look around"\n`,
        brokerdToml: "",
        grantsToml: "",
        secrets: {},
      }, { prefix: "bx-law-" });
      let session: SessionId;
      {
        await using _roles = await startRoles(home.paths, { own: ownEnvironment(), signal: stopped.signal });
        const { body } = await requestJson(home.paths.loopSocket, {
          method: "POST",
          path: "/v1/sessions",
          body: {},
        });
        session = (body as { session: SessionId }).session;
        await model.waitFor(({ slot }) => slot === 2);
        for (let turn = 1; turn <= turns / 2; turn++) await send(home.paths.loopSocket, session, turn);
      }
      // Both roles have ended and are started anew: the rest of the conversation finds its slot as it was.
      await using _roles = await startRoles(home.paths, { own: ownEnvironment(), signal: stopped.signal });
      for (let turn = turns / 2 + 1; turn <= turns; turn++) await send(home.paths.loopSocket, session, turn);

      const main = model.requests.filter(({ slot }) => slot === 0);
      const background = model.requests.filter(({ slot }) => slot === 2);
      const task = (request: ModelRequest) =>
        String(request.messages.find(({ role }) => role === "user")?.content).split("\n").at(-1);
      for (const wanted of ["look around", "outer", "inner"]) {
        assert(background.some((request) => task(request) === wanted), `${wanted} ran on slot 2`);
      }
      assertEquals(main.length, 3 * turns);
      assertEquals([model.collisions, busy.restarts], [0, 0]);
      for (const [at, request] of main.entries()) if (at > 0) assertExtends(request, main[at - 1]);
      const lost = lostOf(main);
      if (history === "raw") assertEquals(lost, main.slice(1).map(() => 0));
      else {
        for (const [at, tokens] of lost.entries()) {
          assert(tokens <= main[at].predictedN, `request ${at + 2} lost ${tokens}`);
        }
        assert(lost.some((tokens) => tokens > 0), "the calls' own spacing is what a template changes");
      }
      const log = await readSessionLog(sessionLogPath(home.paths.sessions, session));
      assertEquals(recordsOf(log, "assistant").map(({ lostN }) => lostN), [
        0,
        ...lost.map((one) => Math.max(0, one)),
      ]);
    },
  );
}

async function send(socket: string, session: string, turn: number): Promise<void> {
  const path = `/v1/sessions/${session}/turns`;
  for await (
    const { event, data } of requestEvents(socket, { method: "POST", path, body: { text: `turn ${turn}` } })
  ) {
    if (event === "done") {
      return assertEquals((data as { status: string }).status, "completed", `turn ${turn}`);
    }
  }
  throw new Error("the stream ended without a done event");
}

/** A root asks for the time, then for a child that asks for a child; each answers in its own words. */
function speak({ messages }: ScriptRequest): Reply {
  const at = messages.findLastIndex(({ role }) => role === "user");
  const asked = String(messages[at].content);
  const results = messages.slice(at).filter(({ role }) => role === "tool").length;
  if (asked.endsWith("inner")) return says("inner is done");
  if (asked.endsWith("look around")) return says("all is quiet");
  if (asked.endsWith("outer")) {
    return results === 0 ? callsTool("subagent", { task: "inner" }) : says("outer is done");
  }
  const spaced: Reply = { toolCalls: [{ name: "clock", arguments: "{  }" }], thinking: "when?" };
  return [spaced, callsTool("subagent", { task: "outer" })][results] ??
    { content: `done: ${asked}`, thinking: "so" };
}
