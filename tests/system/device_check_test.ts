// The device check as its owner runs it: against the practice model, and against a protected server that the owner's loopd.toml names.
// It leaves the owner's home and the temporary directory as they were, and says plainly when nothing was shown.

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { withoutTrace } from "../support/private_run.ts";
import { replyOf, wishOf } from "../../tools/device_check/request_text.ts";
import { startModelStub } from "../../tools/stubs/model.ts";

const deviceCheck = "tools/device_check/main.ts";

Deno.test("D1 D2 the device check passes on the practice model with slot 1 kept busy, each half alone too", () =>
  withoutTrace(async ({ run }) => {
    const { code, stdout, last } = await run(deviceCheck, ["--stub", "--json"]);
    assertEquals([code, last.ok], [0, true], stdout);
    const [d1, d2] = last.checks;
    assertEquals([d1.id, d1.ok, d1.mainSlot, d1.childSlots], ["D1", true, 0, [2]]);
    assertEquals(d1.cacheN, d1.previousTotal - 1);
    assertEquals([d1.otherSlot, d1.otherSlotBusyLooks], [1, d1.looks]);
    assert(d1.looks > 0);
    assertEquals([d2.id, d2.ok, d2.wireSha256], ["D2", true, d2.auditSha256]);
    assertEquals([d2.code, d2.cause, d2.captured], ["TaintTooHigh", "untrusted", 1]);
    assertStringIncludes(stdout, d2.wireSha256);

    const half = await run(deviceCheck, ["consult", "--stub", "--json"]);
    assertEquals([half.code, half.last.checks.map(({ id }: { id: string }) => id)], [0, ["D2"]]);
  }));

Deno.test("D1 D2 the device check reads the server, its key and its slots from the owner's home, uses no other slot, and changes nothing there", async () => {
  await using model = await startModelStub({
    apiKey: "sk-PLANTED",
    script: ({ messages }) => replyOf(wishOf(messages)),
  });
  const loopdToml =
    `[inference]\nurl = "${model.url}"\nsecret = "model"\n[slots]\nmain = 1\nbackground = 0\n` +
    `[heartbeat]\nevery_minutes = 0.001\nprompt = "not in the check"\n`;
  await withoutTrace(async ({ run }) => {
    const { code, stdout, stderr, last } = await run(deviceCheck, ["--json"]);
    assertEquals([code, last.ok], [0, true], stdout + stderr);
    assertEquals([last.checks[0].mainSlot, last.checks[0].childSlots], [1, [0]]);
    // The third slot is only looked at.
    assertEquals([last.checks[0].otherSlot, last.checks[0].otherSlotBusyLooks], [2, 0]);
    assertEquals(new Set(model.requests.map(({ slot }) => slot)), new Set([0, 1]));
    assert(!JSON.stringify(model.requests.map(({ messages }) => messages)).includes("not in the check"));
    assert(!(stdout + stderr).includes("PLANTED"));
  }, { loopdToml, secrets: { model: "sk-PLANTED" } });
  assertEquals(model.collisions, 0);
});

Deno.test("D1 a server that shares one cache among its slots fails the check, which names what to start it with", async () => {
  await using model = await startModelStub({
    unifiedCache: true,
    script: ({ messages }) => replyOf(wishOf(messages)),
  });
  await withoutTrace(async ({ run }) => {
    const { code, last } = await run(deviceCheck, ["subagents", "--json", "--url", model.url]);
    assertEquals([code, last.ok, last.checks[0].cacheN], [1, false, 0]);
    assertStringIncludes(last.checks[0].text, "-np 3");
  });
});

Deno.test("D1 D2 a model that calls nothing is asked three times, and then the check says that nothing was shown", async () => {
  await using model = await startModelStub({ script: () => ({ content: "I would rather not." }) });
  await withoutTrace(async ({ run }) => {
    const { code, stdout, last } = await run(deviceCheck, ["--json", "--url", model.url]);
    assertEquals([code, last.checks.map(({ ok }: { ok: boolean }) => ok)], [1, [false, false]], stdout);
    assertStringIncludes(stdout, "the model did not call subagent in 3 tries; nothing was shown");
    assertStringIncludes(stdout, "the model did not call consult in 3 tries; nothing was shown");
    assertEquals(model.requests.length, 6);
  });
});

Deno.test("D1 D2 a server without enough slots, a busy one, one that is not there and a home without one are each refused with one reason", async () => {
  await using few = await startModelStub({ totalSlots: 2 });
  const { promise: never } = Promise.withResolvers<void>();
  await using busy = await startModelStub({ script: () => ({ content: "…", hold: never }) });
  const working = new AbortController();
  const request = fetch(`${busy.url}/v1/chat/completions`, {
    method: "POST",
    body: JSON.stringify({ messages: [{ role: "user", content: "go on" }], id_slot: 2, stream: true }),
    signal: working.signal,
  }).then((response) => response.text()).catch(() => {});
  await busy.waitFor(({ state }) => state === "running");
  await using gone = await startModelStub();
  await gone.close();
  await withoutTrace(async ({ run, home }) => {
    const refusals = [
      { words: ["--url", few.url], code: 1, text: "has 2 slots, and [slots] needs 3: start it with -np 3" },
      { words: ["--url", busy.url], code: 1, text: "slot 2 of http://127.0.0.1:" },
      { words: ["--url", gone.url], code: 1, text: "does not answer" },
      { words: [], code: 2, text: `${home}/loopd.toml: inference.url: names no model server to check` },
      { words: ["--url", "http://192.0.2.1:80"], code: 2, text: "--url: this host is not this device" },
      { words: ["--stub", "--url", few.url], code: 2, text: "wanted one of them" },
      { words: ["everything"], code: 2, text: "wanted subagents, consult or all" },
    ];
    for (const { words, code, text } of refusals) {
      const output = await run(deviceCheck, ["subagents", ...words].slice(words[0] === "everything" ? 1 : 0));
      assertEquals(output.code, code, output.stdout + output.stderr);
      assertStringIncludes(output.stdout + output.stderr, text);
    }
  });
  assertEquals(few.requests.length, 0);
  working.abort();
  await request;
});

Deno.test("D1 D2 a device check that is ended in the middle leaves nothing behind", async () => {
  const { promise: never } = Promise.withResolvers<void>();
  await using model = await startModelStub({ script: () => ({ content: "…", hold: never }) });
  await withoutTrace(async ({ start }) => {
    const child = start(deviceCheck, ["--url", model.url]);
    await model.waitFor(({ state }) => state === "running");
    child.kill("SIGINT");
    assertEquals((await child.ended()).code, 130);
  });
});
