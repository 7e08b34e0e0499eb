// The spans of real turns: what nests in what, which numbers they carry, and that no text of anybody stands in them.

import { assert, assertEquals } from "@std/assert";
import { noTracer } from "../../../loopd/trace/tracer.ts";
import { calls, callsTool, type LoopdRig, says, startLoopdRig } from "../../support/loopd_rig.ts";
import { type Reply, scripted } from "../../../tools/stubs/model_script.ts";
import { contentText } from "../../../tools/stubs/model_template.ts";

interface SeenSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly kind: number;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly status: { readonly code: number };
  readonly attributes: Readonly<Record<string, string | number | boolean | undefined>>;
}

/** Stops and starts loopd, so that all spans are on disk, and reads them. */
async function spansOf(rig: LoopdRig): Promise<{ spans: SeenSpan[]; text: string }> {
  await rig.restart();
  const names = (await Array.fromAsync(Deno.readDir(rig.paths.trace))).map(({ name }) => name).sort();
  const texts = await Promise.all(names.map((name) => Deno.readTextFile(`${rig.paths.trace}/${name}`)));
  const text = texts.join("");
  // deno-lint-ignore no-explicit-any -- the shape is OTLP's
  const requests: any[] = text.trimEnd().split("\n").map((line) => JSON.parse(line));
  const spans = requests.flatMap((request) => request.resourceSpans[0].scopeSpans[0].spans).map((span) => ({
    ...span,
    attributes: Object.fromEntries(
      // deno-lint-ignore no-explicit-any -- the shape is OTLP's
      span.attributes.map(({ key, value }: any) => {
        const { stringValue, boolValue, intValue } = value;
        return [key.replace(/^boxmaker\./, ""), stringValue ?? boolValue ?? Number(intValue)];
      }),
    ),
  }));
  return { spans, text };
}

const toml = "[trace]\nenabled = true\n";
/** In every text that a person, a model or a peer writes here. */
const mark = "PLANTED";

Deno.test("a turn's span holds its requests and calls, and a child's turn stands in its parent's call, down to the grandchild", async () => {
  const steps: Record<string, Reply[]> = {
    "root asks": [callsTool("subagent", { task: "first asks" }), says("done")],
    "first asks": [callsTool("subagent", { task: "second asks" }), says("child done")],
    "second asks": [callsTool("consult", { question: "why" }), says("grandchild done")],
  };
  const scripts = new Map(Object.entries(steps).map(([said, replies]) => [said, scripted(replies)]));
  await using rig = await startLoopdRig({
    toml,
    script: (request) => {
      const said = contentText(request.messages.find(({ role }) => role === "user")!);
      const [, script] = [...scripts].find(([text]) => said.endsWith(text))!;
      return script(request);
    },
    broker: {
      answer: () => ({ status: "ok", text: "because", label: { class: "secret", untrusted: true } }),
    },
  });
  const root = await rig.newSession();
  await rig.send(root, "root asks");
  const { spans } = await spansOf(rig);
  const byId = new Map(spans.map((span) => [span.spanId, span]));
  const path = (span: SeenSpan): string => {
    const parent = span.parentSpanId === undefined ? undefined : byId.get(span.parentSpanId);
    assert(span.parentSpanId === undefined || parent !== undefined, "a span's parent is written, too");
    const { session } = span.attributes;
    return `${parent === undefined ? "" : `${path(parent)} > `}${span.name} ${session}`;
  };
  const child = `sub-${root}-1`;
  const rootCall = `turn ${root} > call ${root}`;
  const childCall = `${rootCall} > turn ${child} > call ${child}`;
  const grandchildTurn = `${childCall} > turn sub-${child}-1`;
  assertEquals(
    spans.map(path).sort(),
    [
      `turn ${root}`,
      `turn ${root} > inference ${root}`,
      `turn ${root} > inference ${root}`,
      rootCall,
      `${rootCall} > turn ${child}`,
      `${rootCall} > turn ${child} > inference ${child}`,
      `${rootCall} > turn ${child} > inference ${child}`,
      childCall,
      grandchildTurn,
      `${grandchildTurn} > inference sub-${child}-1`,
      `${grandchildTurn} > inference sub-${child}-1`,
      `${grandchildTurn} > call sub-${child}-1`,
      `${grandchildTurn} > call sub-${child}-1 > consult sub-${child}-1`,
    ].sort(),
  );
  assertEquals(new Set(spans.map(({ traceId }) => traceId)).size, 1);
  for (const span of spans) {
    assert(/^[0-9a-f]{32}$/.test(span.traceId) && /^[0-9a-f]{16}$/.test(span.spanId));
    const parent = byId.get(span.parentSpanId ?? "");
    const [start, end] = [BigInt(span.startTimeUnixNano), BigInt(span.endTimeUnixNano)];
    assert(start <= end && (parent === undefined || BigInt(parent.startTimeUnixNano) <= start), path(span));
  }
  const last = spans.findLast(({ name, attributes }) => name === "inference" && attributes.session === root)!;
  const usage = (await rig.log(root)).findLast((record) => record.kind === "assistant");
  assert(usage?.kind === "assistant");
  const { slot, purpose, cache_n, prompt_n, predicted_n, status } = last.attributes;
  assertEquals([slot, purpose, status], [0, "turn", "ok"]);
  assertEquals({ cacheN: cache_n, promptN: prompt_n, predictedN: predicted_n }, usage.timings);
  const consult = spans.find(({ name }) => name === "consult")!;
  assertEquals([consult.kind, consult.attributes.tool, consult.attributes["label.class"]], [
    3,
    "consult",
    "secret",
  ]);
  const turn = spans.find(({ name, attributes }) => name === "turn" && attributes.session === root)!;
  assertEquals([turn.attributes["label.class"], turn.attributes["label.untrusted"]], ["secret", true]);
});

Deno.test("no text of the owner, the model, a tool, brokerd or the server stands in any span, not even as the name of a tool or a code", async () => {
  const said = (more: string) => `${mark}_${more}`;
  const replies: Reply[] = [
    { thinking: said("thought"), toolCalls: [{ name: said("tool"), arguments: { text: said("argument") } }] },
    {
      content: said("aside"),
      toolCalls: [{ name: "call_tool", arguments: { name: said("inner"), arguments: {} } }],
    },
    calls("memory", { action: "add", target: "notes", text: said("note") }),
    calls("memory", { action: said("action"), target: "notes", text: "x" }),
    callsTool("consult", { question: said("question") }),
    callsTool("subagent", { task: said("task") }),
    says(said("child's end")),
    says(said("end")),
    { fault: { kind: "error-event", message: said("server fault") } },
  ];
  await using rig = await startLoopdRig({
    toml,
    script: scripted(replies),
    broker: {
      answer: () => ({ status: "error", code: `${mark} code`, text: said("answer") }),
    },
  });
  const session = await rig.newSession();
  assertEquals((await rig.send(session, said("message"))).status, "completed");
  assertEquals((await rig.send(session, said("again"))).status, "failed");
  const log = JSON.stringify(await rig.log(session));
  for (const part of ["message", "inner", "argument", "question", "answer"]) {
    assert(log.includes(`${mark}_${part}`));
  }
  const { spans, text } = await spansOf(rig);
  assertEquals(text.includes(mark), false);
  assertEquals(
    spans.filter(({ name }) => name === "call").map(({ attributes }) => [attributes.tool, attributes.code]),
    [
      ["other", "unknown-tool"],
      ["other", "unknown-tool"],
      ["memory", undefined],
      ["memory", "invalid-arguments"],
      ["consult", "other"],
      ["subagent", undefined],
    ],
  );
  const failed = spans.findLast(({ name }) => name === "inference")!;
  assertEquals([failed.status.code, failed.attributes.reason], [2, "model-error"]);
  const turn = spans.findLast(({ name }) => name === "turn")!;
  assertEquals([turn.status.code, turn.attributes.status, turn.attributes.reason], [
    2,
    "failed",
    "model-error",
  ]);
});

Deno.test("a turn that a restart cut has one span in all, from its first moment on, and its parts stand in it", async () => {
  const gate = Promise.withResolvers<void>();
  const arrived = Promise.withResolvers<void>();
  await using rig = await startLoopdRig({
    toml,
    script: scripted([
      calls("clock", {}),
      () => {
        arrived.resolve();
        return { content: "too late", hold: gate.promise };
      },
      says("done"),
    ]),
  });
  const session = await rig.newSession();
  const cut = rig.send(session, "go on").catch(() => {});
  await arrived.promise;
  const restarting = rig.restart();
  gate.resolve();
  await Promise.all([restarting, cut]);
  await rig.loopd.resumed;
  const { spans } = await spansOf(rig);
  const turns = spans.filter(({ name }) => name === "turn");
  assertEquals(turns.length, 1);
  const [user] = (await rig.log(session)).filter(({ kind }) => kind === "user");
  assertEquals(turns[0].startTimeUnixNano, `${Date.parse(user.time)}000000`);
  assertEquals(
    spans.filter(({ name }) => name !== "turn").map(({ name, parentSpanId }) => [name, parentSpanId]),
    [
      ["inference", turns[0].spanId],
      ["call", turns[0].spanId],
      ["inference", turns[0].spanId],
    ],
  );
});

Deno.test("without [trace] nothing is written, and with enabled = false, too", async () => {
  for (const more of ["", "[trace]\nenabled = false\n"]) {
    await using rig = await startLoopdRig({ toml: more, script: scripted([says("hello")]) });
    assertEquals(rig.loopd.services.tracer, noTracer);
    await rig.send(await rig.newSession(), "hi");
    await rig.restart();
    assertEquals(await Deno.stat(rig.paths.trace).then(() => "there", () => "absent"), "absent");
  }
});
