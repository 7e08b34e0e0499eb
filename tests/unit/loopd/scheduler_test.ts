// Work that the clock starts: each due time at most once, missed ones collapsed, a pulse that never floods, and an owner who never waits for it.

import { assert, assertEquals, assertMatch } from "@std/assert";
import type { FakeClock } from "../../support/fake_clock.ts";
import type { SessionRecord } from "../../../loopd/session/record.ts";
import { fakeClock } from "../../support/fake_clock.ts";
import { callsTool, type LoopdRig, says, startLoopdRig } from "../../support/loopd_rig.ts";
import { recordsOf } from "../../support/transcript.ts";

const minuteMs = 60_000;
const cron = (name: string, schedule: string) =>
  `[[cron]]\nname = "${name}"\nschedule = "${schedule}"\ntask = "do ${name}"\n`;

/** Simulated time runs far ahead of the sockets here: what they do is no silence. */
const patient = "liveness_ms = 3600000\n";

/** Moves the clock on, a second at a time, until the condition holds; real I/O runs in between. */
async function pass(clock: FakeClock, condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!await condition()) {
    await clock.advance(1_000);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

async function turnsOf(rig: LoopdRig, session: string): Promise<string[]> {
  return recordsOf(await logOf(rig, session), "user").map(({ text }) => text);
}

async function endsOf(rig: LoopdRig, session: string): Promise<number> {
  return recordsOf(await logOf(rig, session), "end").length;
}

// A session's directory is there a moment before its log.
async function logOf(rig: LoopdRig, session: string): Promise<SessionRecord[]> {
  try {
    return await rig.log(session);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return [];
    throw error;
  }
}

Deno.test("B5 S3 a cron job runs at its due time in its own session, on the background slot, its task behind the time line", async () => {
  const clock = fakeClock(Date.UTC(2026, 11, 1, 6, 59, 0));
  await using rig = await startLoopdRig({
    clock,
    toml: patient + cron("morning", "0 7 * * *"),
    script: () => says("done"),
  });
  await pass(clock, () => endsOf(rig, "job-morning").then((ends) => ends === 1));
  assertEquals(await turnsOf(rig, "job-morning"), ["[Tue 2026-12-01 07:00, UTC]\ndo morning"]);
  assertEquals(rig.model.requests.map(({ slot }) => slot), [2]);
});

Deno.test("B5 each due time runs once, however often the clock is looked at", async () => {
  const clock = fakeClock(Date.UTC(2026, 11, 1, 6, 59, 50));
  await using rig = await startLoopdRig({
    clock,
    toml: patient + cron("often", "* * * * *"),
    script: () => says("done"),
  });
  for (let minute = 0; minute < 3; minute++) {
    await pass(clock, () => endsOf(rig, "job-often").then((ends) => ends > minute));
    await clock.advance(1_000);
  }
  const turns = await turnsOf(rig, "job-often");
  assertEquals(turns.slice(0, 3).map((text) => text.slice(16, 21)), ["07:00", "07:01", "07:02"]);
});

Deno.test("B5 due times that passed while loopd was down collapse to one run at the start; one that never ran is not made up for", async () => {
  const clock = fakeClock(Date.UTC(2026, 11, 1, 6, 59, 50));
  await using rig = await startLoopdRig({
    clock,
    toml: patient + cron("hourly", "0 * * * *") + cron("yearly", "0 0 1 1 *"),
    script: () => says("done"),
  });
  await pass(clock, () => endsOf(rig, "job-hourly").then((ends) => ends === 1));
  await answered(clock, rig.restart(() => clock.advance(5.5 * 3_600_000)));
  await pass(clock, () => endsOf(rig, "job-hourly").then((ends) => ends === 2));
  const turns = await turnsOf(rig, "job-hourly");
  assertEquals(turns.length, 2);
  assertMatch(turns[1], /^\[Tue 2026-12-01 12:3\d, UTC\]/);
  assertEquals(await turnsOf(rig, "job-yearly"), []);
});

Deno.test("S10 F16 with the background slot busy for ten minutes the owner's message is answered at once, and the jobs that came due wait at their ranks", async () => {
  const clock = fakeClock(Date.UTC(2026, 11, 1, 6, 59, 50));
  const held = Promise.withResolvers<void>();
  let beat = 0;
  await using rig = await startLoopdRig({
    clock,
    toml: patient + cron("long", "0 7 * * *") + cron("other", "1 7 * * *") +
      '[heartbeat]\nevery_minutes = 2\nprompt = "pulse"\n',
    script: ({ messages, slot }) => {
      const asked = String(messages.findLast(({ role }) => role === "user")?.content);
      // Life on the stream, or the wait would end: prompt progress, every simulated half minute.
      if (asked.endsWith("do long")) {
        return {
          content: "at last",
          progress: 2,
          beforeProgress: async () => void await lifeUntil(),
        };
      }
      if (slot === 2) return says("done");
      return says("at once");
    },
  });
  async function lifeUntil() {
    if (beat++ > 0) await held.promise;
  }
  await pass(clock, () => rig.model.requests.length === 1);
  const session = await rig.newSession();
  for (let minute = 0; minute < 2; minute++) {
    for (let step = 0; step < 60; step++) await clock.advance(1_000);
    assertEquals((await answered(clock, rig.send(session, `hello ${minute}`))).content, "at once");
  }
  const waiting = rig.loopd.services.gate.view().find(({ slot }) => slot === 2)?.queue ?? [];
  assertEquals(waiting.map(({ priority }) => priority).slice(0, 1), ["cron"]);
  assert(waiting.filter(({ priority }) => priority === "heartbeat").length <= 1, "a pulse never floods");
  assertEquals(rig.model.collisions, 0);
  held.resolve();
  await pass(clock, () => endsOf(rig, "job-other").then((ends) => ends === 1));
  const order = rig.model.requests.filter(({ slot }) => slot === 2).map(({ messages }) =>
    String(messages.findLast(({ role }) => role === "user")?.content).split("\n")[1]
  );
  assertEquals(order.slice(0, 2), ["do long", "do other"]);
});

/** What a promise resolves to, while the clock moves. */
async function answered<T>(clock: FakeClock, promise: Promise<T>): Promise<T> {
  let settled = false;
  promise.then(() => settled = true, () => settled = true);
  await pass(clock, () => settled);
  return await promise;
}

Deno.test("B5 a heartbeat whose own session is busy is skipped and says so; it runs again at its next time", async () => {
  const clock = fakeClock();
  const held = Promise.withResolvers<void>();
  let pulses = 0;
  await using rig = await startLoopdRig({
    clock,
    toml: patient + '[heartbeat]\nevery_minutes = 1\nprompt = "pulse"\n',
    script: () => ++pulses === 1 ? { content: "first", hold: held.promise } : says("again"),
  });
  await pass(clock, () => pulses === 1);
  const skipped = () => rig.events.filter(({ event }) => event === "skipped").length;
  await pass(clock, () => skipped() === 1);
  assertEquals(pulses, 1);
  assertMatch(JSON.stringify(rig.events.find(({ event }) => event === "skipped")), /heartbeat/);
  held.resolve();
  await pass(clock, () => endsOf(rig, "heartbeat").then((ends) => ends >= 2));
  assert(clock.now() - Date.UTC(2026, 11, 1, 12) >= 3 * minuteMs);
});

Deno.test("S13 S12 a job that read untrusted text stays untrusted for its next run: a scheduled session is one session", async () => {
  const clock = fakeClock(Date.UTC(2026, 11, 1, 6, 59, 50));
  await using rig = await startLoopdRig({
    clock,
    toml: patient + cron("often", "* * * * *"),
    script: ({ messages }) =>
      messages.at(-1)?.role === "tool" || messages.length > 4
        ? says("done")
        : callsTool("consult", { question: "?" }),
    broker: { answer: () => ({ status: "ok", text: "x", label: { class: "private", untrusted: true } }) },
  });
  await pass(clock, () => endsOf(rig, "job-often").then((ends) => ends === 2));
  assertEquals((await rig.loopd.services.store.get("job-often" as never)).label, {
    class: "private",
    untrusted: true,
  });
});
