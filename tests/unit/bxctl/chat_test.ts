// The line-based conversation: a new session without an id, its commands, Ctrl-C once and twice, and plain text without a terminal.

import { assertEquals, assertStringIncludes } from "@std/assert";
import { streamSSE } from "hono/streaming";
import { bx, type FakeHome, outcome, privateLabel, sessionRow, streamTurn, withRoles } from "./fake_roles.ts";

/** A session whose log holds `before`, and gets `during` while it is followed. */
function serveChat(
  { loopd }: FakeHome,
  { before = [], during = [] }: { before?: readonly unknown[]; during?: readonly unknown[] } = {},
): void {
  loopd.post("/v1/sessions", (c) => c.json({ session: "chat-1" }));
  loopd.get("/v1/sessions", (c) => c.json({ sessions: [sessionRow("chat-1")] }));
  loopd.get("/v1/sessions/:id/log", (c) => {
    if (c.req.query("follow") === undefined) return c.json({ records: before });
    return streamSSE(c, async (stream) => {
      for (const record of [...before, ...during]) {
        await stream.writeSSE({ event: "record", data: JSON.stringify(record) });
      }
    });
  });
}

const answered = [["delta", { text: "Four." }], ["done", outcome("chat-1")]] as const;

Deno.test("B11 chat without a terminal reads lines and writes plain answers", () =>
  withRoles(async (fake) => {
    serveChat(fake);
    streamTurn(fake.loopd, answered);
    const result = await bx(["chat", "--home", fake.home], {
      lines: ["what is 2+2?", "", "//tmp it", "/quit", "no"],
    });
    assertEquals(result, { code: 0, stdout: "Four.\nFour.\n", stderr: "" });
    const turns = fake.asked.filter(({ path }) => path.endsWith("/turns"));
    assertEquals(turns.map(({ body }) => body), [{ text: "what is 2+2?" }, { text: "/tmp it" }]);
  }));

Deno.test("B11 chat on a terminal shows label and slot in the prompt, as the turn left it", () =>
  withRoles(async (fake) => {
    serveChat(fake);
    const label = { class: "private", untrusted: true };
    streamTurn(fake.loopd, [["delta", { text: "Four." }], ["done", outcome("chat-1", { label })]]);
    const { code, stdout } = await bx(["chat", "--home", fake.home], { terminal: true, lines: ["hi"] });
    assertEquals(code, 0);
    assertEquals(
      stdout,
      "chat-1; /help for help, /quit to leave\nchat-1 private · slot 0 › Four.\nchat-1 private, untrusted · slot 0 › \nleft chat-1; go on with: deno task chat chat-1\n",
    );
  }));

const exchange = [
  { seq: 1, kind: "open" },
  { seq: 2, kind: "user", turn: 1, text: "2+2?\x1b" },
  {
    seq: 3,
    kind: "assistant",
    turn: 1,
    content: "Four.\u202e",
    calls: [],
    timings: { cacheN: 90, promptN: 10, predictedN: 2 },
    lostN: 0,
    firstTokenMs: 120,
  },
  { seq: 4, kind: "end", turn: 1, status: "completed" },
];

Deno.test("B11 chat ID on a terminal shows the last exchange, and after a turn what it kept and how long its first token took", () =>
  withRoles(async (fake) => {
    const later = exchange.slice(1).map((record) => ({ ...record, seq: record.seq + 3 }));
    serveChat(fake, { before: exchange, during: later });
    streamTurn(fake.loopd, answered);
    const { stdout } = await bx(["chat", "chat-1", "--home", fake.home], { terminal: true, lines: ["hi"] });
    assertEquals(stdout.split("\n").slice(0, 6), [
      "chat-1; /help for help, /quit to leave",
      "› 2+2?⟨U+001B⟩",
      "Four.⟨U+202E⟩",
      "chat-1 private · slot 0 › Four.",
      "kept 90 of 100 tokens (90 %) · first token 120 ms · wrote 2",
      "chat-1 private · slot 0 › ",
    ]);
  }));

for (
  const [end, wanted] of [
    [{ status: "cancelled", reason: "cancelled", detail: "by the owner" }, "cancelled: by the owner"],
    [{ status: "failed", reason: "cut", detail: "the token limit" }, "failed: cut"],
  ] as const
) {
  Deno.test(`B11 chat ID on a terminal says that the last turn was ${wanted}`, () =>
    withRoles(async (fake) => {
      serveChat(fake, { before: [exchange[1], { seq: 3, kind: "end", turn: 1, ...end }], during: [] });
      const { stdout } = await bx(["chat", "chat-1", "--home", fake.home], { terminal: true, lines: [] });
      assertEquals(stdout.split("\n").slice(1, 3), ["› 2+2?⟨U+001B⟩", wanted]);
    }));
}

Deno.test("B11 chat on a terminal that cannot be redrawn takes a trailing backslash for another line; without one the line is sent as it is", () =>
  withRoles(async (fake) => {
    serveChat(fake);
    streamTurn(fake.loopd, answered);
    await bx(["chat", "--home", fake.home], { terminal: true, lines: ["one\\", "two"] });
    await bx(["chat", "--home", fake.home], { lines: ["one\\", "two"] });
    const turns = fake.asked.filter(({ path }) => path.endsWith("/turns"));
    assertEquals(turns.map(({ body }) => body), [{ text: "one\ntwo" }, { text: "one\\" }, { text: "two" }]);
  }));

Deno.test("B11 chat ID goes on with that session and makes none", () =>
  withRoles(async (fake) => {
    serveChat(fake);
    streamTurn(fake.loopd, answered);
    await bx(["chat", "chat-1", "--home", fake.home], { lines: ["hi"] });
    assertEquals(fake.asked.map(({ method, path }) => `${method} ${path}`), [
      "GET /v1/sessions",
      "POST /v1/sessions/chat-1/turns",
    ]);
  }));

Deno.test("B11 chat answers /label, /tree, /log and /help, and names a command it does not have", () =>
  withRoles(async (fake) => {
    serveChat(fake, { before: [{ kind: "user", time: "t", text: "hi" }] });
    const result = await bx(["chat", "chat-1", "--home", fake.home], {
      lines: ["/label", "/tree", "/log", "/help", "/nope\x1b"],
    });
    assertStringIncludes(result.stdout, "private\nchat-1  idle  private  slot 0\nt  user\n    hi\n/help ");
    assertEquals(result.stderr, "bx: there is no /nope⟨U+001B⟩ here; /help lists what there is\n");
  }));

Deno.test("B11 chat goes on after a refusal, and ends with 1 where no person watched it", () =>
  withRoles(async (fake) => {
    serveChat(fake);
    let turns = 0;
    fake.loopd.post("/v1/sessions/:id/turns", (c) => {
      if (turns++ === 0) return c.json({ status: "error", code: "busy", text: "chat-1 is held" }, 409);
      return c.body(`event: done\ndata: ${JSON.stringify(outcome("chat-1"))}\n\n`, 200, {
        "content-type": "text/event-stream",
      });
    });
    const result = await bx(["chat", "chat-1", "--home", fake.home], { lines: ["a", "b"] });
    assertEquals(result, {
      code: 1,
      stdout: "Four.\n",
      stderr: "bx: loopd refused: chat-1 is held (busy)\n",
    });
  }));

/** A turn that streams `Begin` and then waits; `finish` ends it as cancelled. */
function hangingTurn({ loopd }: FakeHome): { finish(): void; cancels: () => number } {
  const cancelled = Promise.withResolvers<void>();
  let cancels = 0;
  loopd.post("/v1/sessions/:id/cancel", (c) => {
    cancels++;
    return c.json({ status: "ok" });
  });
  loopd.post("/v1/sessions/:id/turns", () => {
    const encode = (event: string, data: unknown) =>
      new TextEncoder().encode(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
    let open = true;
    return new Response(
      new ReadableStream({
        async start(controller) {
          controller.enqueue(encode("delta", { text: "Begin" }));
          await cancelled.promise;
          if (!open) return;
          controller.enqueue(encode("done", outcome("chat-1", { status: "cancelled", content: "" })));
          controller.close();
        },
        cancel() {
          open = false;
        },
      }),
      { headers: { "content-type": "text/event-stream" } },
    );
  });
  return { finish: () => cancelled.resolve(), cancels: () => cancels };
}

Deno.test("F8 Ctrl-C in a chat cancels the turn and the conversation goes on", () =>
  withRoles(async (fake) => {
    serveChat(fake);
    const turn = hangingTurn(fake);
    let interrupt = () => {};
    const { code, stdout, stderr } = await bx(["chat", "chat-1", "--home", fake.home], {
      terminal: true,
      lines: ["hi", "/label"],
      onStart: (press) => interrupt = press,
      onWrite: (text) => {
        if (text !== "Begin") return;
        interrupt();
        turn.finish();
      },
    });
    assertEquals([code, stderr], [0, "bx: the turn of chat-1 was cancelled\n"]);
    assertStringIncludes(stdout, "Begin\n");
    assertStringIncludes(stdout, "\nleft chat-1");
  }));

Deno.test("B11 Ctrl-C twice leaves a chat although its turn still streams", () =>
  withRoles(async (fake) => {
    serveChat(fake);
    const turn = hangingTurn(fake);
    let interrupt = () => {};
    const { code, stdout } = await bx(["chat", "chat-1", "--home", fake.home], {
      terminal: true,
      lines: ["hi", "never sent"],
      onStart: (press) => interrupt = press,
      onWrite: (text) => {
        if (text !== "Begin") return;
        interrupt();
        interrupt();
      },
    });
    turn.finish();
    assertEquals(code, 0);
    assertStringIncludes(stdout, "left chat-1");
    assertEquals(fake.asked.filter(({ path }) => path.endsWith("/turns")).length, 1);
  }));

Deno.test("B11 Ctrl-C at the prompt asks for a second one, which leaves", () =>
  withRoles(async (fake) => {
    serveChat(fake);
    let interrupt = () => {};
    // Input on which no line ever comes; a person presses Ctrl-C twice instead.
    const silent: AsyncIterable<string> = {
      [Symbol.asyncIterator]: () => ({
        next() {
          interrupt();
          interrupt();
          return new Promise(() => {});
        },
      }),
    };
    const { code, stderr } = await bx(["chat", "chat-1", "--home", fake.home], {
      terminal: true,
      lines: silent,
      onStart: (press) => interrupt = press,
    });
    assertEquals([code, stderr], [0, "\nCtrl-C again to leave\n"]);
  }));

Deno.test("B11 a call that raised the label shows the new one after the turn", () =>
  withRoles(async (fake) => {
    serveChat(fake);
    const result = { call: 1, tool: "recall", status: "ok", text: "note", label: privateLabel };
    streamTurn(fake.loopd, [
      ["call", { call: 1, tool: "recall", arguments: '{"query":"x"}' }],
      ["result", result],
      ...answered,
    ]);
    const { stdout } = await bx(["chat", "chat-1", "--home", fake.home], { terminal: true, lines: ["hi"] });
    assertStringIncludes(
      stdout,
      '[1] recall {"query":"x"} → ok (private)\nFour.\nchat-1 private · slot 0 › ',
    );
  }));
