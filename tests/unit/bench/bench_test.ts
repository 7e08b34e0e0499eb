// What the bench's figures rest on: its statistics, the logs that it makes, the plots and the page that it writes.

import { assert, assertEquals, assertMatch, assertThrows } from "@std/assert";
import { verifyAudit } from "../../../core/audit/verify.ts";
import { parseSessionId } from "../../../core/ids.ts";
import { readSessionLog } from "../../../loopd/session/log.ts";
import { writeAuditLog } from "../../../tools/bench/audit_generator.ts";
import { type Figure, isMet, median, quantile, ratio, sampled } from "../../../tools/bench/bench.ts";
import { logPath, readTemplate, writeFloorLog, writeLongSession } from "../../../tools/bench/long_session.ts";
import { replaceBlock } from "../../../tools/bench/report.ts";
import { startScriptedServer } from "../../../tools/bench/scripted_server.ts";
import { clockCall, noon } from "../../../tools/bench/replies.ts";
import { plot } from "../../../tools/bench/svg.ts";
import { requestMessage } from "../../../loopd/inference/model.ts";
import { InferenceServer } from "../../../loopd/inference/server.ts";
import { systemClock } from "../../../core/clock.ts";
import { inferenceConfig } from "../../support/loopd_config.ts";
import { brokerRig } from "../../support/broker_rig.ts";
import { calls, says, startLoopdRig } from "../../support/loopd_rig.ts";
import { recordsOf } from "../../support/transcript.ts";

Deno.test("a figure is the median of its samples, and is held against its target", () => {
  assertEquals([median([3, 1, 2]), median([1]), quantile([1, 2, 3, 4], 0.95)], [2, 1, 4]);
  assertThrows(() => median([]));
  const figure = sampled("a.b", "a", [5, 1, 3], { target: { atMost: 3 } });
  assertEquals([figure.value, figure.spread?.min, isMet(figure)], [3, 1, true]);
  assertEquals(isMet(ratio("a.c", "a", { value: 4, over: 2 }, { target: { atMost: 1.9 } })), false);
  assertEquals(isMet({ ...figure, target: { atLeast: 4 } } as Figure), false);
  assertEquals(isMet({ ...figure, target: undefined }), undefined);
});

Deno.test("B8 the audit logs that the bench makes verify, over segments too, and brokerd goes on with them", async () => {
  await using rig = await brokerRig();
  await rig.stop();
  for await (const { name } of Deno.readDir(rig.paths.audit)) await Deno.remove(`${rig.paths.audit}/${name}`);
  const { segments } = await writeAuditLog(rig.paths.audit, 40_000);
  assertEquals(segments, 2);
  const { exit, text } = await verifyAudit(rig.paths.audit);
  assertEquals(exit, 0, text);
  await rig.restart();
  assertEquals(rig.denyAll, undefined);
  assertEquals(
    (await rig.call("chat-gen0", 1)).status,
    "error",
    "a call that the log decided is a duplicate",
  );
  assertEquals((await rig.call("chat-gen0", 1_000)).status, "denied");
});

Deno.test("the sessions that the bench makes are opened as they are, whole and compacted, and hold what the floor's log holds", async () => {
  await using rig = await startLoopdRig({
    script: ({ messages }) => messages.at(-1)?.role === "user" ? calls("clock", {}) : says("It is noon."),
  });
  const first = await rig.newSession();
  await rig.send(first, "What time is it?");
  const template = await readTemplate(rig.paths, first);
  for (const compacted of [false, true]) {
    const session = parseSessionId(compacted ? "chat-compacted" : "chat-whole");
    const written = await writeLongSession(rig.paths, session, { template, turns: 30, compacted });
    assertEquals((await readSessionLog(logPath(rig.paths, session))).length, written.records);
    const outcome = await rig.send(session, "And now?");
    assertEquals(outcome.status, "completed");
    const log = await rig.log(session);
    assertEquals(recordsOf(log, "repair"), []);
    assertEquals(recordsOf(log, "user").length, 31);
    const sent = rig.model.requests.at(-1)!.messages.length;
    // System, the messages, then the new user text, its call and the result.
    assert(compacted ? sent < written.messages / 2 : sent === 1 + written.messages + 3, `${sent} messages`);
  }
  const path = `${rig.paths.home}/floor.jsonl`;
  await writeFloorLog(path, { template, turns: 30 });
  assertEquals((await Deno.readTextFile(path)).trimEnd().split("\n").length, 30 * 4);
});

Deno.test("the scripted server is one that loopd reads: calls and text, raw and parsed", async () => {
  await using scripted = startScriptedServer();
  scripted.script = ({ order }) => order % 2 === 1 ? clockCall : noon;
  for (const history of ["raw", "structured"] as const) {
    const server = new InferenceServer({
      clock: systemClock,
      config: inferenceConfig(scripted.url, `history = "${history}"`),
      slots: [0, 2],
    });
    const said = [];
    for (let order = 1; order <= 2; order++) {
      const { calls, content, raw } = await requestMessage(server, {
        messagesJson: `{"role":"user","content":"x"}`,
        ...(history === "raw" ? { rawGrammar: "root ::= [a-z]*" } : {}),
        slot: 2,
        signal: new AbortController().signal,
        onLife() {},
        onContent() {},
        onThinking() {},
      }, { clock: systemClock, livenessMs: 10_000 });
      said.push({ calls, content, isRaw: raw !== undefined });
    }
    const isRaw = history === "raw";
    assertEquals(said, [
      { calls: [{ name: "clock", arguments: "{}" }], content: "", isRaw },
      { calls: [], content: "It is noon.", isRaw },
    ]);
    assertEquals(scripted.arrivals.at(-1)?.slot, 2);
    server.close();
  }
});

Deno.test("a plot is one SVG with every point, logarithmic where the values span decades", () => {
  const points = [[100, 1], [1_000, 2], [100_000, 90]] as const;
  const svg = plot({ id: "a", title: "a < b", xLabel: "x", yLabel: "y", series: [{ name: "one", points }] });
  assertMatch(svg, /^<svg [^>]*>[\s\S]*<\/svg>\n$/);
  assertEquals(svg.match(/<circle /g)?.length, 3);
  assert(svg.includes("a &lt; b") && svg.includes(">100,000<") && !svg.includes("NaN"));
});

Deno.test("a page's block is replaced between its marks, and a page without them is refused", () => {
  const page = "a\n<!-- real: begin -->\nold\n<!-- real: end -->\nb\n";
  const replaced = replaceBlock(page, "real", "new");
  assertEquals(replaced, "a\n<!-- real: begin -->\nnew\n<!-- real: end -->\nb\n");
  assertEquals(replaceBlock(replaced, "real", "new"), replaced);
  assertThrows(() => replaceBlock(page, "figures", "new"), RangeError, "figures");
});
