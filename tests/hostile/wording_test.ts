// F29: what a model reads of a refusal. A constant sentence, and nothing that says which setting, file, command or other way would have
// let the text out. The runbook pointer is for the owner, who reads it in the same line.

import { assert, assertEquals, assertMatch } from "@std/assert";
import { deniedAnswer } from "../../brokerd/answers.ts";
import { denialCodes } from "../../core/protocol/broker.ts";
import { runbookEntries } from "../../core/runbook.ts";
import {
  allowPrivate,
  askPrivate,
  brokerRig,
  privateUntrusted,
  secretTrusted,
} from "../support/broker_rig.ts";
import { fakeClock } from "../support/fake_clock.ts";

/** Names of settings, files, programs and sockets, and words that advise. */
const taught =
  /grants?\.toml|brokerd\.toml|\[\[|max_taint|allow_untrusted|result_class|per_day|sessions? =|mode|owner|\bbx\b|approve |reload|retire|socket|\.sock|another|other session|new session|instead|rephrase|summar|paraphrase|shorten|remove|leave out|without|try|again|later|tomorrow|wait|ask |add |edit|change|set |lower|lift|bypass|allow|unless|until|should|could|please/i;

Deno.test("F29 every denial is one constant sentence that teaches no way round", () => {
  for (const code of denialCodes) {
    for (const cause of [undefined, "class", "untrusted"] as const) {
      const { text } = deniedAnswer(code, { cause });
      const [first, sentence, ...rest] = text.split("\n");
      assertEquals([first, rest], [`denied: ${code}`, []]);
      const said = sentence.replace(/ \(see docs\/runbook\.md#([a-z-]+)\)$/, (_, entry) => {
        assert(runbookEntries.includes(entry));
        return "";
      });
      assertMatch(said, /^[A-Z][a-z ,]+\.$/);
      assertEquals([code, taught.exec(said)?.[0]], [code, undefined]);
    }
  }
});

Deno.test("F29 what a real refusal says does not depend on the session, its label, the question or the grants", async () => {
  const clock = fakeClock();
  const secretQuestion = "Is CARDINAL-7 the word?";
  const texts = new Map<string, Set<string>>();
  const hear = (answer: { status: string; code?: string; text?: string }) => {
    assert(answer.status === "denied" && answer.code !== undefined && answer.text !== undefined);
    const heard = texts.get(answer.code) ?? new Set();
    texts.set(answer.code, heard.add(answer.text));
    assertEquals(answer.text.includes("CARDINAL"), false);
  };
  const ask = { arguments: { question: secretQuestion } };
  for (const grants of ["", `${allowPrivate}sessions = ["mm-*"]\n`]) {
    await using rig = await brokerRig({ grants });
    hear(await rig.call("chat-a", 1, ask));
    hear(await rig.call("job-nightly", 1, { ...ask, label: secretTrusted }));
  }
  for (const grants of [allowPrivate, `${allowPrivate}per_day = 1\nallow_untrusted = true\n`]) {
    await using rig = await brokerRig({ grants });
    hear(await rig.call("chat-a", 1, { ...ask, label: secretTrusted }));
    if (grants === allowPrivate) hear(await rig.call("chat-b", 1, { ...ask, label: privateUntrusted }));
    else {
      // The control: the one that may, leaves.
      assertEquals((await rig.call("chat-c", 1, ask)).status, "ok");
      hear(await rig.call("chat-c", 2, ask));
      assertEquals(rig.endpoint.requests.length, 1);
    }
  }
  {
    await using rig = await brokerRig({ grants: askPrivate, clock });
    const asked = rig.call("chat-a", 1, ask);
    const { id, bodySha256 } = await rig.nextApproval();
    await rig.owner("POST", `/v1/approvals/${id}`, { decision: "deny", bodySha256 });
    hear(await asked);
    const late = rig.call("chat-a", 2, ask);
    await rig.nextApproval();
    await clock.advance(61 * 60_000);
    hear(await late);
    assertEquals(rig.endpoint.connections, 0);
  }
  {
    await using rig = await brokerRig({ consult: false });
    hear(await rig.call("chat-a", 1, ask));
  }
  assertEquals(
    [...texts.keys()].sort(),
    [...denialCodes].filter((code) => code !== "AuditUnavailable").sort(),
  );
  for (const [code, heard] of texts) assertEquals([code, heard.size], [code, 1]);
});
