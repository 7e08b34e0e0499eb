// What `bx doctor` learns of brokerd: grants that no call can match, the endpoint, the clock, the disk. It asks nobody anything.

import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { probeAnswerSchema, type ProbeFinding } from "../../../core/protocol/common.ts";
import { allowPrivate, type BrokerRig, brokerRig, privateTrusted } from "../../support/broker_rig.ts";
import { fakeClock } from "../../support/fake_clock.ts";

async function probed(rig: BrokerRig): Promise<Map<string, ProbeFinding>> {
  const { httpStatus, body } = await rig.owner("POST", "/v1/probe", {});
  const { status, ...answer } = body as { status: string };
  assertEquals([httpStatus, status], [200, "ok"]);
  return new Map(probeAnswerSchema.parse(answer).findings.map((finding) => [finding.check, finding]));
}

Deno.test("doctor reaches the consult endpoint and sends it no request, records nothing, and is the owner's alone", async () => {
  await using rig = await brokerRig({ grants: allowPrivate });
  const before = (await rig.records()).length;
  const findings = await probed(rig);
  assertEquals([...findings.values()].filter(({ ok }) => !ok), []);
  const host = new URL(rig.endpoint.url).host;
  assertEquals(findings.get("consult")?.text, `goes to ${host}, with the key of its secret`);
  assertEquals(findings.get("consult endpoint")?.text, `${host} answers`);
  assertEquals(findings.get("grants")?.text, "1 of 1 can match some call");
  assertMatch(findings.get("disk")!.text, /^a record of 1 KB is durable after \d+\.\d\d ms/);
  assertEquals([rig.endpoint.requests.length, (await rig.records()).length], [0, before]);
  assertEquals((await rig.loop("POST", "/v1/probe", {})).httpStatus, 404);
  assertEquals([...Deno.readDirSync(rig.paths.audit)].filter(({ name }) => name.endsWith(".tmp")), []);
});

Deno.test("doctor says that an endpoint is not there", async () => {
  await using rig = await brokerRig();
  await rig.endpoint.close();
  const { ok, text } = (await probed(rig)).get("consult endpoint")!;
  assertEquals(ok, false);
  assertStringIncludes(text, "cannot be reached safely (ECONNREFUSED)");
});

const never: readonly [why: RegExp, grants: string, nearest: string][] = [
  [
    /^can never match: no brokered tool is named weather/,
    'tool = "weather"\nmax_taint = "private"',
    allowPrivate,
  ],
  [
    /^can never match: ask_memory is not configured/,
    'tool = "ask_memory"\nmax_taint = "private"',
    allowPrivate,
  ],
  [
    /^can never match: its sessions are children's/,
    'tool = "consult"\nmax_taint = "private"\nsessions = ["sub-*"]',
    `${allowPrivate}sessions = ["s*"]\n`,
  ],
];
for (const [why, grant, nearest] of never) {
  Deno.test(`doctor names a grant that ${why.source.slice(1, 60)}`, async () => {
    await using rig = await brokerRig({ grants: `[[grant]]\n${grant}\n` });
    const finding = (await probed(rig)).get("grant 1");
    assertEquals(finding?.ok, false);
    assertMatch(finding?.text ?? "", why);
    await using sound = await brokerRig({ grants: nearest });
    assertEquals((await probed(sound)).has("grant 1"), false);
  });
}

Deno.test("doctor names a grant that stands behind one which admits all that it would, and none that adds something", async () => {
  const wide = allowPrivate;
  const behind = (more: string) => `${wide}[[grant]]\ntool = "consult"\n${more}\n`;
  await using rig = await brokerRig({ grants: behind('max_taint = "public"\nmode = "ask"') });
  assertMatch(
    (await probed(rig)).get("grant 2")?.text ?? "",
    /grant 1 comes first and admits all that it would$/,
  );
  for (const more of ['max_taint = "secret"', 'max_taint = "public"\nallow_untrusted = true']) {
    await using sound = await brokerRig({ grants: behind(more) });
    assertEquals((await probed(sound)).has("grant 2"), false, more);
  }
});

Deno.test("doctor tells of a clock that stands before the newest record", async () => {
  const steady = fakeClock();
  let setBackMs = 0;
  await using rig = await brokerRig({ clock: { ...steady, now: () => steady.now() - setBackMs } });
  await rig.label("chat-a", privateTrusted);
  assertEquals((await probed(rig)).get("clock")?.ok, true);
  setBackMs = 3_600_000;
  const { ok, advice } = (await probed(rig)).get("clock")!;
  assertEquals(ok, false);
  assertMatch(advice ?? "", /^set this device's clock/);
});
