// Sending spans to a collector: each once, in order, over stops of either side, and what becomes of what it does not take.

import { assertEquals, assertRejects, assertStringIncludes, assertThrows } from "@std/assert";
import { UsageError } from "../../../core/errors.ts";
import { type HomePaths } from "../../../core/home.ts";
import { httpCollector } from "../../../tools/export_trace/collector.ts";
import { exportTrace } from "../../../tools/export_trace/exporter.ts";
import { exportArguments } from "../../../tools/export_trace/main.ts";
import { tempHome } from "../../support/temp_home.ts";

interface Arrived {
  readonly body: string;
  readonly headers: Headers;
  readonly path: string;
}

interface FakeCollector extends AsyncDisposable {
  readonly url: string;
  readonly arrived: Arrived[];
  /** Of the next answers, in order; then 200. */
  readonly statuses: number[];
}

function startCollector(): FakeCollector {
  const arrived: Arrived[] = [];
  const statuses: number[] = [];
  const server = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen: () => {} }, async (request) => {
    arrived.push({
      body: await request.text(),
      headers: request.headers,
      path: new URL(request.url).pathname,
    });
    const status = statuses.shift() ?? 200;
    const headers: HeadersInit = status === 302 ? { location: "http://127.0.0.1:1/elsewhere" } : {};
    return new Response("{}", { status, headers });
  });
  return {
    url: `http://127.0.0.1:${server.addr.port}/v1/traces`,
    arrived,
    statuses,
    [Symbol.asyncDispose]: () => server.shutdown(),
  };
}

async function write(paths: HomePaths, number: number, text: string): Promise<void> {
  await Deno.mkdir(paths.trace, { recursive: true });
  await Deno.writeTextFile(`${paths.trace}/trace-00000${number}.jsonl`, text, { append: true });
}

const line = (number: number) => `{"spans":[{"spanId":"${number}"}]}\n`;

Deno.test("every line is sent once, oldest first, and a later run sends what came since", async () => {
  await using home = await tempHome();
  await using collector = startCollector();
  const { paths } = home;
  const run = () => exportTrace(paths.trace, collector.url, httpCollector(collector.url, "key"));
  assertEquals(await run(), { lines: 0, spans: 0, refused: 0, skippedBytes: 0, done: true });
  await write(paths, 2, line(3));
  await write(paths, 1, line(1) + line(2));
  assertEquals(await run(), { lines: 3, spans: 3, refused: 0, skippedBytes: 0, done: true });
  assertEquals((await run()).lines, 0);
  await write(paths, 2, line(4) + '{"spa');
  assertEquals((await run()).lines, 1);
  // What was on its way has arrived; the next file was begun.
  await write(paths, 2, 'ns":[]}\n');
  await write(paths, 3, line(6));
  assertEquals((await run()).lines, 2);
  assertEquals(collector.arrived.map(({ body }) => body), [
    ...[1, 2, 3, 4].map((number) => line(number).trimEnd()),
    '{"spans":[]}',
    line(6).trimEnd(),
  ]);
  const { headers, path } = collector.arrived[0];
  assertEquals([path, headers.get("content-type"), headers.get("authorization")], [
    "/v1/traces",
    "application/json",
    "Bearer key",
  ]);
});

Deno.test("a collector that is gone, busy, closed to us or elsewhere stops the run, and the next goes on at that line", async () => {
  await using home = await tempHome();
  const { paths } = home;
  await write(paths, 1, line(1) + line(2) + line(3));
  await using collector = startCollector();
  const run = () => exportTrace(paths.trace, collector.url, httpCollector(collector.url, undefined));
  for (const status of [429, 503, 401, 404, 302]) {
    collector.statuses.push(...status === 429 ? [200] : [], status);
    const { lines, done, text } = await run();
    assertEquals([lines, done], [status === 429 ? 1 : 0, false]);
    assertStringIncludes(text ?? "", `answered HTTP ${status}`);
  }
  const gone = await exportTrace(
    paths.trace,
    collector.url,
    httpCollector("http://127.0.0.1:1/v1/traces", undefined),
  );
  assertEquals([gone.done, gone.text], [false, "127.0.0.1:1 does not answer (ECONNREFUSED)"]);
  assertEquals((await run()).lines, 2);
  assertEquals(collector.arrived.filter(({ body }) => body === line(1).trimEnd()).length, 1);
});

Deno.test("a line that the collector will never take is passed over and counted; a torn line in an older file, too", async () => {
  await using home = await tempHome();
  const { paths } = home;
  await write(paths, 1, line(1) + line(2) + '{"half');
  await write(paths, 2, line(3));
  await using collector = startCollector();
  collector.statuses.push(400);
  const exported = await exportTrace(paths.trace, collector.url, httpCollector(collector.url, undefined));
  assertEquals(exported, { lines: 2, spans: 2, refused: 1, skippedBytes: 6, done: true });
});

Deno.test("another collector begins with the oldest span; files that gave way, and a directory that was cleared, are no trouble", async () => {
  await using home = await tempHome();
  const { paths } = home;
  await write(paths, 1, line(1));
  await write(paths, 2, line(2));
  await using one = startCollector();
  await using other = startCollector();
  const run = (to: FakeCollector) => exportTrace(paths.trace, to.url, httpCollector(to.url, undefined));
  assertEquals((await run(one)).lines, 2);
  assertEquals((await run(other)).lines, 2);
  await Deno.remove(`${paths.trace}/trace-000001.jsonl`);
  await Deno.remove(`${paths.trace}/trace-000002.jsonl`);
  await write(paths, 3, line(3));
  assertEquals((await run(other)).lines, 1);
  await Deno.remove(`${paths.trace}/trace-000003.jsonl`);
  await write(paths, 1, line(1));
  assertEquals((await run(other)).lines, 1);
});

Deno.test("what was remembered by a newer Boxmaker is refused by name; what cannot be read means to begin anew", async () => {
  await using home = await tempHome();
  const { paths } = home;
  await write(paths, 1, line(1));
  await using collector = startCollector();
  const run = () => exportTrace(paths.trace, collector.url, httpCollector(collector.url, undefined));
  const path = `${paths.trace}/exported.json`;
  await Deno.writeTextFile(path, '{"v":2,"to":"x"}');
  const error = await assertRejects(run, UsageError) as Error;
  assertEquals(
    error.message,
    `${path}: format version 2 is newer than this Boxmaker reads (1); use the newer one`,
  );
  assertEquals(collector.arrived.length, 0);
  await Deno.writeTextFile(path, '{"v":1,');
  assertEquals((await run()).lines, 1);
});

Deno.test("the sender reaches one host, reads spans and at most one key, and writes how far it came", async () => {
  await using home = await tempHome();
  const { home: at } = home.paths;
  const flags = (...args: string[]) =>
    exportArguments(["--home", at, ...args], {}, "/code").filter((word) => word.startsWith("--allow"));
  assertEquals(flags("--to", "https://collector.example.com"), [
    `--allow-read=${at}/trace`,
    `--allow-write=${at}/trace/exported.json,${at}/trace/exported.json.next`,
    "--allow-net=collector.example.com:443",
  ]);
  assertEquals(flags("--to", "http://127.0.0.1:4318/v1/traces", "--secret", "collector"), [
    `--allow-read=${at}/trace,${at}/secrets/collector`,
    `--allow-write=${at}/trace/exported.json,${at}/trace/exported.json.next`,
    "--allow-net=127.0.0.1:4318",
  ]);
});

Deno.test("F34 an address that is not this device's over http, holds a key, or is none, and a secret's value in place of its name, are refused unshown", async () => {
  await using home = await tempHome();
  const fault = (...args: string[]) => {
    const run = () => exportArguments(["--home", home.paths.home, ...args], {}, "/code");
    return (assertThrows(run, UsageError) as Error).message;
  };
  assertStringIncludes(fault(), "--to URL is wanted");
  assertStringIncludes(
    fault("--to", "http://collector.example.com"),
    "collector.example.com is not this device",
  );
  for (const to of ["https://me:PLANTED@x.example", "https://x.example/?k=PLANTED", "PLANTED"]) {
    assertEquals(fault("--to", to).includes("PLANTED"), false);
  }
  const secret = fault("--to", "https://x.example", "--secret", "PLANTED!");
  assertEquals([secret.includes("PLANTED"), secret.includes("never the key itself")], [false, true]);
  const [, word] = exportArguments(["--home", home.paths.home, "--to", "https://x.example"], {}, "/code")
    .join(" ").match(/--to (\S+)/)!;
  assertEquals(word, "https://x.example/v1/traces");
});
