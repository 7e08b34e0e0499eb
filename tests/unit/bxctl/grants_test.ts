// Approvals, grants and consult previews: the owner sees the exact bytes, and decides on those bytes alone.

import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { bx, privateLabel, sessionRow, withRoles } from "./fake_roles.ts";

const hash = "b".repeat(64);
const body = '{"model":"m","messages":[{"role":"user","content":"two\u202elines"}]}';
const approval = {
  id: "a-7",
  status: "pending",
  session: "sub-chat-1-3",
  ancestors: ["chat-1"],
  call: 2,
  tool: "consult",
  label: privateLabel,
  grant: 1,
  body,
  bodySha256: hash,
  expiresAt: "2026-12-01T12:00:00.000Z",
};

Deno.test("F9 approvals lists who waits with ancestry, tool and label; show prints the exact body", () =>
  withRoles(async ({ home, brokerd }) => {
    brokerd.get("/v1/approvals", (c) => c.json({ approvals: [approval] }));
    const list = (await bx(["approvals", "--home", home])).stdout;
    assertMatch(list, /a-7 +consult +sub-chat-1-3 < chat-1 +private +\d+ +2026-12-01T12:00:00\.000Z/);
    const show = (await bx(["approvals", "show", "a-7", "--home", home])).stdout;
    assertStringIncludes(show, body.replace("\u202e", "⟨U+202E⟩"));
    assertStringIncludes(show, `sha256    ${hash}`);
    assertEquals(
      JSON.parse((await bx(["approvals", "show", "a-7", "--json", "--home", home])).stdout),
      approval,
    );
    const missing = await bx(["approvals", "show", "a-8", "--home", home]);
    assertEquals([missing.code, missing.stdout], [1, ""]);
    assertStringIncludes(missing.stderr, "no approval a-8 waits");
    assertStringIncludes(missing.stderr, "docs/runbook.md#approval");
  }));

for (const [word, decision] of [["approve", "approve"], ["deny", "deny"]] as const) {
  Deno.test(`B10 approvals ${word} decides on the hash of the body that it shows`, () =>
    withRoles(async ({ home, asked, brokerd }) => {
      brokerd.get("/v1/approvals", (c) => c.json({ approvals: [approval] }));
      brokerd.post("/v1/approvals/:id", (c) => c.json({ status: "ok" }));
      const { code, stdout } = await bx(["approvals", word, "a-7", "--home", home]);
      assertEquals(code, 0);
      assertStringIncludes(stdout, "two⟨U+202E⟩lines");
      assertEquals(asked.at(-1), {
        method: "POST",
        path: "/v1/approvals/a-7",
        body: { decision, bodySha256: hash },
      });
    }));
}

Deno.test("F31 an approval for other bytes decides nothing", () =>
  withRoles(async ({ home, asked, brokerd }) => {
    brokerd.get("/v1/approvals", (c) => c.json({ approvals: [approval] }));
    brokerd.post(
      "/v1/approvals/:id",
      (c) => c.json({ status: "error", code: "void", text: "it is void" }, 409),
    );
    const other = await bx(["approvals", "approve", "a-7", "--body", "c".repeat(64), "--home", home]);
    assertEquals([other.code, asked.length], [1, 1]);
    assertStringIncludes(other.stderr, "nothing was decided");
    const late = await bx(["approvals", "approve", "a-7", "--body", hash, "--home", home]);
    assertEquals(late.code, 1);
    assertStringIncludes(late.stderr, "could not be decided any more");
  }));

Deno.test("B7 grants check asks with the label given and tells what is lacking", () =>
  withRoles(async ({ home, asked, brokerd }) => {
    const answer = {
      status: "ok",
      verdict: "deny",
      code: "TaintTooHigh",
      cause: "untrusted",
      label: { class: "private", untrusted: true },
      grant: 1,
      lacks: "allow_untrusted = true",
      text: "The session is untrusted.",
    };
    brokerd.post("/v1/check", (c) => c.json(answer));
    const words = ["grants", "check", "--tool", "consult", "--class", "private"];
    const { code, stdout } = await bx([...words, "--untrusted", "--home", home]);
    assertEquals(code, 0);
    assertEquals(stdout.split("\n"), [
      "deny (TaintTooHigh, untrusted)",
      "label     private, untrusted",
      "grant     1 of grants.toml",
      "lacks     allow_untrusted = true",
      "The session is untrusted.",
      "",
    ]);
    assertEquals(JSON.parse((await bx([...words, "--json", "--home", home])).stdout), answer);
    assertEquals(asked.map(({ body }) => body), [
      { tool: "consult", label: { class: "private", untrusted: true } },
      { tool: "consult", label: { class: "private", untrusted: false } },
    ]);
  }));

Deno.test("C2 consult preview shows the exact body for the session's label and sends nothing else", () =>
  withRoles(async ({ home, asked, loopd, brokerd }) => {
    const label = { class: "secret", untrusted: true };
    loopd.get("/v1/sessions", (c) => c.json({ sessions: [sessionRow("chat-1", { label })] }));
    brokerd.post(
      "/v1/check",
      (c) =>
        c.json({
          status: "ok",
          verdict: "allow",
          label,
          grant: 2,
          body,
          bodySha256: hash,
          text: "It would be sent.",
        }),
    );
    const { code, stdout } = await bx(["consult", "preview", "chat-1", "What", "is 2+2?", "--home", home]);
    assertEquals(code, 0);
    assertStringIncludes(stdout, body.replace("\u202e", "⟨U+202E⟩"));
    assertEquals(asked.map(({ path, body }) => [path, body]), [
      ["/v1/sessions", undefined],
      ["/v1/check", { tool: "consult", session: "chat-1", label, arguments: { question: "What is 2+2?" } }],
    ]);
  }));

Deno.test("B7 grants reload asks brokerd, and a refusal is told", () =>
  withRoles(async ({ home, brokerd }) => {
    let answers = 0;
    brokerd.post(
      "/v1/grants/reload",
      (c) =>
        answers++ === 0 ? c.json({ status: "ok" }) : c.json({
          status: "error",
          code: "config-fault",
          text: "grants.toml:3: grant[1].tol: unknown key",
        }, 409),
    );
    assertEquals((await bx(["grants", "reload", "--home", home])).code, 0);
    const refused = await bx(["grants", "reload", "--home", home]);
    assertEquals([refused.code, refused.stdout], [1, ""]);
    assertStringIncludes(refused.stderr, "grants.toml:3: grant[1].tol: unknown key");
  }));
