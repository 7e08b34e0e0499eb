// Session commands against a scripted loopd: what is asked, what is printed, how it exits.

import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { bx, outcome, privateLabel, sessionRow, streamTurn, withRoles } from "./fake_roles.ts";

Deno.test("B11 new prints the id, with --json the one object, and passes the class on", () =>
  withRoles(async ({ home, asked, loopd }) => {
    loopd.post("/v1/sessions", (c) => c.json({ status: "ok", session: "chat-1" }));
    assertEquals(await bx(["new", "--home", home]), { code: 0, stdout: "chat-1\n", stderr: "" });
    const withClass = await bx(["--home", home, "new", "--json", "--class", "public"]);
    assertEquals(withClass, { code: 0, stdout: '{"session":"chat-1"}\n', stderr: "" });
    assertEquals(asked.map(({ body }) => body), [{}, { class: "public" }]);
  }));

Deno.test("B11 send prints only the final text on a pipe", () =>
  withRoles(async ({ home, asked, loopd }) => {
    streamTurn(loopd, [
      ["thinking", { text: "hm" }],
      ["delta", { text: "Let me see." }],
      ["call", { call: 1, tool: "clock", arguments: "{}" }],
      ["result", { call: 1, tool: "clock", status: "ok", text: "noon", label: privateLabel }],
      ["delta", { text: "Four." }],
      ["done", outcome("chat-1")],
    ]);
    assertEquals(await bx(["send", "chat-1", "what", "is 2+2?", "--home", home]), {
      code: 0,
      stdout: "Four.\n",
      stderr: "",
    });
    assertEquals(asked, [{
      method: "POST",
      path: "/v1/sessions/chat-1/turns",
      body: { text: "what is 2+2?" },
    }]);
  }));

Deno.test("B11 send streams to a terminal: thinking dimmed, one line for each call, answer last", () =>
  withRoles(async ({ home, loopd }) => {
    const label = { class: "private", untrusted: true };
    streamTurn(loopd, [
      ["thinking", { text: "think\x1b[2J" }],
      ["thinking", { text: "ing" }],
      ["call", { call: 1, tool: "consult", arguments: '{"question":"2+2"}' }],
      ["result", {
        call: 1,
        tool: "consult",
        status: "denied",
        code: "NoGrant",
        text: "denied: NoGrant",
        label,
      }],
      ["delta", { text: "Fo" }],
      ["delta", { text: "ur." }],
      ["done", outcome("chat-1")],
    ]);
    const plain = await bx(["send", "chat-1", "hi", "--home", home], { terminal: true });
    assertEquals(
      plain.stdout,
      'think⟨U+001B⟩[2Jing\n[1] consult {"question":"2+2"} → denied NoGrant (private, untrusted)\nFour.\n',
    );
    const colour = await bx(["send", "chat-1", "hi", "--home", home], { terminal: true, colour: true });
    assertStringIncludes(colour.stdout, "\x1b[2mthink⟨U+001B⟩[2J\x1b[0m");
    assertStringIncludes(colour.stdout, "\x1b[31mdenied NoGrant\x1b[0m");
  }));

Deno.test("B11 send --json prints exactly the object of done, on a terminal too", () =>
  withRoles(async ({ home, loopd }) => {
    const calls = [{ call: 1, tool: "consult", status: "denied", code: "NoGrant" }];
    const done = outcome("chat-1", { calls });
    streamTurn(loopd, [["delta", { text: "Four." }], ["done", done]]);
    for (const terminal of [false, true]) {
      const { code, stdout } = await bx(["send", "--json", "chat-1", "hi", "--home", home], { terminal });
      assertEquals([code, stdout.trimEnd().split("\n").length, JSON.parse(stdout)], [0, 1, done]);
    }
  }));

for (
  const [status, reason, wanted] of [
    ["failed", "model-error: 500", "bx: the turn of chat-1 failed: model-error: 500\n"],
    ["cancelled", undefined, "bx: the turn of chat-1 was cancelled\n"],
    ["cancelled", "cancelled: by the owner", "bx: the turn of chat-1 was cancelled by the owner\n"],
  ] as const
) {
  Deno.test(`B11 send exits 1 when the turn is ${status}${reason === undefined ? "" : ` (${reason})`}, and prints no text as if it were an answer`, () =>
    withRoles(async ({ home, loopd }) => {
      streamTurn(loopd, [["done", outcome("chat-1", { status, content: "", ...(reason && { reason }) })]]);
      assertEquals(await bx(["send", "chat-1", "hi", "--home", home]), {
        code: 1,
        stdout: "",
        stderr: wanted,
      });
      assertEquals((await bx(["send", "chat-1", "hi", "--json", "--home", home])).code, 1);
    }));
}

Deno.test("S17 send to a held session is refused busy and exits 1", () =>
  withRoles(async ({ home, loopd }) => {
    loopd.post(
      "/v1/sessions/:id/turns",
      (c) => c.json({ status: "error", code: "busy", text: "sub-chat-1-3 is held" }, 409),
    );
    const { code, stdout, stderr } = await bx(["send", "sub-chat-1-3", "hi", "--home", home]);
    assertEquals([code, stdout, stderr], [1, "", "bx: loopd refused: sub-chat-1-3 is held (busy)\n"]);
  }));

Deno.test("B11 send exits 1 when the stream ends without its outcome", () =>
  withRoles(async ({ home, loopd }) => {
    streamTurn(loopd, [["delta", { text: "Fo" }]]);
    const { code, stdout, stderr } = await bx(["send", "chat-1", "hi", "--home", home]);
    assertEquals([code, stdout], [1, ""]);
    assertMatch(stderr, /chat-1's turn ended without an outcome.*bx log chat-1/);
  }));

Deno.test("B11 send takes a text that looks like an option after --, and standard input for -", () =>
  withRoles(async ({ home, asked, loopd }) => {
    streamTurn(loopd, [["done", outcome("chat-1")]]);
    await bx(["--home", home, "send", "chat-1", "--", "--json"]);
    await bx(["--home", home, "send", "chat-1", "-"], { lines: ["one", "two"] });
    assertEquals(asked.map(({ body }) => body), [{ text: "--json" }, { text: "one\ntwo" }]);
    assertEquals((await bx(["--home", home, "send", "chat-1", "-"])).code, 2);
  }));

Deno.test("B11 Ctrl-C during send cancels the turn, which then ends by itself", () =>
  withRoles(async ({ home, asked, loopd }) => {
    const cancelled = Promise.withResolvers<void>();
    loopd.post("/v1/sessions/:id/cancel", (c) => {
      cancelled.resolve();
      return c.json({ status: "ok" });
    });
    loopd.post("/v1/sessions/:id/turns", () => {
      const encode = (event: string, data: unknown) =>
        new TextEncoder().encode(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
      return new Response(
        new ReadableStream({
          async start(controller) {
            controller.enqueue(encode("delta", { text: "Begin" }));
            await cancelled.promise;
            controller.enqueue(encode("done", outcome("chat-1", { status: "cancelled", content: "" })));
            controller.close();
          },
        }),
        { headers: { "content-type": "text/event-stream" } },
      );
    });
    let interrupt = () => {};
    const result = await bx(["send", "chat-1", "hi", "--home", home], {
      terminal: true,
      onStart: (press) => interrupt = press,
      onWrite: (text) => {
        if (text === "Begin") interrupt();
      },
    });
    assertEquals([result.code, result.stderr], [1, "bx: the turn of chat-1 was cancelled\n"]);
    assertEquals(asked.map(({ path }) => path), ["/v1/sessions/chat-1/turns", "/v1/sessions/chat-1/cancel"]);
  }));

Deno.test("F32 tree shows parents, children, status, label and slot; a child alone can be asked for", () =>
  withRoles(async ({ home, loopd }) => {
    const untrusted = { class: "private", untrusted: true };
    const rows = [
      sessionRow("chat-1", { status: "waiting" }),
      sessionRow("sub-chat-1-3", { parent: "chat-1", kind: "sub", status: "waiting", slot: 2 }),
      sessionRow("sub-sub-chat-1-3-1", {
        parent: "sub-chat-1-3",
        status: "running",
        label: untrusted,
        slot: 2,
      }),
      sessionRow("sub-chat-1-4", { parent: "chat-1", kind: "sub", status: "failed", slot: 2 }),
      sessionRow("heartbeat", { kind: "heartbeat", slot: 2 }),
    ];
    loopd.get("/v1/sessions", (c) => c.json({ sessions: rows }));
    assertEquals((await bx(["tree", "--home", home])).stdout.split("\n"), [
      "chat-1  waiting  private  slot 0",
      "├─ sub-chat-1-3  waiting  private  slot 2",
      "│  └─ sub-sub-chat-1-3-1  running  private, untrusted  slot 2",
      "└─ sub-chat-1-4  failed  private  slot 2",
      "heartbeat  idle  private  slot 2",
      "",
    ]);
    assertEquals((await bx(["tree", "sub-chat-1-3", "--home", home])).stdout.split("\n"), [
      "sub-chat-1-3  waiting  private  slot 2",
      "└─ sub-sub-chat-1-3-1  running  private, untrusted  slot 2",
      "",
    ]);
    const [root] = JSON.parse((await bx(["tree", "chat-1", "--json", "--home", home])).stdout);
    assertEquals(root.children.map((child: { session: string }) => child.session), [
      "sub-chat-1-3",
      "sub-chat-1-4",
    ]);
    const missing = await bx(["tree", "chat-9", "--home", home]);
    assertEquals([missing.code, missing.stdout], [1, ""]);
  }));

Deno.test("F33 tree adds each request once: own tokens for a leaf, own and all below for a parent", () =>
  withRoles(async ({ home, loopd }) => {
    const usage = (promptTokens: number, cachedTokens: number, completionTokens: number) => ({
      usage: { promptTokens, cachedTokens, completionTokens },
    });
    const rows = [
      sessionRow("chat-1", usage(1_000, 900, 10)),
      sessionRow("sub-chat-1-3", { parent: "chat-1", ...usage(200, 50, 20) }),
      sessionRow("sub-sub-chat-1-3-1", { parent: "sub-chat-1-3", ...usage(30, 0, 3) }),
    ];
    loopd.get("/v1/sessions", (c) => c.json({ sessions: rows }));
    assertEquals((await bx(["tree", "--home", home])).stdout.split("\n"), [
      "chat-1  idle  private  slot 0  tree 280 computed, 950 cached, 33 written",
      "└─ sub-chat-1-3  idle  private  slot 0  tree 180 computed, 50 cached, 23 written",
      "   └─ sub-sub-chat-1-3-1  idle  private  slot 0  30 computed, 0 cached, 3 written",
      "",
    ]);
    const [root] = JSON.parse((await bx(["tree", "--json", "--home", home])).stdout);
    assertEquals(root.treeUsage, { promptTokens: 1_230, cachedTokens: 950, completionTokens: 33 });
    assertEquals(root.usage, { promptTokens: 1_000, cachedTokens: 900, completionTokens: 10 });
  }));

Deno.test("B11 sessions lists rows for people, and the pinned array with --json", () =>
  withRoles(async ({ home, loopd }) => {
    const rows = [
      sessionRow("chat-1", { cachedShare: 0.966, turns: 12 }),
      sessionRow("job-morning", { kind: "job" }),
    ];
    loopd.get("/v1/sessions", (c) => c.json({ sessions: rows }));
    assertEquals((await bx(["sessions", "--home", home])).stdout.split("\n"), [
      "session      status  label    slot  turns  cached",
      "chat-1       idle    private  0     12     97 %",
      "job-morning  idle    private  0     1      -",
      "",
    ]);
    assertEquals(JSON.parse((await bx(["sessions", "--json", "--home", home])).stdout), rows);
  }));

Deno.test("S17 log shows a child's records safely, one JSON a line with --json", () =>
  withRoles(async ({ home, asked, loopd }) => {
    const time = "2026-12-01T10:00:00.000Z";
    const records = [
      { kind: "epoch", time, epoch: 1, system: "abc", tools: "[]" },
      { kind: "user", time, turn: 1, text: "do it\x1b[2J\nnow" },
      {
        kind: "assistant",
        time,
        turn: 1,
        content: "",
        thinking: "hm",
        calls: [{ call: 1, name: "call_tool", arguments: '{"name":"consult"}' }],
        slot: 2,
        timings: { cacheN: 90, promptN: 10, predictedN: 5 },
        lostN: 3,
        queuedMs: 0,
        firstTokenMs: 40,
        elapsedMs: 1_234,
      },
      {
        kind: "result",
        time,
        call: 1,
        tool: "consult",
        status: "denied",
        code: "NoGrant",
        text: "denied",
        label: privateLabel,
      },
      { kind: "newer", time, thing: { a: 1 } },
      { kind: "end", time, turn: 1, status: "failed", reason: "empty" },
      { kind: "end", time, turn: 2, status: "cancelled", reason: "cancelled", detail: "by the owner" },
    ];
    loopd.get("/v1/sessions/:id/log", (c) => c.json({ records }));
    assertEquals(
      (await bx(["log", "sub-chat-1-3", "--home", home])).stdout.replaceAll(time, "T").split("\n"),
      [
        "T  epoch  system 3 characters  tools 2 characters  epoch=1",
        "T  user  turn 1",
        "    do it⟨U+001B⟩[2J",
        "    now",
        "T  assistant  turn 1  slot 2  cached 90 of 100 tokens, wrote 5  lost 3  first token 40 ms  in all 1.2 s",
        "    hm",
        '    [1] call_tool {"name":"consult"}',
        "T  result  [1]  consult  denied  NoGrant  (private)",
        "    denied",
        'T  newer  thing={"a":1}',
        "T  end  turn 1  failed  empty",
        "T  end  turn 2  cancelled",
        "    by the owner",
        "",
      ],
    );
    const { stdout } = await bx(["log", "sub-chat-1-3", "--json", "--home", home]);
    assertEquals(stdout.trimEnd().split("\n").map((line) => JSON.parse(line)), records);
    assertEquals(asked[0].path, "/v1/sessions/sub-chat-1-3/log");
  }));

Deno.test("F32 log --follow shows records as they come and ends on Ctrl-C with 0", () =>
  withRoles(async ({ home, asked, loopd }) => {
    loopd.get("/v1/sessions/:id/log", () =>
      new Response(
        new ReadableStream({
          start(controller) {
            for (const text of ["first", "second"]) {
              const data = JSON.stringify({ kind: "user", time: "t", text });
              controller.enqueue(new TextEncoder().encode(`event: record\ndata: ${data}\n\n`));
            }
          },
        }),
        { headers: { "content-type": "text/event-stream" } },
      ));
    let interrupt = () => {};
    const { code, stdout } = await bx(["log", "chat-1", "--follow", "--home", home], {
      onStart: (press) => interrupt = press,
      onWrite: (text) => {
        if (text.includes("second")) interrupt();
      },
    });
    assertEquals([code, stdout], [0, "t  user\n    first\nt  user\n    second\n"]);
    assertEquals(asked[0].path, "/v1/sessions/chat-1/log?follow=1");
  }));

Deno.test("B11 cancel, forget and retire ask for what they say", () =>
  withRoles(async ({ home, asked, loopd, brokerd }) => {
    loopd.post("/v1/sessions/:id/:act", (c) => c.json({ status: "ok" }));
    brokerd.post("/v1/retire", (c) => c.json({ status: "ok" }));
    for (const word of ["cancel", "forget", "retire"]) {
      assertEquals((await bx([word, "job-morning", "--home", home])).code, 0);
    }
    assertEquals(asked.map(({ path, body }) => [path, body]), [
      ["/v1/sessions/job-morning/cancel", {}],
      ["/v1/sessions/job-morning/forget", {}],
      ["/v1/sessions/job-morning/retire", {}],
      ["/v1/retire", { session: "job-morning" }],
    ]);
  }));

for (
  const [code, exit, warning] of [
    ["unknown-session", 0, ""],
    ["busy", 1, "loopd refused: no (busy)"],
  ] as const
) {
  Deno.test(`B11 retire exits ${exit} where loopd answers ${code}`, () =>
    withRoles(async ({ home, asked, loopd, brokerd }) => {
      loopd.post("/v1/sessions/:id/retire", (c) => c.json({ status: "error", code, text: "no" }, 409));
      brokerd.post("/v1/retire", (c) => c.json({ status: "ok", session: "heartbeat" }));
      const result = await bx(["retire", "heartbeat", "--home", home]);
      assertEquals([result.code, asked.length], [exit, exit === 0 ? 2 : 1]);
      assertEquals(result.stdout, exit === 0 ? "retired heartbeat; its id begins anew\n" : "");
      assertStringIncludes(result.stderr, warning);
    }));
}

Deno.test("B11 cancel says when there was nothing to cancel", () =>
  withRoles(async ({ home, loopd }) => {
    loopd.post("/v1/sessions/:id/cancel", (c) => c.json({ status: "ok", cancelled: false }));
    assertEquals((await bx(["cancel", "chat-1", "--home", home])).stdout, "chat-1 runs no turn\n");
  }));
