// What a crash can leave behind, laid out byte by byte, and loopd started on it: the turn goes on, and nothing that may have acted is done
// again. The soak (tools/soak) finds such states by killing real processes; here the ones it found are held.

import { assertEquals, assertStringIncludes } from "@std/assert";
import { timestamp } from "../../core/clock.ts";
import { loadLoopdConfig } from "../../core/config/loopd_toml.ts";
import { parseSessionId } from "../../core/ids.ts";
import type { CallState } from "../../core/protocol/broker.ts";
import { type Loopd, startLoopd } from "../../loopd/runtime.ts";
import { readSessionLog, sessionLogPath } from "../../loopd/session/log.ts";
import type { NewRecord, SessionRecord } from "../../loopd/session/record.ts";
import { startModelStub } from "../../tools/stubs/model.ts";
import type { Script } from "../../tools/stubs/model_script.ts";
import { startFakeBroker } from "../support/fake_broker.ts";
import { type FakeClock, fakeClock } from "../support/fake_clock.ts";
import { says, startLoopdRig } from "../support/loopd_rig.ts";
import { type TempHome, tempHome } from "../support/temp_home.ts";

const root = parseSessionId("chat-a");
const child = parseSessionId("sub-chat-a-1");
const label = { class: "private", untrusted: false } as const;
const timings = { cacheN: 0, promptN: 1, predictedN: 1 };

function lines(records: readonly NewRecord[]): string {
  const time = timestamp(fakeClock());
  return records.map((record, index) => JSON.stringify({ v: 1, seq: index + 1, time, ...record }) + "\n")
    .join("");
}

/** An open turn whose one call was never answered. */
function openTurn(call: { name: string; arguments: string }): NewRecord[] {
  return [
    { kind: "open", session: root, parent: null, label },
    { kind: "epoch", epoch: 1, system: "You are an agent.", tools: "[]" },
    { kind: "user", turn: 1, text: "go" },
    {
      kind: "assistant",
      turn: 1,
      content: "",
      thinking: "",
      calls: [{ call: 1, ...call }],
      slot: 0,
      timings,
      lostN: 0,
      queuedMs: 0,
      firstTokenMs: 0,
      elapsedMs: 0,
    },
  ];
}

interface Left extends AsyncDisposable {
  readonly home: TempHome;
  /** loopd on what was left, at the time of its records. */
  start(): Promise<{ loopd: Loopd; clock: FakeClock } & AsyncDisposable>;
  log(id: string): Promise<SessionRecord[]>;
}

async function left(logs: Readonly<Record<string, string>>, script: Script): Promise<Left> {
  const home = await tempHome();
  const { paths } = home;
  const model = await startModelStub({ script });
  await Deno.writeTextFile(
    paths.loopdToml,
    `[clock]\ntime_zone = "UTC"\n[inference]\nurl = "${model.url}"\n`,
  );
  for (const [id, text] of Object.entries(logs)) {
    await Deno.mkdir(`${paths.sessions}/${id}`);
    await Deno.writeTextFile(`${paths.sessions}/${id}/log.jsonl`, text);
  }
  return {
    home,
    log: (id) => readSessionLog(sessionLogPath(paths.sessions, parseSessionId(id))),
    async start() {
      const config = loadLoopdConfig(paths);
      if ("faults" in config) throw new Error(JSON.stringify(config.faults));
      const clock = fakeClock();
      const faults: unknown[] = [];
      const loopd = await startLoopd({
        paths,
        config: config.value,
        clock,
        onFatal: (error) => faults.push(error),
      });
      return {
        loopd,
        clock,
        async [Symbol.asyncDispose]() {
          await loopd.close();
          assertEquals(faults, []);
        },
      };
    },
    async [Symbol.asyncDispose]() {
      await model.close();
      await home[Symbol.asyncDispose]();
    },
  };
}

/** loopd's pause between two questions about one call (broker_client.ts). */
const askAgainMs = 500;

const consultCall = { name: "call_tool", arguments: `{"name":"consult","arguments":{"question":"why?"}}` };

for (
  const [what, state, status, text] of [
    ["was answered", { status: "ok", text: "because", label }, "ok", "because"],
    ["was never decided", { status: "unknown" }, "error", "error: interrupted"],
  ] as const satisfies readonly (readonly [string, CallState, string, string])[]
) {
  Deno.test(`F1 a consult that ${what} is asked about, not unknown, where loopd is back before brokerd`, async () => {
    await using crash = await left({ [root]: lines(openTurn(consultCall)) }, () => says("done"));
    await using role = await crash.start();
    // It has asked in vain, and waits before it asks again.
    await Promise.race([role.clock.scheduled(askAgainMs), role.loopd.resumed]);
    await using broker = await startFakeBroker(crash.home.paths.brokerSocket, { state: () => state });
    await role.clock.advance(askAgainMs);
    await role.loopd.resumed;
    const result = (await crash.log(root)).find((record) => record.kind === "result");
    assertEquals([result?.tool, result?.status], ["consult", status]);
    assertStringIncludes(result?.text ?? "", text);
    assertEquals(broker.calls, []);
  });
}

Deno.test("S8 a brokered tool that is called while brokerd is away is told as unavailable, a core tool's name as what it is", async () => {
  const asked = ["consult", "clock"];
  await using rig = await startLoopdRig({
    script: ({ messages }) => {
      const name = asked[messages.filter(({ role }) => role === "tool").length];
      if (name === undefined) return says("done");
      return { toolCalls: [{ name: "call_tool", arguments: { name, arguments: { question: "why?" } } }] };
    },
  });
  await rig.broker.close();
  await rig.restart();
  const session = await rig.newSession();
  await rig.send(session, "go");
  const results = (await rig.log(session)).filter((record) => record.kind === "result");
  assertEquals(results.map(({ tool, code }) => [tool, code]), [
    ["consult", "broker-unavailable"],
    ["clock", "unknown-tool"],
  ]);
});

const task = "count to three";
const subagentCall = {
  name: "call_tool",
  arguments: JSON.stringify({ name: "subagent", arguments: { task } }),
};
const childBegins = lines([
  { kind: "open", session: child, parent: root, label },
  { kind: "epoch", epoch: 1, system: "You are an agent.", tools: "[]" },
]);

for (
  const [what, cut] of [
    ["is empty", 0],
    ["is torn in its first record", 40],
    ["is torn in its second record", childBegins.indexOf("\n") + 40],
    ["is whole and says nothing yet", childBegins.length],
  ] as const
) {
  Deno.test(`F1 a child whose log ${what} begins after the restart, and its parent reads one result`, async () => {
    const spawned: NewRecord[] = [...openTurn(subagentCall), { kind: "spawn", call: 1, child, task }];
    await using crash = await left(
      { [root]: lines(spawned), [child]: childBegins.slice(0, cut) },
      ({ slot }) => says(slot === 2 ? "one, two, three" : "done"),
    );
    await using broker = await startFakeBroker(crash.home.paths.brokerSocket);
    await using role = await crash.start();
    await role.loopd.resumed;
    const results = (await crash.log(root)).filter((record) => record.kind === "result");
    assertEquals(results.map(({ text }) => text), [`subagent ${child} completed\none, two, three`]);
    const ofChild = await crash.log(child);
    assertEquals(ofChild.filter(({ kind }) => kind === "user" || kind === "end").length, 2);
    assertEquals(broker.calls, []);
  });
}

Deno.test("F4 a message to a session whose log never got its first record begins that session", async () => {
  await using rig = await startLoopdRig({ script: () => says("hello") });
  await Deno.mkdir(`${rig.paths.sessions}/chat-b`);
  await Deno.writeTextFile(`${rig.paths.sessions}/chat-b/log.jsonl`, `{"v":1,"seq":1,"ti`);
  assertEquals((await rig.send("chat-b", "hi")).content, "hello");
  assertEquals((await rig.log("chat-b")).map(({ kind }) => kind).slice(0, 4), [
    "repair",
    "open",
    "epoch",
    "user",
  ]);
});
