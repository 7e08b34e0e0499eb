// loopd's side of broker.sock: a call is posted once, whatever breaks; an answer is brokerd's or none; and an approval is waited for.

import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { UsageError } from "../../../core/errors.ts";
import { parseSessionId, type SessionId } from "../../../core/ids.ts";
import type { Label } from "../../../core/labels.ts";
import type { CallAnswer, CallState } from "../../../core/protocol/broker.ts";
import { BrokerClient } from "../../../loopd/broker_client.ts";
import { startLoopd } from "../../../loopd/runtime.ts";
import type { CallContext } from "../../../loopd/turn_types.ts";
import { type FakeBroker, type FakeBrokerOptions, startFakeBroker } from "../../support/fake_broker.ts";
import { fakeClock } from "../../support/fake_clock.ts";
import { loopdConfig } from "../../support/loopd_config.ts";
import { tempHome } from "../../support/temp_home.ts";

const timeoutMs = 200_000;
const askAgainMs = 500;
const brokerBackMs = 15_000;
const label: Label = { class: "private", untrusted: false };
const heard: Label = { class: "private", untrusted: true };
const four: CallAnswer = { status: "ok", text: "four", label: heard };

async function client(options: { timeoutMs?: number } = {}) {
  const directory = await Deno.makeTempDir({ prefix: "bx-" });
  const socketPath = `${directory}/broker.sock`;
  const clock = fakeClock();
  const labels = new Map<SessionId, Label>();
  const brokers: FakeBroker[] = [];
  const client = new BrokerClient({
    socketPath,
    timeoutMs: options.timeoutMs ?? timeoutMs,
    clock,
    labelOf: (session) => Promise.resolve(labels.get(session) ?? label),
  });
  return {
    client,
    socketPath,
    clock,
    labels,
    async broker(options: FakeBrokerOptions = {}): Promise<FakeBroker> {
      const broker = await startFakeBroker(socketPath, options);
      brokers.push(broker);
      return broker;
    },
    async [Symbol.asyncDispose]() {
      for (const broker of brokers) await broker.close();
      await Deno.remove(directory, { recursive: true });
    },
  };
}

/** A call of `session`, as the turn loop makes it. */
function context(session = "chat-a", call = 1, signal = new AbortController().signal): CallContext {
  const turn = { session: { id: parseSessionId(session), label }, tree: { signal }, waitsFor: undefined };
  return { turn, call } as unknown as CallContext;
}

Deno.test("C9 a broker timeout below the consult timeout is refused when loopd meets brokerd, naming both settings and the runbook", async () => {
  await using rig = await client({ timeoutMs: 179_999 });
  await rig.broker({ consultTimeoutMs: 180_000 });
  const error = await assertRejects(() => rig.client.meet(), UsageError);
  for (
    const part of [
      "loopd.toml",
      "broker.timeout_ms",
      "179999",
      "brokerd.toml",
      "consult.timeout_ms",
      "180000",
      "runbook.md#broker-timeout",
    ]
  ) {
    assertStringIncludes(error.message, part);
  }
});

Deno.test("C9 a broker timeout equal to the consult timeout is accepted", async () => {
  await using rig = await client({ timeoutMs: 180_000 });
  await rig.broker({ consultTimeoutMs: 180_000 });
  assertEquals((await rig.client.meet()).consultTimeoutMs, 180_000);
});

Deno.test("C9 a loopd that meets such a brokerd ends with that message, though brokerd came later", async () => {
  const fatal = Promise.withResolvers<unknown>();
  await using home = await tempHome();
  const loopd = await startLoopd({
    paths: home.paths,
    config: loopdConfig("[broker]\ntimeout_ms = 1000\n"),
    onFatal: fatal.resolve,
  });
  await using _broker = await startFakeBroker(home.paths.brokerSocket, { consultTimeoutMs: 1_001 });
  const error = await fatal.promise;
  assert(error instanceof UsageError);
  assertStringIncludes(error.message, "1000 is below brokerd.toml's consult.timeout_ms of 1001");
  await loopd.close();
});

Deno.test("S8 a call states its session, its number, its arguments and its label, and gets brokerd's answer", async () => {
  await using rig = await client();
  const broker = await rig.broker({ answer: () => four });
  const result = await rig.client.callTool("consult", { question: "2+2?" }, context("chat-a", 7));
  assertEquals(result, { status: "ok", text: "four", label: heard });
  assertEquals(broker.calls, [{
    session: parseSessionId("chat-a"),
    call: 7,
    tool: "consult",
    arguments: { question: "2+2?" },
    label,
  }]);
});

for (
  const [what, answer, wanted] of [
    [
      "a denial",
      { status: "denied", code: "NoGrant", text: "no grant allows this" },
      "denied: NoGrant: no grant allows this",
    ],
    ["a denial that begins as pinned", {
      status: "denied",
      code: "TaintTooHigh",
      cause: "class",
      text: "denied: TaintTooHigh: no",
    }, "denied: TaintTooHigh: no"],
    [
      "an error",
      { status: "error", code: "consult-timeout", text: "no answer" },
      "error: consult-timeout: no answer",
    ],
  ] as const
) {
  Deno.test(`S8 ${what} reads as one to the model, and carries no label of its own`, async () => {
    await using rig = await client();
    await rig.broker({ answer: () => answer as CallAnswer });
    const result = await rig.client.callTool("consult", { question: "x" }, context());
    assertEquals([result.status, result.code, result.text], [answer.status, answer.code, wanted]);
    assertEquals(result.label, { class: "public", untrusted: false });
  });
}

Deno.test("S8 an answer that no brokerd gives is an error, not an answer", async () => {
  await using rig = await client();
  await rig.broker({ answer: () => ({ status: "ok", text: "four" }) as unknown as CallAnswer });
  const result = await rig.client.callTool("consult", { question: "x" }, context());
  assertEquals([result.status, result.code], ["error", "broker-answer"]);
});

Deno.test("K2 without a brokerd nothing is decided, and the model reads so with the runbook entry", async () => {
  await using rig = await client();
  const result = await rig.client.callTool("consult", { question: "x" }, context());
  assertEquals([result.status, result.code], ["error", "broker-unavailable"]);
  assertStringIncludes(result.text, "nothing sent");
  assertStringIncludes(result.text, "docs/runbook.md#broker-unavailable");
});

Deno.test("S8 a brokerd that goes away before the call itself is sent has acted on nothing, and the model reads so", async () => {
  await using rig = await client();
  const listener = Deno.listen({ transport: "unix", path: rig.socketPath });
  const dropping = (async () => {
    for await (const connection of listener) {
      await connection.read(new Uint8Array(1_024));
      connection.close();
    }
  })();
  const result = await rig.client.callTool("consult", { question: "2+2?" }, context());
  assertEquals([result.status, result.code], ["error", "broker-unavailable"]);
  listener.close();
  await dropping;
});

Deno.test("a brokerd that comes back is spoken to again, and told of the family again", async () => {
  await using rig = await client();
  const first = await rig.broker({ answer: () => four });
  await rig.client.callTool("consult", { question: "x" }, context("chat-a", 1));
  await rig.client.callTool("consult", { question: "x" }, context("chat-a", 2));
  assertEquals(first.labels.length, 1, "an id is born once");
  await first.close();
  assertEquals((await rig.client.callTool("consult", {}, context("chat-a", 3))).code, "broker-unavailable");
  const second = await rig.broker({ answer: () => four });
  assertEquals((await rig.client.callTool("consult", {}, context("chat-a", 4))).status, "ok");
  assertEquals(second.labels.map(({ session }) => String(session)), ["chat-a"]);
});

Deno.test("S12 a family is announced from the root down, each with its own label, before a child's first call", async () => {
  await using rig = await client();
  const events: string[] = [];
  rig.labels.set(parseSessionId("chat-a"), { class: "secret", untrusted: true });
  const broker = await rig.broker({
    answer: (call) => (events.push(`call ${call.session} after ${broker.labels.length}`), four),
  });
  await rig.client.callTool("consult", {}, context("sub-sub-chat-a-1-2", 1));
  await rig.client.callTool("consult", {}, context("sub-chat-a-1", 3));
  assertEquals(broker.labels.map(({ session, label }) => [String(session), label.class]), [
    ["chat-a", "secret"],
    ["sub-chat-a-1", "private"],
    ["sub-sub-chat-a-1-2", "private"],
  ]);
  assertEquals(events, ["call sub-sub-chat-a-1-2 after 3", "call sub-chat-a-1 after 3"]);
});

/** A call whose connection breaks after brokerd has read it. */
async function brokenCall(rig: Awaited<ReturnType<typeof client>>) {
  const asked = Promise.withResolvers<void>();
  const first = await rig.broker({ answer: () => (asked.resolve(), new Promise<never>(() => {})) });
  const result = rig.client.callTool("consult", { question: "x" }, context());
  await asked.promise;
  await first.close();
  await rig.clock.scheduled(askAgainMs);
  return { first, result };
}

for (
  const [what, states, wanted] of [
    ["was answered", [four], ["ok", undefined, "four"]],
    ["was denied", [{ status: "denied", code: "ApprovalDenied", text: "no" }], [
      "denied",
      "ApprovalDenied",
      "denied: ApprovalDenied: no",
    ]],
    ["is still under way, then answered", [
      { status: "running" },
      { status: "waiting", approval: "a1" },
      four,
    ], ["ok", undefined, "four"]],
  ] as const
) {
  Deno.test(`F24 a call whose connection broke and which ${what} is asked about, and never posted again`, async () => {
    await using rig = await client();
    const { first, result } = await brokenCall(rig);
    const left: CallState[] = [...states];
    const second = await rig.broker({
      state: (session, call) => {
        assertEquals([session, call], ["chat-a", 1]);
        return left.shift() as CallState;
      },
    });
    for (const _ of states) {
      await rig.clock.scheduled(askAgainMs);
      await rig.clock.advance(askAgainMs);
    }
    const { status, code, text } = await result;
    assertEquals([status, code, text], [...wanted]);
    assertEquals([first.calls.length, second.calls.length], [1, 0]);
  });
}

Deno.test("F24 a call whose connection broke and of which brokerd knows nothing is interrupted: it may have acted, and is not posted again", async () => {
  await using rig = await client();
  const { result } = await brokenCall(rig);
  const second = await rig.broker({ state: () => ({ status: "unknown" }) });
  await rig.clock.advance(askAgainMs);
  const { status, code, text } = await result;
  assertEquals([status, code], ["error", "interrupted"]);
  assertStringIncludes(text, "not run again");
  assertEquals(second.calls, []);
});

Deno.test("F24 a brokerd that does not come back is waited for as long as its bound, then the call is interrupted", async () => {
  await using rig = await client();
  const { result } = await brokenCall(rig);
  let ended = false;
  result.then(() => ended = true);
  for (let waited = 0; waited < brokerBackMs; waited += askAgainMs) {
    assert(!ended);
    await rig.clock.scheduled(askAgainMs);
    await rig.clock.advance(askAgainMs);
  }
  assertEquals((await result).code, "interrupted");
});

Deno.test("C9 a call that brokerd neither answers nor holds for an approval ends at the broker timeout, not before", async () => {
  await using rig = await client();
  const asked = Promise.withResolvers<void>();
  const looked = Promise.withResolvers<void>();
  const broker = await rig.broker({
    answer: () => (asked.resolve(), new Promise<never>(() => {})),
    state: () => (looked.resolve(), { status: "running" }),
  });
  const result = rig.client.callTool("consult", { question: "x" }, context());
  let ended = false;
  result.then(() => ended = true);
  await asked.promise;
  await rig.clock.advance(timeoutMs - 1);
  assert(!ended);
  await rig.clock.advance(1);
  await looked.promise;
  const { status, code, text } = await result;
  assertEquals([status, code], ["error", "broker-timeout"]);
  assertStringIncludes(text, `${timeoutMs} ms`);
  assertEquals([broker.calls.length, rig.clock.pending], [1, 0]);
});

Deno.test("F9 B10 a call that waits for an approval is waited for without any timeout, on the one connection that it came on", async () => {
  await using rig = await client();
  const asked = Promise.withResolvers<void>();
  const answer = Promise.withResolvers<CallAnswer>();
  let looked = Promise.withResolvers<void>();
  const broker = await rig.broker({
    answer: () => (asked.resolve(), answer.promise),
    state: () => (looked.resolve(), { status: "waiting", approval: "a1" }),
  });
  const result = rig.client.callTool("consult", { question: "x" }, context());
  await asked.promise;
  for (let look = 0; look < 5; look++) {
    await rig.clock.scheduled(timeoutMs);
    looked = Promise.withResolvers();
    await rig.clock.advance(timeoutMs);
    await looked.promise;
  }
  answer.resolve(four);
  assertEquals((await result).text, "four");
  assertEquals(broker.calls.length, 1);
});

Deno.test("F8 a cancelled call ends with the signal's reason, and brokerd sees its connection close", async () => {
  await using rig = await client();
  const asked = Promise.withResolvers<void>();
  await rig.broker({ answer: () => (asked.resolve(), new Promise<never>(() => {})) });
  const abort = new AbortController();
  const result = rig.client.callTool("consult", { question: "x" }, context("chat-a", 1, abort.signal));
  await asked.promise;
  const reason = new Error("cancelled by the owner");
  abort.abort(reason);
  assertEquals(await result.catch((error) => error), reason);
  assertEquals(rig.clock.pending, 0);
});

for (
  const [what, state, wanted] of [
    ["was answered", four, ["ok", "four"]],
    ["was denied", { status: "denied", code: "BudgetSpent", text: "none left" }, [
      "denied",
      "denied: BudgetSpent: none left",
    ]],
    ["is unknown", { status: "unknown" }, ["error", undefined]],
  ] as const
) {
  Deno.test(`F1 a call that a restart interrupted and that ${what} is asked about, never posted`, async () => {
    await using rig = await client();
    const broker = await rig.broker({ state: () => state as CallState });
    const { status, text, code } = await rig.client.resumeCall("consult", context());
    if (state.status === "unknown") assertEquals([status, code], ["error", "interrupted"]);
    else assertEquals([status, text], [...wanted]);
    assertEquals(broker.calls, []);
  });
}
