// B5: an output over the cap is whole on disk, and a short form of it is made when the background slot is idle.

import { assertEquals, assertStringIncludes } from "@std/assert";
import type { SessionRecord } from "../../../loopd/session/record.ts";
import { callsTool, says, startLoopdRig } from "../../support/loopd_rig.ts";

const long = "fact 17 is here. ".repeat(200);

Deno.test("B5 B12 an output over the cap is cut for the model, whole on disk, and shortened on the background slot", async () => {
  await using rig = await startLoopdRig({
    toml: "[tools]\nresult_chars = 500",
    script: ({ messages, slot }) => {
      if (String(messages[0].content).startsWith("You shorten")) {
        assertEquals(slot, 2);
        return says("fact 17, many times");
      }
      return messages.at(-1)?.role === "user" ? callsTool("consult", { question: "q" }) : says("done");
    },
    broker: { answer: () => ({ status: "ok", text: long, label: { class: "private", untrusted: true } }) },
  });
  const session = await rig.newSession();
  const shortened = Promise.withResolvers<SessionRecord>();
  (await rig.loopd.services.store.get(session)).follow((record) => {
    if (record.kind === "output-summary") shortened.resolve(record);
  });
  await rig.send(session, "ask");
  const record = await shortened.promise;
  assertEquals(record.kind === "output-summary" && [record.call, record.text], [1, "fact 17, many times"]);
  assertEquals(await Deno.readTextFile(`${rig.paths.sessions}/${session}/outputs/1.txt`), long);
  const result = (await rig.log(session)).find((one) => one.kind === "result");
  assertStringIncludes(result?.kind === "result" ? result.text : "", `of ${long.length} characters]`);
});

Deno.test("B5 an output at the cap is kept in the log alone, with no short form", async () => {
  await using rig = await startLoopdRig({
    toml: "[tools]\nresult_chars = 500",
    script: ({ messages }) =>
      messages.at(-1)?.role === "user" ? callsTool("consult", { question: "q" }) : says("done"),
    broker: {
      answer: () => ({ status: "ok", text: "x".repeat(500), label: { class: "private", untrusted: true } }),
    },
  });
  const session = await rig.newSession();
  await rig.send(session, "ask");
  assertEquals([...Deno.readDirSync(`${rig.paths.sessions}/${session}`)].map(({ name }) => name), [
    "log.jsonl",
  ]);
  assertEquals(rig.model.requests.length, 2);
});
