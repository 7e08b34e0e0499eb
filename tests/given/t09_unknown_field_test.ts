// T9: a field that a tool does not know is refused, never dropped. loopd answers for subagent itself; for consult brokerd does, so what
// counts here is that the field reaches brokerd as the model wrote it, and that the refusal reaches the model.

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import type { CallAnswer, CallRequest } from "../../core/protocol/broker.ts";
import { callsTool, says, startLoopdRig } from "../support/loopd_rig.ts";
import { namesIn, resultsOf, textsOf } from "../support/transcript.ts";

/** As brokerd does: one string named question, and nothing else. */
function strictAboutQuestion(call: CallRequest): CallAnswer {
  return Object.keys(call.arguments).join() === "question"
    ? { status: "ok", text: "four", label: { class: "private", untrusted: true } }
    : { status: "error", code: "invalid-arguments", text: 'unknown key "model"; its arguments are question' };
}

async function callOnce(tool: string, args: Record<string, unknown>) {
  const rig = await startLoopdRig({
    script: ({ slot, messages }) => {
      if (slot === 2) return says("child's answer");
      return messages.at(-1)?.role === "tool" ? says("done") : callsTool(tool, args);
    },
    broker: { answer: strictAboutQuestion },
  });
  const session = await rig.newSession();
  const outcome = await rig.send(session, "go");
  return { rig, session, outcome };
}

for (
  const [shown, args] of [
    ["an unknown field beside the task", { task: "work", slot: 0 }],
    ["a field in another case", { Task: "work" }],
    ["a task that is no text", { task: 7 }],
    ["an empty task", { task: "" }],
    ["no task", {}],
  ] as const
) {
  Deno.test(`T9 S5 subagent with ${shown} is invalid-arguments, names task, and spawns nothing`, async () => {
    const { rig, session, outcome } = await callOnce("subagent", args);
    await using _ = rig;
    assertEquals(outcome.calls, [{ call: 1, tool: "subagent", status: "error", code: "invalid-arguments" }]);
    const [{ text }] = resultsOf(await rig.log(session));
    assert(text.startsWith("error: invalid-arguments: subagent: "), text);
    assertStringIncludes(text, "its arguments are task");
    assertEquals(await namesIn(rig.paths.sessions), [session]);
    assertEquals(textsOf(rig.model.requests[1], "tool"), [text]);
  });
}

Deno.test("T9 S5 the name of the unknown field is told, so that the model can leave it out", async () => {
  const { rig, session } = await callOnce("subagent", { task: "work", slot: 0 });
  await using _ = rig;
  assertStringIncludes(resultsOf(await rig.log(session))[0].text, 'unknown key "slot"');
});

Deno.test("T9 S5 subagent with the task alone is accepted", async () => {
  const { rig, outcome } = await callOnce("subagent", { task: "work" });
  await using _ = rig;
  assertEquals(outcome.calls, [{ call: 1, tool: "subagent", status: "ok" }]);
});

Deno.test("T9 C1 consult with an unknown field reaches brokerd with it, and its invalid-arguments reaches the model", async () => {
  const { rig, session, outcome } = await callOnce("consult", { question: "2+2?", model: "another" });
  await using _ = rig;
  assertEquals(rig.broker.calls.map((call) => call.arguments), [{ question: "2+2?", model: "another" }]);
  assertEquals(outcome.calls, [{ call: 1, tool: "consult", status: "error", code: "invalid-arguments" }]);
  const [{ text, label }] = resultsOf(await rig.log(session));
  assertEquals(text, 'error: invalid-arguments: unknown key "model"; its arguments are question');
  assertEquals(label, { class: "public", untrusted: false });
  assertEquals(textsOf(rig.model.requests[1], "tool"), [text]);
});

Deno.test("T9 C1 consult with the question alone is answered", async () => {
  const { rig, outcome } = await callOnce("consult", { question: "2+2?" });
  await using _ = rig;
  assertEquals(outcome.calls, [{ call: 1, tool: "consult", status: "ok" }]);
  assertEquals(outcome.label, { class: "private", untrusted: true });
});

Deno.test("T9 S4 an unknown field of call_tool itself is invalid-arguments, and nothing is run", async () => {
  await using rig = await startLoopdRig({
    script: ({ messages }) =>
      messages.at(-1)?.role === "tool" ? says("done") : {
        toolCalls: [{
          name: "call_tool",
          arguments: { name: "consult", arguments: { question: "2+2?" }, session: "chat-other" },
        }],
      },
  });
  const session = await rig.newSession();
  const outcome = await rig.send(session, "go");
  assertEquals(outcome.calls, [{ call: 1, tool: "call_tool", status: "error", code: "invalid-arguments" }]);
  assertStringIncludes(resultsOf(await rig.log(session))[0].text, 'unknown key "session"');
  assertEquals(rig.broker.calls, []);
});
