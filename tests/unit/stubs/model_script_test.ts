// How the practice model is told what to say: in-process, as JSON, over its control routes, as a program.

import { assertEquals, assertMatch, assertRejects, assertStringIncludes, assertThrows } from "@std/assert";
import { startModelStub } from "../../../tools/stubs/model.ts";
import { byPhrase, Holds, parseScript, type Script, scripted } from "../../../tools/stubs/model_script.ts";
import { ask, post, user } from "./support.ts";

const phrases: Script = () => ({ content: "a phrase" });

async function said(script: Script, text: string, slot = 0): Promise<string | undefined> {
  return (await script({ messages: [user(text)], tools: [], slot, index: 0, prompt: "" })).content;
}

function parse(value: unknown): Script {
  return parseScript(JSON.stringify(value), { holds: new Holds(), phrases });
}

Deno.test("replies come in order, for the server or for each conversation", async () => {
  const steps = ["one", { content: "two" }, () => ({ content: "three" })];
  const all = scripted(steps);
  assertEquals([await said(all, "a"), await said(all, "b"), await said(all, "a")], ["one", "two", "three"]);
  const each = scripted(steps, { per: "conversation" });
  assertEquals([await said(each, "a"), await said(each, "b"), await said(each, "a")], ["one", "one", "two"]);
});

Deno.test("a script that is used up throws, or falls back where it was told to", async () => {
  const short = scripted(["one"]);
  await said(short, "a");
  await assertRejects(() => said(short, "a"), Error, "has 1 replies");
  const falling = scripted([], { otherwise: phrases });
  assertEquals(await said(falling, "a"), "a phrase");
});

Deno.test("the first rule that matches the last message answers, as often as it may", async () => {
  const script = byPhrase([
    { when: "milk", reply: "contains", times: 1 },
    { when: /^\d+$/, reply: "digits" },
    { when: { slot: 2 }, reply: "background" },
  ], phrases);
  assertEquals(await said(script, "the milk"), "contains");
  assertEquals(await said(script, "the milk"), "a phrase");
  assertEquals(await said(script, "42"), "digits");
  assertEquals(await said(script, "x", 2), "background");
});

Deno.test("the JSON form takes lists and rules, and refuses an unknown key beside the known ones", async () => {
  assertEquals(await said(parse(["one"]), "x"), "one");
  const listed = parse({ replies: [{ content: "one" }], otherwise: "phrases" });
  assertEquals([await said(listed, "x"), await said(listed, "x")], ["one", "a phrase"]);
  const ruled = parse({
    rules: [{ when: { role: "user", pattern: "^q" }, reply: "matched" }],
    otherwise: { content: "not" },
  });
  assertEquals([await said(ruled, "query"), await said(ruled, "x")], ["matched", "not"]);
  assertThrows(() => parse([{ contents: "one" }]), Error, "the script does not fit");
  assertThrows(() => parse({ replies: [], also: 1 }), Error, "the script does not fit");
});

Deno.test("over HTTP a script is replaced, a hold released, and the requests are read", async () => {
  await using stub = await startModelStub();
  const ok = async (path: string, body: unknown) => {
    const response = await post(stub, path, body);
    await response.body?.cancel();
    return response.status;
  };
  assertEquals(await ok("/stub/script", [{ content: "held", hold: "h" }, "second"]), 200);
  assertEquals(await ok("/stub/script", [{ nonsense: 1 }]), 400);
  const held = ask(stub, { messages: [user("ä")], id_slot: 1 });
  const first = await (await fetch(`${stub.url}/stub/requests?after=0&wait=1`)).json();
  assertEquals([first.requests[0].state, first.requests[0].slot], ["running", 1]);
  assertEquals(await ok("/stub/release", { hold: "h" }), 200);
  assertEquals((await held).message.content, "held");
  await ask(stub, { messages: [user("b")] });
  const later = await (await fetch(`${stub.url}/stub/requests?after=1`)).json();
  assertEquals(later.requests.map(({ order }: { order: number }) => order), [2]);
  assertEquals([later.collisions, later.requests[0].bodyText], [
    0,
    '{"messages":[{"role":"user","content":"b"}]}',
  ]);
});

Deno.test("nextRequest gives each request once, with its exact bytes", async () => {
  await using stub = await startModelStub({ script: () => ({ content: "ok" }) });
  const body = '{ "messages" : [ {"role":"user","content":"\\u00e9 é"} ] }';
  const next = stub.nextRequest();
  for (let count = 0; count < 2; count++) {
    await (await post(stub, "/v1/chat/completions", body)).body?.cancel();
  }
  assertEquals(new TextDecoder().decode((await next).bytes), body);
  assertEquals((await stub.nextRequest()).order, 2);
});

/** Starts a stub program; gives the URL from its first line. */
async function program(
  args: string[],
): Promise<{ child: Deno.ChildProcess; url: string; rest: Promise<string> }> {
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-q", "-A", ...args],
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  const reader = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (!text.includes("\n")) text += (await reader.read()).value ?? "";
  const rest = (async () => {
    let more = "";
    for (let part = await reader.read(); !part.done; part = await reader.read()) more += part.value;
    return more;
  })();
  return { child, url: /http:\S+/.exec(text)?.[0] ?? "", rest };
}

Deno.test("as a program it takes a script, prints a line for each request, and ends on SIGTERM", async () => {
  const dir = await Deno.makeTempDir();
  try {
    await Deno.writeTextFile(`${dir}/script.json`, '["from a file"]');
    const { child, url, rest } = await program(["tools/stubs/model.ts", "--script", `${dir}/script.json`]);
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      body: JSON.stringify({ messages: [user("x")] }),
    });
    assertEquals((await response.json()).choices[0].message.content, "from a file");
    child.kill("SIGTERM");
    assertEquals((await child.status).code, 0);
    assertStringIncludes(await rest, "0001 slot 0 completed 200 cached 0");
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
});

Deno.test("as a program it says in one line why it cannot start, and exits 2", async () => {
  const dir = await Deno.makeTempDir();
  try {
    await using stub = await startModelStub();
    await Deno.writeTextFile(`${dir}/script.json`, "[");
    const table: [args: string[], reason: RegExp][] = [
      [["--script", `${dir}/script.json`], /the script is not JSON/],
      [["--script", `${dir}/none.json`], /No such file.*none\.json/],
      [["--port", String(stub.port)], /address already in use/],
    ];
    for (const [args, reason] of table) {
      const { code, stderr } = await new Deno.Command(Deno.execPath(), {
        args: ["run", "-q", "-A", "tools/stubs/model.ts", ...args],
        stdout: "null",
      }).output();
      const text = new TextDecoder().decode(stderr);
      assertEquals([code, text.trim().split("\n").length], [2, 1], text);
      assertMatch(text, reason);
    }
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
});
