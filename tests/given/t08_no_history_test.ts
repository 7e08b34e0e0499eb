// T8: a consult takes the question with it, and nothing of the conversation it was asked in.

import { assert, assertEquals } from "@std/assert";
import { callsTool, says, startLoopdRig } from "../support/loopd_rig.ts";

Deno.test("T8 C2 a session with earlier messages, thinking and tool results states only the question to brokerd", async () => {
  const question = "What is 2+2, one word.";
  await using rig = await startLoopdRig({
    script: ({ messages }) => {
      const last = messages.at(-1);
      if (last?.role === "tool") return says(`heard: ${last.content}`);
      if (last?.content === "now ask") {
        return { ...callsTool("consult", { question }), thinking: "plum thinking" };
      }
      return { content: "plum answer", thinking: "plum thinking" };
    },
    broker: {
      answer: () => ({ status: "ok", text: "four", label: { class: "private", untrusted: true } }),
    },
  });
  await Deno.writeTextFile(rig.paths.notes, "a plum note of the owner's\n");
  const session = await rig.newSession();
  await rig.send(session, "the plum secret");
  await rig.send(session, "another plum message");
  const outcome = await rig.send(session, "now ask");

  assertEquals(outcome.content, "heard: four");
  assertEquals(rig.broker.calls, [{
    session,
    call: 1,
    tool: "consult",
    arguments: { question },
    label: { class: "private", untrusted: false },
  }]);
  assert(JSON.stringify(rig.model.requests.at(-1)?.messages).includes("plum"), "the model did know it");
  assert(!JSON.stringify([rig.broker.calls, rig.broker.labels]).includes("plum"));
});

Deno.test("T8 S3 C2 a child's consult states only its own question too, under its own id, after its family is known", async () => {
  await using rig = await startLoopdRig({
    script: ({ slot, messages }) => {
      const last = messages.at(-1);
      if (slot === 0) {
        return last?.role === "tool" ? says("done") : callsTool("subagent", { task: "plum task" });
      }
      return last?.role === "tool" ? says("plum summary") : callsTool("consult", { question: "2+2?" });
    },
  });
  const session = await rig.newSession();
  await rig.send(session, "the plum secret");

  assertEquals(rig.broker.calls.map(({ session, arguments: args }) => [String(session), args]), [
    [`sub-${session}-1`, { question: "2+2?" }],
  ]);
  assertEquals(rig.broker.labels.map(({ session }) => String(session)), [session, `sub-${session}-1`]);
  assert(!JSON.stringify([rig.broker.calls, rig.broker.labels]).includes("plum"));
});
