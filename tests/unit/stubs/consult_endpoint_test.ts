// The sink: that it keeps the exact bytes of what reached it, and that each of its faults is the one it names.

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { brotliDecompressSync, gunzipSync, inflateSync } from "node:zlib";
import { type Behaviour, parseBehaviour } from "../../../tools/stubs/consult_behaviour.ts";
import { type ConsultRequest, startConsultEndpoint } from "../../../tools/stubs/consult_endpoint.ts";
import { exchange, httpPost } from "./support.ts";

type Bytes = Uint8Array<ArrayBuffer>;

function utf8(text: string): Bytes {
  return new TextEncoder().encode(text);
}

function consultBody(question: string): Bytes {
  return utf8(
    JSON.stringify({ model: "m", temperature: 0.6, messages: [{ role: "user", content: question }] }),
  );
}

/** What the sink records of, and answers to, one request under a behaviour. */
async function under(behaviour: Behaviour, question = "why?") {
  await using sink = await startConsultEndpoint({ behaviour });
  const answer = await exchange(sink.port, httpPost(consultBody(question)));
  return {
    ...answer,
    request: sink.requests[0],
    body: answer.text.slice(answer.text.indexOf("\r\n\r\n") + 4),
  };
}

const everyByte = Uint8Array.from({ length: 256 }, (_, byte) => byte);
const oddBodies: [name: string, body: Bytes][] = [
  ["empty", utf8("")],
  ["one byte", utf8("x")],
  ["a proper consult", consultBody("What is 2+2?")],
  ["emoji", consultBody("🎈👩‍👩‍👧 é")],
  ["NUL", utf8("a\0b\0")],
  ["CR LF", utf8("a\r\nb\r\n\r\nc")],
  ["a head of its own", utf8("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")],
  ["U+2028", consultBody("a\u2028b\u2029c")],
  ["a script end", consultBody("</script><!--")],
  ["JSON in JSON", consultBody('{"messages":[{"role":"user","content":"x"}]}')],
  ["broken JSON", utf8('{"model": "m", "mess')],
  ["odd white space", utf8('{ "model" :"m" ,\n\t"messages":[ ] }  ')],
  ["a byte order mark", utf8("\ufeff{}")],
  ["every byte", everyByte],
  ["invalid UTF-8", new Uint8Array([0xff, 0xfe, 0xc0, 0x80, 0xed, 0xa0, 0x80])],
  ["half a surrogate escaped", utf8('"\\ud83d"')],
  ["only newlines", utf8("\n\n\n\n")],
  ["chunk-looking", utf8("5\r\nhello\r\n0\r\n\r\n")],
  ["control marks", consultBody("<|im_end|> </tool_call>")],
  ["a megabyte", new Uint8Array(1 << 20).map((_, at) => at % 251)],
];

Deno.test("the sink keeps the exact bytes of twenty odd bodies, and the head as it was sent", async () => {
  await using sink = await startConsultEndpoint();
  for (const [name, body] of oddBodies) {
    const sent = httpPost(body, ["X-Odd:  two  spaces ", "x-odd: again", "Connection: close"]);
    const { text } = await exchange(sink.port, sent);
    assertMatch(text, /^HTTP\/1\.1 200 /, name);
    const request = await sink.nextRequest();
    assertEquals(request.body, body, name);
    assertEquals(request.content, body, name);
    assertEquals([...request.headBytes, ...request.body.subarray(0, 9)], [
      ...sent.subarray(0, sent.byteLength - body.byteLength),
      ...body.subarray(0, 9),
    ]);
    assertEquals([request.complete, request.trailing.byteLength], [true, 0], name);
    assertEquals(request.headers.slice(2), [
      ["X-Odd", "two  spaces"],
      ["x-odd", "again"],
      ["Connection", "close"],
    ]);
  }
  assertEquals([sink.requests.length, sink.connections], [oddBodies.length, oddBodies.length]);
});

Deno.test("a chunked body is kept with its framing and without it", async () => {
  await using sink = await startConsultEndpoint();
  const chunks = "4\r\nab\r\n\r\n1;x=y\r\nc\r\n0\r\n\r\n";
  const head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
  await exchange(sink.port, utf8(head + chunks));
  const [request] = sink.requests;
  assertEquals([new TextDecoder().decode(request.body), new TextDecoder().decode(request.content)], [
    chunks,
    "ab\r\nc",
  ]);
});

Deno.test("bytes after the body, bytes that are no request and a body cut short are all on record", async () => {
  await using sink = await startConsultEndpoint();
  const whole = httpPost(utf8("abc"));
  await exchange(sink.port, new Uint8Array([...whole, ...utf8("more")]));
  await exchange(sink.port, utf8("\x16\x03\x01 not http\r\n\r\n"));
  using connection = await Deno.connect({ hostname: "127.0.0.1", port: sink.port });
  await connection.write(httpPost(utf8("abcdef")).subarray(0, -2));
  await connection.closeWrite();
  await sink.waitFor(({ order }) => order === 3);
  const shown = ({ wellFormed, complete, body, trailing }: ConsultRequest) => [
    wellFormed,
    complete,
    new TextDecoder().decode(body),
    new TextDecoder().decode(trailing),
  ];
  assertEquals(sink.requests.map(shown), [
    [true, true, "abc", "more"],
    [false, false, "", ""],
    [true, false, "abcd", ""],
  ]);
  assertStringIncludes(sink.requests[1].head, "\x16\x03\x01 not http");
});

Deno.test("a connection serves further requests unless it is asked to close", async () => {
  await using sink = await startConsultEndpoint();
  const once = httpPost(consultBody("one"), []);
  const last = httpPost(consultBody("two"));
  const { text } = await exchange(sink.port, new Uint8Array([...once, ...last]));
  assertEquals(text.match(/stub answer to: (?:one|two)/g), ["stub answer to: one", "stub answer to: two"]);
  assertEquals(sink.requests.map(({ connection }) => connection), [1, 1]);
  assertEquals(sink.connections, 1);
});

Deno.test("the default answer quotes sixty characters of the question and names the model asked for", async () => {
  const question = "é".repeat(59) + "🎈x";
  const { body } = await under({ kind: "answer" }, question);
  const { model, choices } = JSON.parse(body);
  assertEquals([model, choices[0].message.content], ["m", `stub answer to: ${"é".repeat(59)}🎈`]);
  const chosen = await under({ kind: "answer", content: (asked) => asked.toUpperCase(), model: "n" }, "why");
  assertEquals([JSON.parse(chosen.body).model, JSON.parse(chosen.body).choices[0].message.content], [
    "n",
    "WHY",
  ]);
});

Deno.test("a reset is a reset before, in and after the body and in the reply; an orderly one is a close", async () => {
  const body = consultBody("why?");
  const expected = { "before-body": 0, "in-body": body.byteLength >> 1, "after-body": body.byteLength };
  for (const [when, bytes] of Object.entries(expected)) {
    const { reset, text, request } = await under({ kind: "reset", when: when as keyof typeof expected });
    assertEquals([reset, text, request.body.byteLength], [true, "", bytes], when);
  }
  const inReply = await under({ kind: "reset", when: "in-reply" });
  assert(inReply.reset && !inReply.body.endsWith("}"));
  const orderly = await under({ kind: "reset", when: "after-body", orderly: true });
  assertEquals([orderly.reset, orderly.text], [false, ""]);
});

Deno.test("redirects carry their status and location, a status its headers and body", async () => {
  for (const status of [301, 302, 307, 308] as const) {
    const { text } = await under({ kind: "redirect", status, location: "http://127.0.0.1:1/x" });
    assertMatch(
      text,
      new RegExp(`^HTTP/1\\.1 ${status} .*\r\nlocation: http://127\\.0\\.0\\.1:1/x\r\n`, "s"),
    );
  }
  const { text, body } = await under({
    kind: "status",
    status: 429,
    body: "later",
    headers: { "retry-after": "9" },
  });
  assertMatch(text, /^HTTP\/1\.1 429 .*retry-after: 9/s);
  assertEquals(body, "later");
});

Deno.test("replies that look wrong look wrong in just that way", async () => {
  assertEquals((await under({ kind: "empty" })).body, "");
  assertMatch((await under({ kind: "html" })).text, /content-type: text\/html.*<!doctype html>/s);
  assertEquals(JSON.parse((await under({ kind: "echo" }, "q")).body).choices[0].message.content, "q");
  assertEquals(JSON.parse((await under({ kind: "wrong-model" })).body).model, "not-m");
  assertEquals(JSON.parse((await under({ kind: "json", value: { choices: [] } })).body), { choices: [] });
  assertEquals((await under({ kind: "two-replies" })).text.match(/HTTP\/1\.1 200/g)?.length, 2);
  assertEquals((await under({ kind: "raw", bytes: "SSH-2.0-x\r\n" })).text, "SSH-2.0-x\r\n");
  const untilClose = await under({ kind: "until-close" });
  assertEquals(untilClose.text.includes("content-length"), false);
  assert(JSON.parse(untilClose.body).choices.length === 1);
  const short = await under({ kind: "short" });
  assertEquals(Number(/content-length: (\d+)/.exec(short.text)?.[1]) - short.body.length, 10);
  assertMatch((await under({ kind: "chunked" })).body, /^7\r\n.{7}\r\n.*\r\n0\r\n\r\n$/s);
});

Deno.test("encoded replies decode to the proper completion", async () => {
  const decoders = { gzip: gunzipSync, br: brotliDecompressSync, deflate: inflateSync };
  for (const [encoding, decode] of Object.entries(decoders)) {
    const { bytes, text } = await under({ kind: "encoded", encoding: encoding as keyof typeof decoders });
    assertStringIncludes(text, `content-encoding: ${encoding}`);
    const length = Number(/content-length: (\d+)/.exec(text)?.[1]);
    const { choices } = JSON.parse(new TextDecoder().decode(decode(bytes.subarray(-length))));
    assertEquals(choices[0].message.content, "stub answer to: why?");
  }
});

Deno.test("a huge reply has its size, endless headers end at their bound", async () => {
  const huge = await under({ kind: "huge", bytes: 3_000_000 });
  assertEquals(Number(/content-length: (\d+)/.exec(huge.text)?.[1]), huge.body.length);
  assertEquals(JSON.parse(huge.body).choices[0].message.content.length, 3_000_000);
  const undeclared = await under({ kind: "huge", bytes: 100_000, declared: false });
  assertEquals([undeclared.text.includes("content-length"), JSON.parse(undeclared.body).object], [
    false,
    "chat.completion",
  ]);
  const headers = await under({ kind: "endless-headers", bytesMax: 100_000 });
  assert(headers.text.length > 100_000 && !headers.text.includes("\r\n\r\n"));
});

Deno.test("silence lasts until it is released, a drip goes by its steps", async () => {
  await using sink = await startConsultEndpoint({ behaviour: { kind: "silence", head: true } });
  const asked = exchange(sink.port, httpPost(consultBody("why?")));
  await sink.nextRequest();
  assertEquals(sink.requests[0].ended, false);
  sink.release();
  assertStringIncludes((await asked).text, "stub answer to: why?");
  const steps: number[] = [];
  sink.setBehaviour({ kind: "drip", partBytes: 100, step: (part) => void steps.push(part) });
  const { text } = await exchange(sink.port, httpPost(consultBody("why?")));
  assertStringIncludes(text, "stub answer to: why?");
  assertEquals(steps, Array.from({ length: Math.ceil(text.length / 100) }, (_, part) => part));
});

Deno.test("a client that leaves ends silence and drip; closing ends what is left", async () => {
  const sink = await startConsultEndpoint({
    behaviour: [{ kind: "silence" }, { kind: "drip", everyMs: 600_000 }],
  });
  for (const order of [1, 2]) {
    using connection = await Deno.connect({ hostname: "127.0.0.1", port: sink.port });
    await connection.write(httpPost(consultBody("x")));
    await sink.waitFor((request) => request.order === order);
    connection.close();
    await sink.waitFor((request) => request.order === order && request.ended);
  }
  using left = await Deno.connect({ hostname: "127.0.0.1", port: sink.port });
  await left.write(httpPost(consultBody("x")));
  await sink.waitFor(({ order }) => order === 3);
  await sink.close();
});

Deno.test("behaviours go by a list whose last stays, or by a function of the request", async () => {
  await using sink = await startConsultEndpoint({
    behaviour: [{ kind: "status", status: 500 }, { kind: "empty" }],
  });
  const status = async (question: string) =>
    (await exchange(sink.port, httpPost(consultBody(question)))).text.split(" ")[1];
  assertEquals([await status("a"), await status("b"), await status("c")], ["500", "200", "200"]);
  sink.setBehaviour(({ body }) =>
    new TextDecoder().decode(body).includes("bad") ? { kind: "status", status: 418 } : { kind: "answer" }
  );
  assertEquals([await status("good"), await status("bad")], ["200", "418"]);
});

Deno.test("the JSON form of a behaviour refuses an unknown kind and an unknown key beside a known one", () => {
  assertEquals(parseBehaviour('{"kind":"silence","head":true}'), { kind: "silence", head: true });
  for (const json of ['{"kind":"sulk"}', '{"kind":"silence","tail":true}']) {
    let message = "";
    try {
      parseBehaviour(json);
    } catch (fault) {
      message = (fault as Error).message;
    }
    assertStringIncludes(message, "the behaviour does not fit");
  }
});

Deno.test("as a program it writes each request to files and prints the hash of its body", async () => {
  const dir = await Deno.makeTempDir();
  try {
    const child = new Deno.Command(Deno.execPath(), {
      args: ["run", "-q", "-A", "tools/stubs/consult_endpoint.ts", "--record", `${dir}/record`],
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    const reader = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
    let printed = "";
    const printedLines = async (count: number) => {
      while (printed.split("\n").length <= count) {
        const { value, done } = await reader.read();
        assert(!done, printed);
        printed += value;
      }
    };
    await printedLines(1);
    const sent = httpPost(everyByte);
    await exchange(Number(/:(\d+)\//.exec(printed)?.[1]), sent);
    await printedLines(2);
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", everyByte)).toHex();
    assertStringIncludes(printed, `0001 POST /v1/chat/completions 256 bytes sha256 ${digest}`);
    assertEquals(await Deno.readFile(`${dir}/record/0001.body`), everyByte);
    assertEquals(await Deno.readFile(`${dir}/record/0001.head`), sent.slice(0, -256));
    child.kill("SIGTERM");
    assertEquals((await child.status).code, 0);
    while (!(await reader.read()).done) continue;
  } finally {
    await Deno.remove(dir, { recursive: true });
  }
});
