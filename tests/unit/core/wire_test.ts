// Our own sockets from both ends, over a real Unix socket: what is refused and in which form, who may listen, what a client is told.

import { assert, assertEquals, assertInstanceOf, assertRejects, assertStringIncludes } from "@std/assert";
import { Buffer } from "node:buffer";
import * as net from "node:net";
import { streamSSE } from "hono/streaming";
import { z } from "zod";
import { ProtocolError, UsageError } from "../../../core/errors.ts";
import { jsonDepthMax, requestBodyBytesMax } from "../../../core/limits.ts";
import { PeerRefused, PeerUnreachable, requestEvents, requestJson } from "../../../core/wire/client.ts";
import { createApp, listenOnSocket, readJson } from "../../../core/wire/server.ts";

const echoSchema = z.strictObject({ text: z.string(), extra: z.record(z.string(), z.unknown()).optional() });

async function withSocket(
  run: (socket: { path: string; bugs: unknown[]; release: () => void }) => Promise<void>,
): Promise<void> {
  const directory = await Deno.makeTempDir({ prefix: "bx-" });
  const path = `${directory}/test.sock`;
  const bugs: unknown[] = [];
  const held = Promise.withResolvers<void>();
  const app = createApp((error) => bugs.push(error));
  app.post(
    "/v1/echo",
    async (c) => c.json({ status: "ok", length: (await readJson(c, echoSchema)).text.length }),
  );
  app.get("/v1/refuse", () => {
    throw new ProtocolError("busy", 409, "session chat-a is in a turn");
  });
  app.get("/v1/bug", () => {
    throw new Error("what only our log may see");
  });
  app.get("/v1/text", (c) => c.text("no JSON"));
  app.get("/v1/hold", async (c) => {
    await held.promise;
    return c.json({ status: "ok" });
  });
  app.get("/v1/events", (c) =>
    streamSSE(c, async (stream) => {
      for (const number of [1, 2, 3]) {
        await stream.writeSSE({ event: "count", data: JSON.stringify({ number, text: "é\n😀" }) });
      }
    }));
  app.get("/v1/endless", (c) =>
    streamSSE(c, async (stream) => {
      await stream.writeSSE({ event: "count", data: "1" });
      await held.promise;
    }));
  const listener = await listenOnSocket(path, app);
  try {
    await run({ path, bugs, release: held.resolve });
  } finally {
    held.resolve();
    await listener.close();
    await Deno.remove(directory, { recursive: true });
  }
}

/** A request as its bytes: what our own client would never send. Returns the status and the JSON of the answer. */
async function raw(
  path: string,
  head: string,
  body: Uint8Array | string = "",
): Promise<[number, { code?: string }]> {
  const socket = net.connect({ path });
  const bytes = Buffer.from(body);
  const length = /content-length|transfer-encoding/i.test(head) ? "" : `content-length: ${bytes.length}\r\n`;
  const answer = new Promise<string>((resolve, reject) => {
    const chunks: Buffer[] = [];
    socket.on("data", (chunk: Buffer) => chunks.push(chunk));
    socket.on("end", () => resolve(Buffer.concat(chunks).toString()));
    socket.on("error", reject);
  });
  socket.write(`${head}\r\nhost: x\r\nconnection: close\r\n${length}\r\n`);
  socket.write(bytes);
  const text = await answer;
  socket.destroy();
  const json = text.slice(text.indexOf("\r\n\r\n") + 4);
  return [Number(text.split(" ")[1]), JSON.parse(json.slice(json.indexOf("{"), json.lastIndexOf("}") + 1))];
}

const post = (path: string, body: unknown) => requestJson(path, { method: "POST", path: "/v1/echo", body });

Deno.test("a body of 1 MiB is read, one byte more is 413", () =>
  withSocket(async ({ path }) => {
    const frame = JSON.stringify({ text: "" }).length;
    const fits = await post(path, { text: "x".repeat(requestBodyBytesMax - frame) });
    assertEquals(fits, { httpStatus: 200, body: { status: "ok", length: requestBodyBytesMax - frame } });
    const over = await post(path, { text: "x".repeat(requestBodyBytesMax - frame + 1) });
    assertEquals(over.httpStatus, 413);
    assertEquals(over.body, {
      status: "error",
      code: "too-large",
      text: `the body is over ${requestBodyBytesMax} bytes`,
    });
  }));

Deno.test("a body without a stated length is bounded by what comes, not by what was promised", () =>
  withSocket(async ({ path }) => {
    const chunked = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n0\r\n\r\n`;
    const head = "POST /v1/echo HTTP/1.1\r\ntransfer-encoding: chunked";
    assertEquals((await raw(path, head, chunked(JSON.stringify({ text: "x" }))))[0], 200);
    const [status, { code }] = await raw(
      path,
      head,
      chunked(JSON.stringify({ text: "x".repeat(requestBodyBytesMax) })),
    );
    assertEquals([status, code], [413, "too-large"]);
  }));

for (
  const [what, body, code] of [
    ["no body", "", "bad-json"],
    ["half an object", '{"text":', "bad-json"],
    ["text after the object", '{"text":"x"}x', "bad-json"],
    ["bytes that are no UTF-8", new Uint8Array([0x7b, 0xff, 0x7d]), "bad-json"],
    [
      "nesting over the bound",
      `{"text":"x","extra":${"[".repeat(jsonDepthMax)}${"]".repeat(jsonDepthMax)}}`,
      "bad-json",
    ],
    ["an array", "[]", "bad-request"],
    ["null", "null", "bad-request"],
    ["a missing key", "{}", "bad-request"],
    ["a wrong type", '{"text":1}', "bad-request"],
    ["an unknown key", '{"text":"x","txet":"y"}', "bad-request"],
    ["a key named __proto__", '{"text":"x","__proto__":{"text":"y"}}', "bad-request"],
    ["a key named constructor", '{"text":"x","constructor":1}', "bad-request"],
  ] as const
) {
  Deno.test(`a body with ${what} is 400 ${code} in the pinned form, and nobody's bug`, () =>
    withSocket(async ({ path, bugs }) => {
      const [status, answer] = await raw(path, "POST /v1/echo HTTP/1.1", body);
      assertEquals([status, answer.code], [400, code]);
      assertEquals(Object.keys(answer), ["status", "code", "text"]);
      assertEquals(bugs, []);
    }));
}

Deno.test("a refusal names the key that does not fit, and the well-formed request beside it passes", () =>
  withSocket(async ({ path }) => {
    const refused = await post(path, { text: "x", txet: "y" });
    assertEquals(refused.httpStatus, 400);
    assertStringIncludes((refused.body as { text: string }).text, "txet");
    assertEquals((await post(path, { text: "x" })).httpStatus, 200);
  }));

Deno.test("an unknown path is 404, and the answer shows it in printable characters", () =>
  withSocket(async ({ path, bugs }) => {
    const get = (target: string) => requestJson(path, { method: "GET", path: target });
    assertEquals(await get("/v1/nothing"), {
      httpStatus: 404,
      body: { status: "error", code: "unknown-path", text: "no such path: GET /v1/nothing" },
    });
    const { body } = await get("/v1/%1b%5b2J" + "x".repeat(500));
    const { text } = body as { text: string };
    assert(/^[\x20-\x7e]+$/.test(text) && text.length < 200, text);
    assertEquals((await requestJson(path, { method: "GET", path: "/v1/echo" })).httpStatus, 404);
    assertEquals(bugs, []);
  }));

Deno.test("a fault of our own answers 500 without a word of it, and is told to the role", () =>
  withSocket(async ({ path, bugs }) => {
    const { httpStatus, body } = await requestJson(path, { method: "GET", path: "/v1/bug" });
    assertEquals(httpStatus, 500);
    assert(!JSON.stringify(body).includes("only our log"));
    assertEquals(bugs.map(String), ["Error: what only our log may see"]);
  }));

Deno.test("a refusal keeps its own status and code", () =>
  withSocket(async ({ path, bugs }) => {
    assertEquals(await requestJson(path, { method: "GET", path: "/v1/refuse" }), {
      httpStatus: 409,
      body: { status: "error", code: "busy", text: "session chat-a is in a turn" },
    });
    assertEquals(bugs, []);
  }));

Deno.test("events come out as they went in, and a refused stream tells why", () =>
  withSocket(async ({ path }) => {
    const events = await Array.fromAsync(requestEvents(path, { method: "GET", path: "/v1/events" }));
    assertEquals(events, [1, 2, 3].map((number) => ({ event: "count", data: { number, text: "é\n😀" } })));
    const refused = await assertRejects(
      () => Array.fromAsync(requestEvents(path, { method: "GET", path: "/v1/refuse" })),
      PeerRefused,
    );
    assertEquals([refused.httpStatus, refused.code], [409, "busy"]);
  }));

Deno.test("a reader that leaves a stream early leaves nothing open behind it", () =>
  withSocket(async ({ path }) => {
    for await (const { event } of requestEvents(path, { method: "GET", path: "/v1/endless" })) {
      assertEquals(event, "count");
      break;
    }
  }));

Deno.test("a signal ends a waiting request with its own reason", () =>
  withSocket(async ({ path }) => {
    const abort = new AbortController();
    const reason = new Error("the owner left");
    const waiting = requestJson(path, { method: "GET", path: "/v1/hold", signal: abort.signal });
    abort.abort(reason);
    assertEquals(await waiting.catch((error) => error), reason);
    assertEquals(
      await requestJson(path, { method: "GET", path: "/v1/hold", signal: abort.signal }).catch((error) =>
        error
      ),
      reason,
    );
  }));

Deno.test("a peer that says nothing within the timeout is unreachable, though it got the request", () =>
  withSocket(async ({ path }) => {
    const error = await assertRejects(
      () => requestJson(path, { method: "GET", path: "/v1/hold", timeoutMs: 30 }),
      PeerUnreachable,
      "silent for 30 ms",
    );
    assert(error.sent);
  }));

Deno.test("nobody at the socket, and an answer that is no JSON, are both unreachable; only the second was sent", () =>
  withSocket(async ({ path }) => {
    const absent = await assertRejects(
      () => requestJson(`${path}.none`, { method: "GET", path: "/v1/text" }),
      PeerUnreachable,
      `${path}.none`,
    );
    assert(!absent.sent);
    const text = await assertRejects(
      () => requestJson(path, { method: "GET", path: "/v1/text" }),
      PeerUnreachable,
      "not JSON",
    );
    assert(text.sent);
  }));

Deno.test("the socket is open to its owner alone, and gone after closing", async () => {
  const directory = await Deno.makeTempDir({ prefix: "bx-" });
  const path = `${directory}/test.sock`;
  const listener = await listenOnSocket(path, createApp(() => {}));
  const mode = (await Deno.stat(path)).mode ?? 0;
  assertEquals(mode & 0o777, 0o600);
  await listener.close();
  await assertRejects(() => Deno.lstat(path), Deno.errors.NotFound);
  await Deno.remove(directory, { recursive: true });
});

Deno.test("a socket file that a crash left is replaced, one that is served is refused with its path", async () => {
  const directory = await Deno.makeTempDir({ prefix: "bx-" });
  const path = `${directory}/test.sock`;
  // A listener that goes without removing its file, as kill -9 would leave it.
  Deno.listen({ transport: "unix", path }).close();
  await Deno.lstat(path).catch(() => Deno.writeTextFile(path, ""));
  const listener = await listenOnSocket(path, createApp(() => {}));
  const error = await assertRejects(() => listenOnSocket(path, createApp(() => {})), UsageError, path);
  assertInstanceOf(error, UsageError);
  assertEquals((await requestJson(path, { method: "GET", path: "/" })).httpStatus, 404);
  await listener.close();
  await Deno.remove(directory, { recursive: true });
});

Deno.test("closing ends a live stream instead of waiting for it", async () => {
  const directory = await Deno.makeTempDir({ prefix: "bx-" });
  const path = `${directory}/test.sock`;
  const app = createApp(() => {});
  const gone = Promise.withResolvers<void>();
  app.get("/v1/endless", (c) =>
    streamSSE(c, async (stream) => {
      stream.onAbort(gone.resolve);
      await stream.writeSSE({ event: "count", data: "1" });
      await gone.promise;
    }));
  const listener = await listenOnSocket(path, app);
  const events = requestEvents(path, { method: "GET", path: "/v1/endless" });
  assertEquals((await events.next()).value, { event: "count", data: 1 });
  await listener.close();
  await assertRejects(() => events.next(), PeerUnreachable);
  gone.resolve();
  await Deno.remove(directory, { recursive: true });
});
