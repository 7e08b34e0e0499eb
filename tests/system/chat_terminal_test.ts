// A conversation as a person has it: `bx chat` in a real pseudo-terminal, under the flags that the launcher gives it, with the real roles
// behind it. Only the model and the cloud are practice servers, so that a test can hold them while it looks at the screen.

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { makePrivateHome, type PrivateHome } from "../../tools/demo/private_home.ts";
import { startRoles } from "../../tools/demo/running_roles.ts";
import { ownEnvironment, personEnvironment } from "../../tools/launch/environment.ts";
import { ownRoot } from "../../tools/launch/root.ts";
import { startConsultEndpoint } from "../../tools/stubs/consult_endpoint.ts";
import { startModelStub } from "../../tools/stubs/model.ts";
import { phrases, withoutTimeLine } from "../../tools/stubs/model_phrases.ts";
import { lastText, type Reply, type ScriptRequest } from "../../tools/stubs/model_script.ts";
import { TestTerminal } from "../support/terminal.ts";

/** A program of the launcher as its task starts it. */
function inTerminal(
  program: string,
  words: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<TestTerminal> {
  return TestTerminal.start({
    args: [
      ...["run", "-q", "--no-prompt", "--frozen", "--config", `${ownRoot}/deno.json`, "-A"],
      `${ownRoot}/tools/launch/${program}.ts`,
      ...words,
    ],
    env: { ...personEnvironment(ownEnvironment()), NO_COLOR: "", TERM: "xterm-256color", ...env },
    columns: 90,
    rows: 30,
  });
}

/** What a model that means harm would write to a terminal: a title, colours, text that runs backwards. */
const hostile = "\x1b]0;owned\x07\x1b[31m\u202egnirts\x9b2J";
const harmless = "⟨U+001B⟩]0;owned⟨U+0007⟩⟨U+001B⟩[31m⟨U+202E⟩gnirts⟨U+009B⟩2J";
const consultAnswer = "Yes, it is.";

async function withConversation(
  work: (stage: {
    home: PrivateHome;
    model: Awaited<ReturnType<typeof startModelStub>>;
    recorder: Awaited<ReturnType<typeof startConsultEndpoint>>;
    /** Lets the held requests go on. */
    release: (name: "thought" | "child") => void;
  }) => Promise<void>,
): Promise<void> {
  const holds = { thought: Promise.withResolvers<void>(), child: Promise.withResolvers<void>() };
  const practise = phrases();
  const script = (request: ScriptRequest): Reply | Promise<Reply> => {
    const said = withoutTimeLine(lastText(request.messages));
    if (said.startsWith("be hostile")) {
      return {
        thinking: `a plan ${hostile}`,
        content: `answer ${hostile}`,
        chunkBytes: 4_096,
        beforeChunk: (number) => number === 1 ? holds.thought.promise : undefined,
      };
    }
    if (said.startsWith("be slow")) return { content: "late", hold: holds.child.promise };
    if (said.startsWith("say nothing")) return { fault: { kind: "silent", headers: true } };
    return practise(request);
  };
  await using model = await startModelStub({ script });
  await using recorder = await startConsultEndpoint({
    behaviour: { kind: "answer", content: consultAnswer },
  });
  await using home = await makePrivateHome({
    loopdToml: `[inference]\nurl = "${model.url}"\n[clock]\ntime_zone = "UTC"\n`,
    brokerdToml: `[consult]\nurl = "${recorder.url}"\nmodel = "practice-cloud"\nsecret = "consult"\n`,
    grantsToml: `[[grant]]\ntool = "consult"\nmax_taint = "private"\nallow_untrusted = true\nmode = "ask"\n`,
    secrets: { consult: "practice-key" },
  }, { prefix: "bx-chat-" });
  await using _roles = await startRoles(home.paths, {
    own: ownEnvironment(),
    signal: new AbortController().signal,
  });
  await work({ home, model, recorder, release: (name) => holds[name].resolve() });
}

Deno.test("B10 B11 a conversation in a terminal: thinking folds, calls resolve in place, children nest, an approval is answered with y, Ctrl-C cancels", () =>
  withConversation(async ({ home, model, recorder, release }) => {
    await using terminal = await inTerminal("command", ["chat", "--home", home.paths.home]);
    const { screen } = terminal;
    await terminal.shows(/chat-\w+ private · slot 0 ›/);
    const session = /(chat-\w+) private/.exec(screen.text)?.[1] ?? "";
    const prompt = `${session} private · slot 0 ›`;
    /** The prompt stands below this, ready for the next message. */
    const promptAfter = (what: string) => terminal.shows(new RegExp(`${what}[^]*${prompt}$`));

    await terminal.type("be hostile\r");
    await terminal.shows(/thinking [\d.]+ m?s\na plan ⟨U\+001B⟩/);
    assert(screen.text.endsWith(`a plan ${harmless}`), screen.text);
    release("thought");
    await promptAfter("first token");
    assertMatch(
      screen.text,
      /be hostile\nthought for .*s\nanswer ⟨U\+001B⟩.*\nkept 0 of \d+ tokens \(0 %\) · first token .*s · wrote \d+\n/,
    );
    assertStringIncludes(screen.text, `answer ${harmless}`);
    assertEquals(screen.text.includes("a plan"), false);

    await terminal.type("what time is it\r");
    await promptAfter("clock answered");
    assertStringIncludes(screen.text, "\n✓ [1] clock {} → ok (public)\n");
    assertEquals(screen.text.split("[1] clock").length, 2, "the line resolved in its place");

    await terminal.type(
      "delegate: delegate: be slow, and this task is so long that its line must be cut on this terminal\r",
    );
    const nested = new RegExp(
      `\\S \\[2\\] subagent .*…\n  \\S sub-${session}-2 .*…\n    \\S \\[1\\] subagent .*…\n      \\S sub-sub-${session}-2-1 be slow.*$`,
    );
    await terminal.shows(nested);
    await terminal.resize(48, 30);
    await terminal.shows(new RegExp(`\n[^\n]{47}\n {2}\\S sub-${session}-2 [^\n]{0,47}\n[^]*$`));
    await terminal.resize(90, 30);
    await terminal.shows(nested);
    assertEquals(screen.text.split("[2] subagent").length, 2, screen.text);
    release("child");
    await promptAfter("subagent answered");
    assertMatch(
      screen.text,
      new RegExp(
        `\n✓ \\[2\\] subagent [^]*\n  ✓ sub-${session}-2 [^]*\n      ✓ sub-sub-${session}-2-1 late\n`,
      ),
    );

    await terminal.type("ask the cloud: is it safe?\r");
    await terminal.shows(/y approves these bytes, n denies, s shows all again ›$/);
    const exact = '{"model":"practice-cloud"';
    assertStringIncludes(screen.text, exact);
    assertEquals(recorder.requests.length, 0);
    await terminal.type("y");
    const untrustedPrompt = `${session} private, untrusted · slot 0 ›`;
    await terminal.shows(new RegExp(`consult answered[^]*${untrustedPrompt}$`));
    assertMatch(screen.text, /\napproved .*\n✓ \[3\] consult .* → ok \(private, untrusted\)/);
    const sent = new TextDecoder().decode(recorder.requests[0].content);
    assertStringIncludes(screen.text.replaceAll("\n", ""), sent);

    await terminal.type("say nothing\r");
    await model.waitFor(({ messages }) => lastText(messages).includes("say nothing"));
    await terminal.type("\x03");
    await terminal.shows(new RegExp(`was cancelled[^]*${untrustedPrompt}$`));

    // Up brings the last message back; two lines, and a wide character deleted in the middle, make one message.
    await terminal.type("\x1b[A");
    await terminal.shows(new RegExp(`${untrustedPrompt} say nothing$`));
    await terminal.type("\x15one 日本\x1b[D\x7fx\x05\x1b\rtwo");
    await terminal.shows(/› one x本\ntwo$/);
    await terminal.paste("\nthree\x1b[31m\n");
    await terminal.shows(/› one x本\ntwo\nthree⟨U\+001B⟩\[31m$/);
    await terminal.type("\r");
    await terminal.shows(/“one x本 two\s+three[^]*›$/);
    const asked = model.requests.at(-1)?.messages ?? [];
    assertEquals(lastText(asked), "one x本\ntwo\nthree⟨U+001B⟩[31m");

    await terminal.type("/quit\r");
    assertEquals(await terminal.ended(), 0);
    assertStringIncludes(screen.text, `left ${session}; go on with: deno task chat ${session}`);
    assertMatch(screen.raw, /[ ;]icanon [^]* echo /, "the terminal is given back as it was");

    // The same session in a terminal without colour, and in one that cannot be redrawn.
    await using mono = await inTerminal("command", ["chat", session, "--home", home.paths.home], {
      NO_COLOR: "1",
    });
    await mono.shows(new RegExp(`\n› one x本\ntwo\nthree.*\nThis is the practice[^]*${untrustedPrompt}$`));
    // deno-lint-ignore no-control-regex
    assertEquals(/\x1b\[[0-9;]*m/.test(mono.screen.raw), false);
    // deno-lint-ignore no-control-regex
    assertMatch(screen.raw, /\x1b\[2m/);
    await mono.type("\x1b[A\x1b[A\x1b[A\r");
    await mono.shows(/y approves[^]*›$/);
    await mono.type("n");
    await mono.shows(/\ndenied .*\n✗ \[4\] consult .* → denied ApprovalDenied[^]*›$/);
    assertEquals(recorder.requests.length, 1);
    await mono.type("\x04");
    assertEquals(await mono.ended(), 0);

    await using dumb = await inTerminal("command", ["chat", session, "--home", home.paths.home], {
      TERM: "dumb",
    });
    await dumb.shows(new RegExp(`${untrustedPrompt}$`));
    await dumb.type("what time is it\n");
    await dumb.shows(/\[5\] clock {} → ok \(public\)\nclock answered[^]*kept [^]*›$/);
    assertEquals(dumb.screen.raw.includes("\x1b"), false);
    await dumb.type("/quit\n");
    assertEquals(await dumb.ended(), 0);
  }));

Deno.test("B11 deno task chat in a terminal starts everything, talks, and on Ctrl-C twice leaves nothing running", async () => {
  const outer = await Deno.makeTempDir({ prefix: "bx-first-" });
  try {
    const home = `${await Deno.realPath(outer)}/home`;
    await using terminal = await inTerminal("chat", ["--home", home]);
    await terminal.shows(/chat-\w+ private · slot 0 ›$/);
    await terminal.type("what time is it\r");
    await terminal.shows(/✓ \[1\] clock {} → ok \(public\)\nclock answered[^]*›$/);
    await terminal.type("half a line");
    await terminal.shows(/› half a line$/);
    await terminal.type("\x03");
    await terminal.shows(/› half a line\nchat-\w+ private · slot 0 ›$/);
    await terminal.type("\x03");
    await terminal.shows(/Ctrl-C again to leave\nchat-\w+ private · slot 0 ›$/);
    await terminal.type("\x03");
    assertEquals(await terminal.ended(), 0);
    const launches = (await Deno.readTextFile(`${home}/audit/launches.jsonl`)).trimEnd().split("\n");
    for (const { pid } of launches.map((line) => JSON.parse(line))) {
      assertEquals(await Deno.lstat(`/proc/${pid}`).then(() => true, () => false), false);
    }
  } finally {
    await Deno.remove(outer, { recursive: true });
  }
});
