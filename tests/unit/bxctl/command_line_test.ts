// The command line as a whole: every command has help with an example, usage errors exit 2 and say what is wanted, options may stand
// before or after, a role that does not run is exit 3.

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { commands } from "../../../tools/bxctl/main.ts";
import { visible } from "../../../tools/bxctl/render.ts";
import { bx, withRoles } from "./fake_roles.ts";

for (const { words, example, summary } of commands) {
  Deno.test(`B11 bx ${words} --help shows what it does, its options and an example`, async () => {
    const { code, stdout, stderr } = await bx([...words.split(" "), "--help"]);
    assertEquals([code, stderr], [0, ""]);
    assertStringIncludes(stdout.replaceAll(/\s+/g, " "), summary.replaceAll(/\s+/g, " "));
    assertStringIncludes(stdout, `Example:\n  bx ${example}\n`);
    assertStringIncludes(stdout, "--json");
    assertStringIncludes(stdout, "--home <dir>");
  });
}

for (const words of [[], ["approvals"], ["grants"], ["consult"], ["audit"]]) {
  Deno.test(`B11 bx ${words.join(" ")} --help lists its commands`, async () => {
    const { code, stdout } = await bx([...words, "--help"]);
    assertEquals(code, 0);
    assertStringIncludes(stdout, "Commands:");
    assertStringIncludes(stdout, "Example:\n  bx ");
  });
}

for (
  const [words, wanted] of [
    [["nonesuch"], "unknown command 'nonesuch'"],
    [["send"], "missing required argument 'id'"],
    [["send", "chat-1"], "missing required argument 'text'"],
    [["cancel", "a", "b"], "too many arguments"],
    [["log", "a", "--nope"], "unknown option '--nope'"],
    [["new", "--class", "topsecret"], "Allowed choices are public, private, secret"],
    [["grants", "check", "--class", "private"], "required option '--tool <tool>'"],
    [["grants", "check", "--tool", "consult"], "required option '--class <class>'"],
    [["audit", "prune"], "required option '--before <date>'"],
    [["completions", "csh"], "Allowed choices are bash, zsh, fish"],
    [["send", "Chat-1", "hi"], '"Chat-1" is no session id; wanted 1 to 64 characters of a-z, 0-9 and -'],
    [["log", "../secrets"], '"../secrets" is no session id'],
    [["sessions", "--home"], "option '--home <dir>' argument missing"],
    [["send", "a\x1b[2J", "hi"], "is no session id"],
    [["nonesuch\x1b[2J"], "unknown command 'nonesuch⟨U+001B⟩[2J'"],
  ] as const
) {
  Deno.test(`B11 bx ${visible(words.join(" "))} exits 2 and names what is wrong`, async () => {
    const { code, stdout, stderr } = await bx(words, { environment: { HOME: "/nowhere" } });
    assertEquals([code, stdout], [2, ""]);
    assertStringIncludes(stderr, wanted);
    assert(stderr.startsWith("bx: ") && !stderr.includes("\x1b"));
  });
}

Deno.test("B11 a group named alone shows its commands and exits 2", async () => {
  for (const words of [[], ["grants"], ["consult"]]) {
    const { code, stderr } = await bx(words);
    assertEquals(code, 2);
    assertStringIncludes(stderr, "Commands:");
  }
});

Deno.test("B11 --home and --json are taken before and after the command", () =>
  withRoles(async ({ home, loopd }) => {
    loopd.get("/v1/sessions", (c) => c.json({ sessions: [] }));
    for (
      const words of [
        ["--home", home, "--json", "sessions"],
        ["sessions", "--json", "--home", home],
        ["--json", "sessions", `--home=${home}`],
      ]
    ) {
      assertEquals(await bx(words), { code: 0, stdout: "[]\n", stderr: "" });
    }
  }));

Deno.test("B11 the home comes from --home, else BOXMAKER_HOME, else ~/.boxmaker", async () => {
  const socketOf = async (words: string[], environment: Record<string, string>) =>
    /on (\S+)\/run\/loop\.sock/.exec((await bx(["sessions", ...words], { environment })).stderr)?.[1];
  assertEquals(await socketOf(["--home", "/nowhere/a"], { BOXMAKER_HOME: "/nowhere/b" }), "/nowhere/a");
  assertEquals(await socketOf([], { BOXMAKER_HOME: "/nowhere/b", HOME: "/nowhere/c" }), "/nowhere/b");
  assertEquals(await socketOf([], { HOME: "/nowhere/c" }), "/nowhere/c/.boxmaker");
  const none = await bx(["sessions"]);
  assertEquals(none.code, 2);
  assertStringIncludes(none.stderr, "docs/runbook.md#home");
});

const needRoles = [
  ["chat"],
  ["new"],
  ["send", "a", "b"],
  ["sessions"],
  ["tree"],
  ["log", "a"],
  ["log", "a", "--follow"],
  ["cancel", "a"],
  ["status"],
  ["approvals"],
  ["approvals", "approve", "a"],
  ["grants", "check", "--tool", "t", "--class", "public"],
  ["grants", "reload"],
  ["audit", "head"],
  ["consult", "preview", "a", "b"],
  ["retire", "a"],
  ["forget", "a"],
];

Deno.test("F34 every command that needs a role that does not run exits 3 and says how to start it", async () => {
  for (const words of needRoles) {
    const { code, stdout, stderr } = await bx([...words, "--home", "/nowhere"]);
    assertEquals([words, code, stdout], [words, 3, ""]);
    assertStringIncludes(stderr, "deno task up --home /nowhere");
    assertStringIncludes(stderr, "docs/runbook.md#roles-not-running");
  }
});

Deno.test("B11 an answer that does not fit is a failure, never printed as if it did", () =>
  withRoles(async ({ home, loopd }) => {
    loopd.get("/v1/sessions", (c) => c.json({ sessions: [], more: "\x1b[2J" }));
    loopd.get("/v1/status", (c) => c.text("no JSON"));
    loopd.post("/v1/sessions", (c) => c.json({ status: "error", code: "x", text: "bad\x1b[2J" }, 400));
    for (const words of [["sessions"], ["status"], ["new"]]) {
      const { code, stdout, stderr } = await bx([...words, "--home", home]);
      assertEquals([code, stdout, stderr.includes("\x1b")], [1, "", false]);
    }
  }));

for (const shell of ["bash", "zsh", "fish"]) {
  Deno.test(`B11 completions for ${shell} know every command`, async () => {
    const { code, stdout } = await bx(["completions", shell, "--home", "/nowhere"]);
    assertEquals(code, 0);
    for (const { words } of commands) {
      for (const word of words.split(" ")) assertStringIncludes(stdout, word);
    }
  });
}
