// Callers that lie, on all three sockets of real roles under the launcher: broken JSON, odd ids, bodies without end, connections that only
// stand there, bytes that are no HTTP. Each gets a refusal in the one shape (or its connection closed); no role exits, memory stays bounded,
// and a well-behaved caller is served within two seconds at any time. The nearest sound request stands beside the refusals.

import { assert, assertEquals } from "@std/assert";
import { Buffer } from "node:buffer";
import * as net from "node:net";
import { verifyAudit } from "../../core/audit/verify.ts";
import type { HomePaths } from "../../core/home.ts";
import { requestBodyBytesMax } from "../../core/limits.ts";
import { requestJson } from "../../core/wire/client.ts";
import { startRoles } from "../../tools/demo/running_roles.ts";
import { ownEnvironment } from "../../tools/launch/environment.ts";
import { startConsultEndpoint } from "../../tools/stubs/consult_endpoint.ts";
import { startModelStub } from "../../tools/stubs/model.ts";
import { allowAlways, allowPrivate, brokerRig, privateTrusted } from "../support/broker_rig.ts";
import { tempHome } from "../support/temp_home.ts";
import { isRunning, mebibyte, memoryOf, otherServedMs, timed } from "./roles.ts";

/** The peak of each role over all that is done here, above what it had when it was ready. */
const growthBytesMax = 160 * mebibyte;
const idleConnections = 1_000;
/** What one caller sends at most where a body never ends. */
const endlessBytesMax = 64 * mebibyte;

interface Raw {
  readonly socket: net.Socket;
  /** All that came back so far. */
  text(): string;
  /** Resolves when the peer closed, or when `wanted` came. */
  until(wanted?: RegExp): Promise<string>;
}

function connect(path: string): Promise<Raw> {
  const { promise, resolve, reject } = Promise.withResolvers<Raw>();
  let received = "";
  let closed = false;
  const watchers = new Set<() => void>();
  const socket = net.connect({ path });
  const raw: Raw = {
    socket,
    text: () => received,
    until(wanted) {
      const { promise: seen, resolve: see } = Promise.withResolvers<string>();
      const look = () => {
        if (!closed && !wanted?.test(received)) return;
        watchers.delete(look);
        see(received);
      };
      watchers.add(look);
      look();
      return seen;
    },
  };
  const tell = () => [...watchers].forEach((look) => look());
  socket.on("connect", () => resolve(raw));
  socket.on("data", (chunk: Buffer) => {
    received += chunk.toString("latin1");
    tell();
  });
  socket.on("error", reject);
  socket.on("close", () => {
    closed = true;
    tell();
  });
  return promise;
}

async function send(path: string, text: string | Uint8Array, wanted?: RegExp): Promise<string> {
  const raw = await connect(path);
  raw.socket.write(text);
  const answer = await raw.until(wanted);
  raw.socket.destroy();
  return answer;
}

/** `{httpStatus, body}` of a whole answer in `text`; the body parsed. */
function answerIn(text: string): { httpStatus: number; body: unknown } {
  const [head, ...rest] = text.split("\r\n\r\n");
  const body = rest.join("\r\n\r\n");
  return {
    httpStatus: Number(/^HTTP\/1\.1 (\d{3})/.exec(head)?.[1]),
    body: body === "" ? undefined : JSON.parse(body),
  };
}

const post = (path: string, body: string, headers = "") =>
  `POST ${path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n${headers}content-length: ${
    Buffer.byteLength(body)
  }\r\n\r\n${body}`;
const get = (path: string, method = "GET") =>
  `${method} ${path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`;

function assertRefusal(text: string, wanted: readonly number[], what: string): void {
  const { httpStatus, body } = answerIn(text);
  assert(wanted.includes(httpStatus), `${what}: ${text.slice(0, 300)}`);
  const { status, code, text: said } = body as Record<string, unknown>;
  assertEquals([what, Object.keys(body as object), status], [what, ["status", "code", "text"], "error"]);
  assert(typeof code === "string" && typeof said === "string" && said.length < 600);
  // Never a peer's raw bytes.
  assert(/^[\x20-\x7e]*$/.test(said), `${what}: ${JSON.stringify(said)}`);
}

interface World {
  readonly paths: HomePaths;
  readonly sockets: readonly { name: string; path: string; post: string; sound: unknown }[];
  /** A well-behaved caller on each socket, within the time. */
  others(): Promise<void>;
}

async function withRoles(body: (world: World) => Promise<void>): Promise<void> {
  await using endpoint = await startConsultEndpoint();
  await using model = await startModelStub();
  await using home = await tempHome({
    loopdToml: `[clock]\ntime_zone = "UTC"\n[inference]\nurl = "${model.url}"\n`,
    brokerdToml: `[consult]\nurl = "${endpoint.url}"\nmodel = "m"\nsecret = "consult"\n`,
    grantsToml: allowAlways,
    secrets: { consult: "key\n" },
  });
  const { paths } = home;
  {
    await using roles = await startRoles(paths, {
      own: ownEnvironment(),
      signal: new AbortController().signal,
    });
    const before = Object.entries(roles.pids).map(([role, pid]) => ({ role, pid, ...memoryOf(pid) }));
    const label = JSON.stringify(privateTrusted);
    const sockets = [
      {
        name: "broker.sock",
        path: paths.brokerSocket,
        post: "/v1/label",
        sound: { session: "chat-sound", label: privateTrusted },
      },
      {
        name: "owner.sock",
        path: paths.ownerSocket,
        post: "/v1/check",
        sound: { tool: "consult", label: JSON.parse(label) },
      },
      { name: "loop.sock", path: paths.loopSocket, post: "/v1/sessions", sound: {} },
    ];
    let asked = 0;
    await body({
      paths,
      sockets,
      async others() {
        for (const { name, path, post, sound } of sockets) {
          const { value, elapsedMs } = await timed(() =>
            requestJson(path, { method: "POST", path: post, body: sound })
          );
          assertEquals([name, value.httpStatus, elapsedMs < otherServedMs], [name, 200, true]);
        }
        const { value, elapsedMs } = await timed(() =>
          requestJson(paths.brokerSocket, {
            method: "POST",
            path: "/v1/call",
            body: {
              session: "chat-sound",
              call: ++asked,
              tool: "consult",
              arguments: { question: `Sound ${asked}?` },
              label: privateTrusted,
            },
          })
        );
        assertEquals((value.body as { status: string }).status, "ok");
        assert(elapsedMs < otherServedMs);
      },
    });
    for (const { role, pid, peakBytes } of before) {
      assert(isRunning(pid), `${role} is gone`);
      const grown = memoryOf(pid).peakBytes - peakBytes;
      assert(grown < growthBytesMax, `${role} grew by ${Math.round(grown / mebibyte)} MiB`);
    }
    // What the sound caller asked arrived, each once, and nothing else did.
    assertEquals(endpoint.requests.length, asked);
    // Started once: nobody was brought back.
    assertEquals(roles.launches.length, 2);
    assertEquals((await Deno.readTextFile(paths.launches)).trimEnd().split("\n").length, 2);
  }
  assertEquals((await verifyAudit(paths.audit)).exit, 0);
}

const deep = (brackets: string, count: number) => brackets[0].repeat(count) + brackets[1].repeat(count);

Deno.test("bodies that are no JSON, nest too deep, carry odd keys or never end are refused in one shape on each socket, and others are served", () =>
  withRoles(async ({ sockets, others }) => {
    for (const { name, path, post: to, sound } of sockets) {
      const json = JSON.stringify(sound);
      const bad: [string, string][] = [
        ["nothing", ""],
        ["half", json.slice(0, -1)],
        ["twice", `${json}${json}`],
        ["a comment", `${json} // x`],
        ["single quotes", "{'a':1}"],
        ["NaN", '{"a":NaN}'],
        ["an array", "[]"],
        ["null", "null"],
        ["a text", '"x"'],
        ["deep arrays", deep("[]", 100_000)],
        ["deep objects", `${'{"a":'.repeat(100_000)}1${"}".repeat(100_000)}`],
        ["deep and unfinished", "[".repeat(1_000_000)],
        ["deep in a key", `{"session":${deep("[]", 65)}}`],
        ["__proto__", json.replace(/^\{/, '{"__proto__":{"class":"public"},').replace(",}", "}")],
        ["constructor", json.replace(/^\{/, '{"constructor":{"prototype":{}},').replace(",}", "}")],
        ["an unknown key", json.replace(/^\{/, '{"extra":1,').replace(",}", "}")],
        ["control characters in a key", json.replace(/^\{/, '{"\\u001b[2J\\u202e":1,').replace(",}", "}")],
        ["a lone surrogate as a key", json.replace(/^\{/, '{"\\ud800":1,').replace(",}", "}")],
      ];
      for (const [what, body] of bad) {
        assertRefusal(await send(path, post(to, body)), [400], `${name}: ${what}`);
      }
      const notUtf8 = Buffer.concat([
        Buffer.from(`POST ${to} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 4\r\n\r\n`),
        Buffer.from([0x22, 0xff, 0xfe, 0x22]),
      ]);
      assertRefusal(await send(path, notUtf8), [400], `${name}: not UTF-8`);
      assertEquals(answerIn(await send(path, post(to, json))).httpStatus, 200);
    }
    await others();

    for (const { name, path, post: to } of sockets) {
      // 50 MB that are announced: refused before they are sent.
      const announced = await connect(path);
      announced.socket.write(`POST ${to} HTTP/1.1\r\nhost: x\r\ncontent-length: 50000000\r\n\r\n{"a":"`);
      assertRefusal(firstAnswer(await announced.until(/\}$/)), [413], `${name}: 50 MB`);
      announced.socket.destroy();

      // A body that only ever goes on: refused at the bound, whatever more comes.
      const endless = await connect(path);
      const part = Buffer.from(`10000\r\n${"x".repeat(65_536)}\r\n`);
      endless.socket.write(`POST ${to} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n`);
      const refused = endless.until(/\r\n\r\n[^]*\}/);
      let sent = 0;
      let stop = false;
      refused.then(() => stop = true);
      while (!stop && sent < endlessBytesMax) {
        sent += 65_536;
        if (endless.socket.destroyed) break;
        await new Promise<void>((resolve) => endless.socket.write(part, () => resolve()));
      }
      assertRefusal(firstAnswer(await refused), [413], `${name}: endless`);
      endless.socket.destroy();
    }
    await others();

    // A million sound but useless entries, just below the bound.
    for (const { name, path, post: to } of sockets) {
      const wide = `{"a":[${"0,".repeat((requestBodyBytesMax - 20) / 2)}0]}`;
      assertRefusal(await send(path, post(to, wide)), [400], `${name}: wide`);
    }
    await others();
  }));

/** The first answer in `text`, by its length. */
function firstAnswer(text: string): string {
  const head = text.slice(0, text.indexOf("\r\n\r\n"));
  const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
  return text.slice(0, head.length + 4 + length);
}

Deno.test("S2 odd ids, in bodies and percent-encoded in paths, are refused before they touch a file; wrong methods and paths are 404", () =>
  withRoles(async ({ paths, others }) => {
    const odd = [
      "..",
      "../chat-a",
      "../../secrets/consult",
      "/etc/passwd",
      "chat/a",
      "chat-a\u0000",
      "chat-a\n",
      "CHAT-A",
      "chat_a",
      "chat-ä",
      "чат-а",
      "ｃｈａｔ-a",
      "chat-a\u200b",
      "a".repeat(65),
      "",
      " ",
      "chat-a ",
      "%2e%2e",
      "con:",
      "$(id)",
      "x".repeat(10_000),
    ];
    const before = await tree(paths.home);
    for (const id of odd) {
      const what = JSON.stringify(id.slice(0, 40));
      for (
        const body of [
          { session: id, label: privateTrusted },
          { session: id, call: 1, tool: "consult", arguments: { question: "Q" }, label: privateTrusted },
        ]
      ) {
        const to = "call" in body ? "/v1/call" : "/v1/label";
        assertRefusal(await send(paths.brokerSocket, post(to, JSON.stringify(body))), [400], what);
      }
      assertRefusal(
        await send(paths.ownerSocket, post("/v1/retire", JSON.stringify({ session: id }))),
        [400],
        what,
      );
      const encoded = [...new TextEncoder().encode(id)].map((byte) =>
        `%${byte.toString(16).padStart(2, "0")}`
      ).join("");
      for (
        const request of [
          get(`/v1/sessions/${encoded}`),
          get(`/v1/sessions/${encoded}/log`),
          get(`/v1/sessions/${encoded}/log?follow=1`),
          post(`/v1/sessions/${encoded}/turns`, '{"text":"hi"}'),
          post(`/v1/sessions/${encoded}/cancel`, "{}"),
          post(`/v1/sessions/${encoded}/retire`, "{}"),
          post(`/v1/sessions/${encoded}/forget`, "{}"),
        ]
      ) {
        assertRefusal(await send(paths.loopSocket, request), [400, 404], `loop.sock ${what}`);
      }
      assertRefusal(
        await send(paths.brokerSocket, get(`/v1/calls/${encoded}/1`)),
        [400, 404],
        `broker.sock ${what}`,
      );
      assertRefusal(
        await send(paths.ownerSocket, post(`/v1/approvals/${encoded}`, `{"decision":"approve"}`)),
        [400, 404],
        `owner.sock ${what}`,
      );
      assertRefusal(
        await send(paths.ownerSocket, get(`/v1/audit?session=${encoded}`)),
        [400],
        `query ${what}`,
      );
    }
    for (const path of ["/v1/calls/%zz/1", "/v1/calls/%ff/1", "/v1/calls/%/1", "/v1/calls/chat-a/%31%00"]) {
      assertRefusal(await send(paths.brokerSocket, get(path)), [400, 404], path);
    }
    for (
      const path of [
        "/v1/calls/../hello",
        "/v1//hello",
        "//v1/hello",
        "/v1/hello/",
        "/V1/HELLO",
        "/",
        `/${"a".repeat(8_000)}`,
      ]
    ) {
      const { httpStatus } = answerIn(await send(paths.brokerSocket, get(path)));
      // The first is a call of a session named "..".
      assertEquals([path, httpStatus], [path, path === "/v1/calls/../hello" ? 400 : 404]);
    }
    for (const method of ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW", "post"]) {
      for (const socket of [paths.brokerSocket, paths.ownerSocket, paths.loopSocket]) {
        for (const path of ["/v1/label", "/v1/retire", "/v1/sessions", "/v1/grants/reload"]) {
          const { httpStatus } = answerIn(await send(socket, get(path, method)));
          assert([400, 404, 405, 501].includes(httpStatus), `${method} ${path}: ${httpStatus}`);
        }
      }
    }
    // Nothing came into being, and the accepted neighbour does.
    assertEquals(await tree(paths.home), before);
    const longest = `chat-${"a".repeat(59)}`;
    const sound = await send(
      paths.brokerSocket,
      post("/v1/label", JSON.stringify({ session: longest, label: privateTrusted })),
    );
    assertEquals(answerIn(sound).httpStatus, 200);
    await others();
  }));

Deno.test("a thousand connections that only stand there, huge heads, pipelined and garbled bytes leave the roles serving", () =>
  withRoles(async ({ sockets, others }) => {
    for (const { name, path, post: to, sound } of sockets) {
      const idle: Raw[] = [];
      for (let opened = 0; opened < idleConnections; opened += 100) {
        idle.push(...await Promise.all(Array.from({ length: 100 }, () => connect(path))));
      }
      // A third stands in the middle of a head, a third in the middle of a body.
      for (const [at, { socket }] of idle.entries()) {
        if (at % 3 === 1) socket.write("POST ");
        if (at % 3 === 2) {
          socket.write(`POST ${to} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"session":`);
        }
      }
      await others();
      for (const { socket } of idle) socket.destroy();

      const json = JSON.stringify(sound);
      const one = `POST ${to} HTTP/1.1\r\nhost: x\r\ncontent-length: ${json.length}\r\n\r\n${json}`;
      const pipelined = await send(path, one.repeat(3) + get("/v1/hello"));
      assertEquals([name, pipelined.match(/HTTP\/1\.1 200/g)?.length], [name, 4]);

      for (
        const garbage of [
          "\0".repeat(100_000),
          "hello\r\n\r\n",
          "GET\r\n\r\n",
          "GET / HTTP/9.9\r\n\r\n",
          `GET /${"a".repeat(2 * mebibyte)} HTTP/1.1\r\n\r\n`,
          `GET /v1/hello HTTP/1.1\r\nhost: x\r\nx: ${"y".repeat(2 * mebibyte)}\r\n\r\n`,
          `GET /v1/hello HTTP/1.1\r\nhost: x\r\n${"x: y\r\n".repeat(50_000)}\r\n`,
          "POST /v1/label HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
          "POST /v1/label HTTP/1.1\r\nhost: x\r\ncontent-length: 1e9\r\n\r\n",
          "POST /v1/label HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n{}",
          `POST ${to} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n`,
          `POST ${to} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n{}`,
          "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
          "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        ]
      ) {
        const raw = await connect(path);
        raw.socket.on("error", () => {});
        raw.socket.write(garbage);
        // Ours ends here, so that the role is not left waiting for more of it.
        raw.socket.end();
        const text = await raw.until();
        assert(!/HTTP\/1\.1 200/.test(text), `${name}: ${JSON.stringify(garbage.slice(0, 60))} was served`);
      }
      await others();
    }
  }));

Deno.test("of calls that wait at once the bound is accepted and one more is refused, with nothing sent for it", async () => {
  const bound = 256;
  await using rig = await brokerRig({ grants: allowPrivate, behaviour: { kind: "silence" } });
  const waiting = Array.from({ length: bound }, (_, at) => rig.call(`chat-${at}`, 1));
  for (let arrived = 0; arrived < bound; arrived++) await rig.endpoint.nextRequest();
  const refused = await rig.call("chat-more", 1);
  assert(refused.status === "error");
  assertEquals(refused.code, "too-many-calls");
  rig.endpoint.setBehaviour({ kind: "answer" });
  rig.endpoint.release();
  assertEquals(new Set((await Promise.all(waiting)).map(({ status }) => status)), new Set(["ok"]));
  assertEquals(rig.endpoint.requests.length, bound);
  // It was not decided, so it may be asked again.
  assertEquals((await rig.call("chat-more", 1)).status, "ok");
});

Deno.test("C1 an argument named __proto__ or constructor is an unknown argument and nothing else", async () => {
  await using rig = await brokerRig({ grants: allowPrivate });
  const bodies = ["__proto__", "constructor", "toString"].map((key) => `{"question":"Q","${key}":{"x":1}}`);
  for (const [at, text] of bodies.entries()) {
    const { httpStatus, body } = answerIn(
      await send(
        rig.paths.brokerSocket,
        post(
          "/v1/call",
          `{"session":"chat-a","call":${at + 1},"tool":"consult","arguments":${text},"label":${
            JSON.stringify(privateTrusted)
          }}`,
        ),
      ),
    );
    assertEquals([text, httpStatus, (body as { code: string }).code], [text, 200, "invalid-arguments"]);
  }
  assertEquals(rig.endpoint.connections, 0);
  assertEquals((await rig.call("chat-a", 9)).status, "ok");
});

Deno.test("a caller that leaves in the middle of its body is no fault of brokerd's: nothing is recorded, and the next is served", async () => {
  await using rig = await brokerRig({ grants: allowPrivate });
  for (const path of [rig.paths.brokerSocket, rig.paths.ownerSocket]) {
    const raw = await connect(path);
    const to = path === rig.paths.brokerSocket ? "/v1/call" : "/v1/check";
    raw.socket.write(`POST ${to} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"session":`);
    // Its head was read: the same connection would be answered now, were the body whole.
    await rig.loop("GET", "/v1/hello");
    raw.socket.destroy();
    await raw.until();
    assertEquals((await rig.owner("GET", "/v1/hello")).httpStatus, 200);
  }
  assertEquals((await rig.call("chat-a", 1)).status, "ok");
  assertEquals((await rig.records()).filter(({ kind }) => kind === "decision").length, 1);
});

async function tree(directory: string): Promise<string[]> {
  const paths: string[] = [];
  for await (const { name, isDirectory } of Deno.readDir(directory)) {
    paths.push(`${directory}/${name}`);
    if (isDirectory) paths.push(...await tree(`${directory}/${name}`));
  }
  return paths.sort();
}
