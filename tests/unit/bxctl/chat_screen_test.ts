// A conversation on a terminal that can be redrawn, against scripted roles: what a key may decide and when, what a message may hold, and
// that lines keep their place. The same on a real terminal with the real roles is tests/system/chat_terminal_test.ts.

import { assertEquals, assertStringIncludes } from "@std/assert";
import { streamSSE } from "hono/streaming";
import { inputParser } from "../../../tools/bxctl/chat_keys.ts";
import { cutLine, lastLines, type Line, LiveScreen } from "../../../tools/bxctl/chat_screen.ts";
import { painter, width } from "../../../tools/bxctl/render.ts";
import {
  bx,
  type FakeHome,
  FakeScreen,
  outcome,
  privateLabel,
  sessionRow,
  streamTurn,
  withRoles,
} from "./fake_roles.ts";

function serveSession({ loopd }: FakeHome): void {
  loopd.get("/v1/sessions", (c) => c.json({ sessions: [sessionRow("chat-1")] }));
  loopd.get("/v1/sessions/:id/log", (c) => c.json({ records: [] }));
}

/** A chat with `chat-1` on this screen, and its end. */
async function chatOn(fake: FakeHome, screen: FakeScreen, person: () => Promise<void>) {
  const [result] = await Promise.all([bx(["chat", "chat-1", "--home", fake.home], { screen }), person()]);
  assertEquals(screen.isOpen, false);
  return result;
}

const prompt = /chat-1 private · slot 0 ›$/;

function approval(body: string, fields: Record<string, unknown> = {}) {
  return {
    id: "a7",
    status: "pending",
    session: "sub-chat-1-1",
    ancestors: ["chat-1"],
    call: 1,
    tool: "consult",
    label: privateLabel,
    grant: 1,
    body,
    bodySha256: "0".repeat(64),
    expiresAt: "2026-12-01T10:00:00.000Z",
    ...fields,
  };
}

/** A turn whose one call waits until the approval is decided, or `settle` is called. */
function serveApproval(fake: FakeHome, body: string) {
  serveSession(fake);
  const settled = Promise.withResolvers<void>();
  let pending = true;
  const decisions: unknown[] = [];
  fake.loopd.post("/v1/sessions/:id/turns", (c) =>
    streamSSE(c, async (stream) => {
      const send = (event: string, data: unknown) => stream.writeSSE({ event, data: JSON.stringify(data) });
      await send("call", { call: 1, tool: "call_tool", arguments: '{"name":"consult","arguments":{}}' });
      await settled.promise;
      await send("result", { call: 1, tool: "consult", status: "ok", text: "", label: privateLabel });
      await send("done", outcome("chat-1"));
    }));
  const another = approval("of somebody else", { id: "a1", session: "chat-2", ancestors: [] });
  fake.brokerd.get(
    "/v1/approvals",
    (c) => c.json({ approvals: [another, ...pending ? [approval(body)] : []] }),
  );
  fake.brokerd.post("/v1/approvals/:id", async (c) => {
    decisions.push({ id: c.req.param("id"), ...await c.req.json() });
    settled.resolve();
    return c.json({ status: "ok" });
  });
  return { decisions, decideElsewhere: () => pending = false, settle: () => settled.resolve() };
}

const question = /a7: y approves these bytes, n denies, s shows all again ›$/;

Deno.test("B10 a key pressed before the question decides nothing and waits for the next message; after it y approves those bytes", () =>
  withRoles(async (fake) => {
    const { decisions } = serveApproval(fake, '{"question":"safe?"}');
    const screen = new FakeScreen(80, 24);
    await chatOn(fake, screen, async () => {
      await screen.shows(prompt);
      screen.type("ask\r");
      // The body is there, the question is not yet.
      await screen.shows(/exactly:\n{"question":"safe\?"}\n/);
      screen.type("y");
      await screen.shows(question);
      assertEquals(decisions, []);
      screen.type("y");
      await screen.shows(/✓ \[1\] consult {} → ok \(private\).*\n[^]*› y$/);
      screen.type("\x15\x04");
    });
    assertEquals(decisions, [{ id: "a7", decision: "approve", bodySha256: "0".repeat(64) }]);
    assertStringIncludes(screen.model.text, "\napproved a7\n");
    assertEquals(screen.model.text.includes("somebody else"), false);
  }));

Deno.test("B10 y on a body that is not shown whole shows the rest and asks again; n denies at once", () =>
  withRoles(async (fake) => {
    const body = `${"x".repeat(3_000)}\u202eEND`;
    const { decisions } = serveApproval(fake, body);
    const screen = new FakeScreen(80, 24);
    await chatOn(fake, screen, async () => {
      await screen.shows(prompt);
      screen.type("ask\r");
      await screen.shows(/… 1804 more characters\n[^]*a7: s shows all, which comes before y; n denies ›$/);
      assertEquals(screen.model.text.includes("END"), false);
      screen.type("y");
      await screen.shows(/⟨U\+202E⟩END\n[^]*s shows all again ›$/);
      assertEquals(decisions, []);
      screen.type("N");
      await screen.shows(/consult {} → ok \(private\).*\n[^]*slot 0 ›$/);
      screen.type("\x04");
    });
    assertEquals(decisions, [{ id: "a7", decision: "deny", bodySha256: "0".repeat(64) }]);
  }));

Deno.test("B10 a question whose approval was decided elsewhere goes away, and its keys are text again", () =>
  withRoles(async (fake) => {
    const { decisions, decideElsewhere, settle } = serveApproval(fake, "{}");
    const screen = new FakeScreen(80, 24);
    await chatOn(fake, screen, async () => {
      await screen.shows(prompt);
      screen.type("ask\r");
      await screen.shows(question);
      decideElsewhere();
      await screen.shows(/a7 waits no longer/);
      screen.type("y");
      settle();
      await screen.shows(/slot 0 › y$/);
      screen.type("\x15\x04");
    });
    assertEquals(decisions, []);
  }));

for (
  const [words, lines] of [[["send", "chat-1", "ask"], []], [["chat", "chat-1"], ["ask"]]] as const
) {
  Deno.test(`B10 ${words[0]} on a pipe says once how the call of a child that waits is decided on, and nothing of another session's`, () =>
    withRoles(async (fake) => {
      let looks = 0;
      fake.brokerd.use("/v1/approvals", async (_, next) => {
        await next();
        looks++;
        if (looks === 2) settle();
      });
      const { settle } = serveApproval(fake, "{}");
      const { code, stdout, stderr } = await bx([...words, "--home", fake.home], { lines });
      assertEquals([code, stdout], [0, "Four.\n"]);
      assertEquals(stderr, "bx: consult of sub-chat-1-1 waits for you: bx approvals show a7\n");
    }));
}

Deno.test("B11 a long paste is shown as its size and sent whole; a short one is shown as it is sent", () =>
  withRoles(async (fake) => {
    serveSession(fake);
    streamTurn(fake.loopd, [["done", outcome("chat-1")]]);
    const screen = new FakeScreen(80, 24);
    const lines = Array.from({ length: 9 }, (_, index) => `line ${index}`).join("\n");
    await chatOn(fake, screen, async () => {
      await screen.shows(prompt);
      screen.type(`see \x1b[200~${lines}\r\n\x1b[201~ there`);
      await screen.shows(/› see \[paste 1: 9 lines, 62 characters\] there$/);
      screen.type("\r");
      await screen.shows(/there\n[^]*slot 0 ›$/);
      screen.type("\x1b[200~a\r\nb\u200b\x1b[201~");
      await screen.shows(/› a\nb⟨U\+200B⟩$/);
      screen.type("\r");
      await screen.shows(/200B⟩\n[^]*slot 0 ›$/);
      // The history brings a paste back with all that it stands for; Tab completes a word of the chat's own.
      screen.type("\x1b[A\x1b[A\r");
      await screen.shows(/there\n[^]*there\n[^]*slot 0 ›$/);
      screen.type("/qu\t\r");
    });
    const turns = fake.asked.filter(({ path }) => path.endsWith("/turns"));
    const sent = { text: `see ${lines} there` };
    assertEquals(turns.map(({ body }) => body), [sent, { text: "a\nb⟨U+200B⟩" }, sent]);
  }));

Deno.test("B11 /think shows the folded thinking of the last turn, and the next one in full", () =>
  withRoles(async (fake) => {
    serveSession(fake);
    streamTurn(fake.loopd, [["thinking", { text: "hm\x1b" }], ["delta", { text: "Four." }], [
      "done",
      outcome("chat-1"),
    ]]);
    const screen = new FakeScreen(80, 24);
    await chatOn(fake, screen, async () => {
      await screen.shows(prompt);
      screen.type("one\r");
      await screen.shows(/one\nthought for \d+ ms\nFour\.\n.*slot 0 ›$/);
      screen.type("/think\r");
      await screen.shows(/in full\nhm⟨U\+001B⟩\n.*slot 0 ›$/);
      screen.type("two\r");
      await screen.shows(/two\nhm⟨U\+001B⟩\nFour\.\n.*slot 0 ›$/);
      screen.type("\x04");
    });
  }));

Deno.test("B11 a terminal that goes away ends the conversation and gives the terminal back", () =>
  withRoles(async (fake) => {
    serveSession(fake);
    const screen = new FakeScreen(80, 24);
    const { code } = await chatOn(fake, screen, async () => {
      await screen.shows(prompt);
      screen.hangUp();
    });
    assertEquals(code, 0);
  }));

Deno.test("B11 a paste is one event however it is cut into pieces, and a newline in it presses nothing", () => {
  const text = "a\x1b[200~b\r\x1b[2\x1b[201~\r\x1b[A";
  for (let at = 0; at <= text.length; at++) {
    const events: string[] = [];
    const push = inputParser({
      onKey: (_, key) => events.push(key.name ?? "?"),
      onPaste: (pasted) => events.push(`paste ${JSON.stringify(pasted)}`),
    });
    push(text.slice(0, at));
    push(text.slice(at));
    assertEquals(events, ["a", 'paste "b\\r\\u001b[2"', "return", "up"], `cut at ${at}`);
  }
});

Deno.test("B11 live lines keep their place: cut by width, no more than there are rows, text that stays above them, over a resize", () => {
  const screen = new FakeScreen(20, 6);
  const live = new LiveScreen({ screen, write: (text) => screen.write(text), paint: painter(true) });
  let lines: Line[] = [[["cyan", "日本語日本語日本語日本語"]], ["second"]];
  live.print("before");
  live.live(() => lines);
  assertEquals(screen.model.text, "before\n日本語日本語日本語…\nsecond");
  live.print("between");
  assertEquals(screen.model.text, "before\nbetween\n日本語日本語日本語…\nsecond");
  screen.resize(9);
  live.resize();
  assertEquals(screen.model.text, "before\nbetween\n日本語…\nsecond");
  lines = Array.from({ length: 9 }, (_, index) => [`${index}`]);
  live.print("more");
  assertEquals(screen.model.text, "before\nbetween\nmore\n0\n5\n6\n7\n8");
  live.settle([["all of it, as wide as it is"]]);
  assertStringIncludes(screen.model.text.replaceAll("\n", ""), "moreall of it, as wide as it is");
  assertStringIncludes(screen.model.raw, "\x1b[?7h\x1b[?25hall of it");
});

Deno.test("B11 a line of N columns stays whole in N, and in N-1 it ends with an ellipsis and is no wider", () => {
  const line: Line = ["ab", ["bold", "日本"], "c"];
  const text = (cut: Line) => cut.map((piece) => typeof piece === "string" ? piece : piece[1]).join("");
  assertEquals(text(cutLine(line, 7)), "ab日本c");
  assertEquals(text(cutLine(line, 6)), "ab日…");
  for (let columns = 1; columns < 7; columns++) {
    assertEquals(width(text(cutLine(line, columns))) <= columns, true);
  }
  assertEquals(lastLines("one two\nthree", 4, 3), ["two", "thre", "e"]);
  assertEquals(lastLines("0123456789".repeat(99) + "01", 10, 2), ["0123456789", "01"]);
});
