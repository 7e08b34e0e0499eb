// What `bx doctor` learns of the inference server: each fault beside the server that has none.

import { assert, assertEquals, assertMatch } from "@std/assert";
import { probeAnswerSchema, type ProbeFinding } from "../../../core/protocol/common.ts";
import { requestJson } from "../../../core/wire/client.ts";
import { probe } from "../../../loopd/probe.ts";
import { phrases } from "../../../tools/stubs/model_phrases.ts";
import { calls, type LoopdRig, says, startLoopdRig } from "../../support/loopd_rig.ts";

type Model = NonNullable<Parameters<typeof startLoopdRig>[0]["model"]>;

async function rigWith(
  options: { model?: Model; toml?: string; callsTools?: boolean } = {},
): Promise<LoopdRig> {
  const { model, toml, callsTools = true } = options;
  return await startLoopdRig({
    model,
    toml,
    script: ({ messages }) =>
      callsTools && /weather/.test(String(messages.at(-1)?.content))
        ? calls("weather", { city: "Paris" })
        : says("one two three"),
  });
}

async function probed(rig: LoopdRig): Promise<Map<string, ProbeFinding>> {
  const { httpStatus, body } = await requestJson(rig.paths.loopSocket, {
    method: "POST",
    path: "/v1/probe",
    body: {},
  });
  const { status, ...answer } = body as { status: string };
  assertEquals([httpStatus, status], [200, "ok"]);
  return new Map(probeAnswerSchema.parse(answer).findings.map((finding) => [finding.check, finding]));
}

Deno.test("doctor finds nothing wrong with a server that keeps its slots apart, and uses no slot of the owner's", async () => {
  await using rig = await rigWith();
  const findings = await probed(rig);
  assertEquals([...findings.values()].filter(({ ok }) => !ok), []);
  assertMatch(findings.get("context")!.text, /^262144 tokens a slot; a conversation is compacted at 24000$/);
  assertMatch(
    findings.get("first token")!.text,
    /^cold \d+ ms for \d{3,} tokens, warm \d+ ms \(\d{3,} tokens/,
  );
  assertMatch(findings.get("slot cache")!.text, /^outlives work on slot 1: \d{3,} tokens found again$/);
  for (const check of ["tool calls", "cancel", "broker.sock"]) assert(findings.get(check)?.ok, check);
  const slots = rig.model.requests.map(({ slot }) => slot);
  assertEquals([slots.includes(0), slots.includes(2)], [false, true]);
});

Deno.test("doctor finds nothing wrong with the practice model, which the guide has its reader ask first", async () => {
  await using rig = await startLoopdRig({ script: phrases() });
  assertEquals([...(await probed(rig)).values()].filter(({ ok }) => !ok), []);
});

Deno.test("doctor tells of a context that is full before a conversation is compacted, and how large it must be", async () => {
  await using rig = await rigWith({ model: { nCtx: 32_191 } });
  const { ok, advice } = (await probed(rig)).get("context")!;
  assertEquals(ok, false);
  assertMatch(advice ?? "", /^start the server with -c 96576 or more \(32192 for each slot/);
  await using enough = await rigWith({ model: { nCtx: 32_192 } });
  assertEquals((await probed(enough)).get("context")?.ok, true);
});

Deno.test("doctor tells of a unified cache, in which work on one slot clears another", async () => {
  await using rig = await rigWith({ model: { unifiedCache: true } });
  const { ok, text, advice } = (await probed(rig)).get("slot cache")!;
  assertEquals([ok, text], [
    false,
    "work on slot 1 cleared slot 2: its cache is unified, and idle slots are emptied",
  ]);
  assertMatch(advice ?? "", /-np 3 .*--cache-ram 0/);
});

Deno.test("doctor tells of a model that calls no tool though it is made to", async () => {
  await using rig = await rigWith({ callsTools: false });
  const { ok, advice } = (await probed(rig)).get("tool calls")!;
  assertEquals(ok, false);
  assertMatch(advice ?? "", /--jinja/);
});

Deno.test("doctor says so where the background slot is at other work for as long as it asks", async () => {
  await using rig = await rigWith();
  const { gate } = rig.loopd.services;
  const holder = await rig.newSession();
  const lease = await gate.acquire(2, {
    session: holder,
    priority: "cron",
    signal: new AbortController().signal,
  });
  const late = new AbortController();
  const probing = probe(rig.loopd.services, late.signal);
  while (!gate.view().some(({ queue }) => queue.some(({ session }) => session === "doctor"))) {
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  late.abort(new Error("no more time"));
  const findings = await probing;
  lease.release("settled");
  const trial = findings.find(({ check }) => check === "trial requests");
  assertEquals(trial?.ok, false);
  assertMatch(trial?.text ?? "", /slot 2 is at other work/);
});
