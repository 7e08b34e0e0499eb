// The files of spans: bounded in size and number, never in a turn's way, and whole lines whatever ended the process before.

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import type { Span } from "../../../loopd/trace/tracer.ts";
import { TraceFiles, type TraceFilesOptions } from "../../../loopd/trace/files.ts";
import { fakeClock } from "../../support/fake_clock.ts";

const span: Span = {
  traceId: "0".repeat(32),
  spanId: "1".repeat(16),
  name: "call",
  isClient: false,
  startMs: Date.UTC(2026, 11, 1),
  endMs: Date.UTC(2026, 11, 1) + 1.5,
  failed: false,
  attributes: { session: "chat-a", call: 1, slot: undefined },
};

interface Place extends AsyncDisposable {
  readonly directory: string;
  readonly failures: string[];
  open(options?: Partial<TraceFilesOptions>): TraceFiles;
  names(): Promise<string[]>;
  lines(name: string): Promise<string[]>;
}

async function place(): Promise<Place> {
  const above = await Deno.makeTempDir({ prefix: "bx-trace-" });
  const directory = `${above}/trace`;
  const failures: string[] = [];
  return {
    directory,
    failures,
    open: (options = {}) =>
      new TraceFiles({ directory, clock: fakeClock(), onFailure: (text) => failures.push(text), ...options }),
    names: async () => (await Array.fromAsync(Deno.readDir(directory))).map(({ name }) => name).sort(),
    lines: async (name) => (await Deno.readTextFile(`${directory}/${name}`)).split("\n").slice(0, -1),
    [Symbol.asyncDispose]: () => Deno.remove(above, { recursive: true }),
  };
}

Deno.test("a line is one OTLP request: ids in hex, times in nanoseconds as text, the format's version, what is undefined left out", async () => {
  await using here = await place();
  const files = here.open();
  files.record({ ...span, parentSpanId: "2".repeat(16), failed: true });
  await files.close();
  const [line] = await here.lines("trace-000001.jsonl");
  assertEquals(JSON.parse(line), {
    resourceSpans: [{
      resource: {
        attributes: [
          { key: "service.name", value: { stringValue: "boxmaker" } },
          { key: "service.instance.id", value: { stringValue: "loopd" } },
        ],
      },
      scopeSpans: [{
        scope: {
          name: "boxmaker/loopd",
          version: "1",
          attributes: [{ key: "boxmaker.dropped_spans", value: { intValue: "0" } }],
        },
        spans: [{
          traceId: "0".repeat(32),
          spanId: "1".repeat(16),
          parentSpanId: "2".repeat(16),
          name: "call",
          kind: 1,
          startTimeUnixNano: "1796083200000000000",
          endTimeUnixNano: "1796083200001500000",
          attributes: [
            { key: "boxmaker.session", value: { stringValue: "chat-a" } },
            { key: "boxmaker.call", value: { intValue: "1" } },
          ],
          status: { code: 2 },
        }],
      }],
    }],
  });
  assertEquals((await Deno.stat(`${here.directory}/trace-000001.jsonl`)).mode! & 0o777, 0o600);
  assertEquals((await Deno.stat(here.directory)).mode! & 0o777, 0o700);
});

Deno.test("spans are written a second after the first of them, and at once when a line is full", async () => {
  await using here = await place();
  const clock = fakeClock();
  const files = here.open({ clock });
  files.record(span);
  assertEquals(clock.pending, 1);
  await clock.advance(999);
  assertEquals(await here.names().catch(() => []), []);
  await clock.advance(1);
  for (let count = 0; count < 256; count++) files.record(span);
  await files.close();
  const lines = await here.lines("trace-000001.jsonl");
  assertEquals(lines.reduce((sum, line) => sum + line.split('"spanId"').length - 1, 0), 257);
  assertEquals(clock.pending, 0);
});

Deno.test("a file is at most as large as its bound, the oldest give way, and a new start goes on in the newest", async () => {
  await using here = await place();
  const bounds = { fileBytesMax: 2_000, filesMax: 3 };
  for (let start = 0; start < 20; start++) {
    const files = here.open(bounds);
    files.record(span);
    await files.close();
  }
  const names = await here.names();
  assertEquals(names.length, 3);
  assert(names[0] > "trace-000002.jsonl");
  for (const name of names) {
    assert((await Deno.stat(`${here.directory}/${name}`)).size <= 2_000);
    assert((await here.lines(name)).length > 0);
  }
  assert((await here.lines(names[0])).length > 1, "more than one start wrote into one file");
});

Deno.test("nothing is written behind a torn line", async () => {
  await using here = await place();
  await Deno.mkdir(here.directory);
  await Deno.writeTextFile(`${here.directory}/trace-000004.jsonl`, '{"resourceSp');
  const files = here.open();
  files.record(span);
  await files.close();
  assertEquals(await here.names(), ["trace-000004.jsonl", "trace-000005.jsonl"]);
  assertEquals(await Deno.readTextFile(`${here.directory}/trace-000004.jsonl`), '{"resourceSp');
});

Deno.test("spans over the buffer's bound are dropped and counted; a disk that does not take them is told once and costs spans alone", async () => {
  await using here = await place();
  const clock = fakeClock();
  const files = here.open({ clock });
  // Nothing is written while nobody waits: these are taken in one go.
  for (let count = 0; count < 5_000; count++) files.record(span);
  await files.close();
  const lines = await here.lines("trace-000001.jsonl");
  const written = lines.reduce((sum, line) => sum + line.split('"spanId"').length - 1, 0);
  const dropped = Number(/dropped_spans","value":\{"intValue":"(\d+)"/.exec(lines.at(-1)!)![1]);
  assertEquals(written + dropped, 5_000);
  assert(dropped > 0);

  await Deno.remove(here.directory, { recursive: true });
  await Deno.writeTextFile(here.directory, "a file where the directory should be");
  const failing = here.open({ clock });
  for (let time = 0; time < 3; time++) {
    failing.record(span);
    await clock.advance(1_000);
    await failing.close();
  }
  assertEquals(here.failures.length, 1);
  assertStringIncludes(here.failures[0], "spans are not written");
  await Deno.remove(here.directory);
  failing.record(span);
  await failing.close();
  const [line] = await here.lines("trace-000001.jsonl");
  assertStringIncludes(line, '"boxmaker.dropped_spans","value":{"intValue":"3"}');
});
