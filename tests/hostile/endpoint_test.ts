// Consult endpoints that lie, break off, never end or burst: for each, what a real brokerd under its real flags makes of it. Every row asks
// the same of brokerd: one request at the recorder, one typed outcome in the record, the same process, bounded memory, a second session
// served at once, and a log that verifies. Beside the refusals stand as many sound replies, none of which may be refused.

import { assert, assertEquals } from "@std/assert";
import { brotliCompressSync, gzipSync, zstdCompressSync } from "node:zlib";
import { verifyAudit } from "../../core/audit/verify.ts";
import type { Behaviour } from "../../tools/stubs/consult_behaviour.ts";
import { startConsultEndpoint } from "../../tools/stubs/consult_endpoint.ts";
import { allowAlways, decisions, readRecords } from "../support/broker_rig.ts";
import { tempHome } from "../support/temp_home.ts";
import { isRunning, mebibyte, memoryOf, otherServedMs, startBrokerd, timed } from "./roles.ts";

const timeoutMs = 1_500;
/** brokerd's peak over all rows together, above what it had when it was ready. */
const growthBytesMax = 128 * mebibyte;
const bombBytes = 64 * mebibyte;

interface Row {
  readonly name: string;
  readonly behaviour: Behaviour;
  readonly outcome: "http" | "timeout" | "unknown" | "unusable";
  readonly status?: number;
}

function bytesOf(...parts: (string | Uint8Array)[]): Uint8Array<ArrayBuffer> {
  const encoded = parts.map((part) => typeof part === "string" ? new TextEncoder().encode(part) : part);
  const whole = new Uint8Array(encoded.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of encoded) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** A small body that decodes to a very large one. */
function bomb(compress: (bytes: Uint8Array) => Uint8Array, encoding: string | undefined): Behaviour {
  const body = compress(new Uint8Array(bombBytes));
  const head = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n` +
    (encoding === undefined ? "" : `content-encoding: ${encoding}\r\n`);
  return { kind: "raw", bytes: bytesOf(head, "\r\n", body) };
}

const raw = (...lines: string[]): Behaviour => ({ kind: "raw", bytes: lines.join("\r\n") });
const answerBody = '{"choices":[{"message":{"content":"Four."}}]}';
const otherHeads = Array.from({ length: 2_000 }, () => "HTTP/1.1 102 Processing\r\n\r\n").join("");

function rows(elsewhere: string): Row[] {
  return [
    { name: "reset before the body", behaviour: { kind: "reset", when: "before-body" }, outcome: "unknown" },
    { name: "reset in the body", behaviour: { kind: "reset", when: "in-body" }, outcome: "unknown" },
    { name: "reset after the body", behaviour: { kind: "reset", when: "after-body" }, outcome: "unknown" },
    { name: "reset in the reply", behaviour: { kind: "reset", when: "in-reply" }, outcome: "unknown" },
    ...([301, 302, 303, 307, 308] as const).map((status): Row => ({
      name: `redirect ${status} to another host`,
      behaviour: { kind: "redirect", status, location: elsewhere },
      outcome: "http",
      status,
    })),
    // The one host that its flags let it reach: only its own conduct keeps it from following.
    ...([302, 307, 308] as const).map((status): Row => ({
      name: `redirect ${status} to the endpoint itself`,
      behaviour: { kind: "redirect", status, location: "/v1/chat/completions" },
      outcome: "http",
      status,
    })),
    {
      name: "300 with a location and a body that would do",
      behaviour: { kind: "status", status: 300, headers: { location: elsewhere }, body: answerBody },
      outcome: "http",
      status: 300,
    },
    {
      name: "a refresh header on a page",
      behaviour: {
        kind: "status",
        status: 200,
        headers: { refresh: `0; url=${elsewhere}`, "content-type": "text/html" },
        body: `<meta http-equiv="refresh" content="0; url=${elsewhere}">`,
      },
      outcome: "unusable",
    },
    { name: "gzip bomb", behaviour: bomb(gzipSync, "gzip"), outcome: "unusable" },
    { name: "br bomb", behaviour: bomb(brotliCompressSync, "br"), outcome: "unusable" },
    { name: "zstd bomb", behaviour: bomb(zstdCompressSync, "zstd"), outcome: "unusable" },
    { name: "gzip bomb that says nothing of it", behaviour: bomb(gzipSync, undefined), outcome: "unusable" },
    {
      name: "gzip as a transfer coding",
      behaviour: {
        kind: "raw",
        bytes: bytesOf(
          "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
          ...chunk(gzipSync(new TextEncoder().encode(answerBody))),
        ),
      },
      outcome: "unusable",
    },
    { name: "drip", behaviour: { kind: "drip", partBytes: 1, everyMs: 50 }, outcome: "timeout" },
    { name: "silence", behaviour: { kind: "silence" }, outcome: "timeout" },
    { name: "silence after the head", behaviour: { kind: "silence", head: true }, outcome: "timeout" },
    { name: "endless headers", behaviour: { kind: "endless-headers" }, outcome: "unusable" },
    {
      name: "one endless header",
      behaviour: raw("HTTP/1.1 200 OK", `x: ${"x".repeat(4 * mebibyte)}`),
      outcome: "unusable",
    },
    { name: "two thousand heads before the reply", behaviour: raw(otherHeads), outcome: "unknown" },
    { name: "two replies in one", behaviour: { kind: "two-replies" }, outcome: "unusable" },
    {
      name: "a second reply of another kind behind the first",
      behaviour: raw(
        "HTTP/1.1 200 OK",
        `content-length: ${answerBody.length}`,
        "",
        `${answerBody}HTTP/1.1 302 Found`,
        `location: ${elsewhere}`,
        "",
        "",
      ),
      outcome: "unusable",
    },
    {
      name: "two lengths",
      behaviour: raw("HTTP/1.1 200 OK", "content-length: 5", "content-length: 45", "", answerBody),
      outcome: "unusable",
    },
    {
      name: "a chunk that is longer than it says",
      behaviour: raw("HTTP/1.1 200 OK", "transfer-encoding: chunked", "", "2", answerBody, "0", "", ""),
      outcome: "unusable",
    },
    {
      name: "endless chunk extension",
      behaviour: raw("HTTP/1.1 200 OK", "transfer-encoding: chunked", "", `1;${"x".repeat(4 * mebibyte)}`),
      outcome: "unusable",
    },
    { name: "HTML", behaviour: { kind: "html" }, outcome: "unusable" },
    { name: "empty", behaviour: { kind: "empty" }, outcome: "unusable" },
    { name: "echo", behaviour: { kind: "echo" }, outcome: "unusable" },
    { name: "40 MB", behaviour: { kind: "huge", bytes: 40e6 }, outcome: "unusable" },
    {
      name: "40 MB without a length",
      behaviour: { kind: "huge", bytes: 40e6, declared: false },
      outcome: "unusable",
    },
    {
      name: "JSON nested a hundred thousand deep",
      behaviour: {
        kind: "status",
        status: 200,
        body: `${"[".repeat(100_000)}${"]".repeat(100_000)}`,
      },
      outcome: "unusable",
    },
    {
      name: "an answer in a prototype",
      behaviour: { kind: "status", status: 200, body: `{"__proto__":${answerBody}}` },
      outcome: "unusable",
    },
    { name: "short reply", behaviour: { kind: "short" }, outcome: "unknown" },
    {
      name: "HTTP/0.9",
      behaviour: { kind: "raw", bytes: answerBody },
      outcome: "unusable",
    },
    {
      name: "401",
      behaviour: { kind: "status", status: 401, body: "who are you" },
      outcome: "http",
      status: 401,
    },
  ];
}

function chunk(bytes: Uint8Array): (string | Uint8Array)[] {
  return [`${bytes.length.toString(16)}\r\n`, bytes, "\r\n0\r\n\r\n"];
}

const sound: { name: string; behaviour: Behaviour; answer: string }[] = [
  { name: "a length", behaviour: { kind: "answer", content: "Four." }, answer: "Four." },
  { name: "chunks", behaviour: { kind: "chunked" }, answer: "stub answer to: Sound chunks?" },
  {
    name: "no content-length",
    behaviour: { kind: "until-close" },
    answer: "stub answer to: Sound no content-length?",
  },
  {
    name: "another model's name",
    behaviour: { kind: "wrong-model" },
    answer: "stub answer to: Sound another model's name?",
  },
  {
    name: "early hints before it",
    behaviour: raw(
      "HTTP/1.1 103 Early Hints",
      "",
      "HTTP/1.1 200 OK",
      `content-length: ${answerBody.length}`,
      "",
      answerBody,
    ),
    answer: "Four.",
  },
];

Deno.test("F24 F25 whatever the endpoint does, brokerd sends once, records one typed outcome, lives on in bounded memory and serves others", async (t) => {
  await using elsewhere = await startConsultEndpoint();
  await using endpoint = await startConsultEndpoint();
  await using home = await tempHome({
    brokerdToml:
      `[consult]\nurl = "${endpoint.url}"\nmodel = "m"\nsecret = "consult"\ntimeout_ms = ${timeoutMs}\n`,
    grantsToml: allowAlways,
    secrets: { consult: "key\n" },
  });
  await using brokerd = await startBrokerd(home.paths);
  const { peakBytes: before } = memoryOf(brokerd.pid);
  const hostile = rows(elsewhere.url);
  let connections = 0;

  for (const [at, { name, behaviour, outcome, status }] of hostile.entries()) {
    await t.step(name, async () => {
      // The first request meets the behaviour, the second is another session's and is answered.
      endpoint.setBehaviour([behaviour, { kind: "answer", content: "Noted." }]);
      const asked = brokerd.call("chat-a", at + 1, { question: `Case ${at}?` });
      const first = await endpoint.nextRequest();
      const other = await timed(() => brokerd.call("chat-b", at + 1, { question: `Other ${at}?` }));
      assertEquals([other.value.status, other.elapsedMs < otherServedMs], ["ok", true]);
      await endpoint.nextRequest();

      const answer = await asked;
      assert(answer.status === "error", JSON.stringify(answer));
      assertEquals(answer.code, `consult-${outcome}`);
      connections += 2;
      assertEquals([endpoint.connections, endpoint.requests.length], [connections, connections]);
      const decision = decisions(await readRecords(home.paths.audit)).find((record) =>
        record.session === "chat-a" && record.call === at + 1
      );
      assertEquals([decision?.verdict, decision?.outcome, decision?.answer], ["allow", outcome, undefined]);
      if (status !== undefined) assertEquals(decision?.status, status);
      if (first.complete) assertEquals(new TextDecoder().decode(first.body), decision?.body);
      assert(isRunning(brokerd.pid));
    });
  }

  let refused = 0;
  for (const [at, { name, behaviour, answer }] of sound.entries()) {
    endpoint.setBehaviour(behaviour);
    const got = await brokerd.call("chat-c", at + 1, { question: `Sound ${name}?` });
    if (got.status !== "ok") refused++;
    else assertEquals(got.text.split("\n")[1], answer);
  }
  assertEquals(refused, 0);
  assertEquals(endpoint.requests.length, connections + sound.length);
  assertEquals([elsewhere.connections, elsewhere.requests.length], [0, 0]);

  const grown = memoryOf(brokerd.pid).peakBytes - before;
  assert(grown < growthBytesMax, `brokerd grew by ${Math.round(grown / mebibyte)} MiB`);
  const { code, stdout, stderr } = await brokerd.stop();
  assertEquals([code, stderr], [0, ""]);
  assertEquals(stdout.split("\n").map((line) => JSON.parse(line).event), ["ready", "stopping"]);
  assertEquals((await verifyAudit(home.paths.audit)).exit, 0);
});
