// Server-sent events: the same events however the bytes were cut on their way, and never more than one of them in memory.

import { assert, assertEquals, assertThrows } from "@std/assert";
import fc from "fast-check";
import { streamEventBytesMax } from "../../../core/limits.ts";
import { encodeEvent, eventStreamParser, type ServerSentEvent } from "../../../core/wire/event_stream.ts";

const encoder = new TextEncoder();

/** The events of `bytes` when they arrive in pieces that end at `cuts`. */
function parsePieces(bytes: Uint8Array, cuts: readonly number[]) {
  const parser = eventStreamParser();
  const events: ServerSentEvent[] = [];
  let from = 0;
  for (const to of [...cuts, bytes.length]) {
    events.push(...parser.push(bytes.subarray(from, to)));
    from = to;
  }
  return { events, atBoundary: parser.atBoundary };
}

const stream = encoder.encode(
  ': a comment\n\ndata: {"a":"é😀"}\n\nevent: delta\ndata: first\ndata: second\nid: 7\nretry: 5\n\n' +
    "data:no space\n\nevent: only a name\n\ndata\n\ndata: [DONE]\n\n",
);
const events: ServerSentEvent[] = [
  { event: "message", data: '{"a":"é😀"}' },
  { event: "delta", data: "first\nsecond" },
  { event: "message", data: "no space" },
  { event: "message", data: "[DONE]" },
];

Deno.test("B3 a stream cut at any one byte, in the middle of a character too, gives the same events", () => {
  for (let cut = 0; cut <= stream.length; cut++) {
    assertEquals(parsePieces(stream, [cut]), { events, atBoundary: true }, `cut at byte ${cut}`);
  }
});

Deno.test("B3 a stream that comes byte by byte gives the same events", () => {
  assertEquals(parsePieces(stream, Array.from(stream.keys())), { events, atBoundary: true });
});

Deno.test("B3 lines that end in CR LF give the same events, cut anywhere", () => {
  const windows = encoder.encode(new TextDecoder().decode(stream).replaceAll("\n", "\r\n"));
  for (let cut = 0; cut <= windows.length; cut++) {
    assertEquals(parsePieces(windows, [cut]).events, events, `cut at byte ${cut}`);
  }
});

Deno.test("B3 an event is given when its blank line is there, and not before", () => {
  const parser = eventStreamParser();
  assertEquals(parser.push(encoder.encode("data: x\n")), []);
  assert(!parser.atBoundary);
  assertEquals(parser.push(encoder.encode("\n")), [{ event: "message", data: "x" }]);
  assert(parser.atBoundary);
});

Deno.test("B3 an event of the bound's size passes, one character more is refused, in one piece or in many", () => {
  const event = (length: number) => encoder.encode(`data: ${"x".repeat(length)}\n\n`);
  const pieces = (bytes: Uint8Array) =>
    Array.from({ length: Math.ceil(bytes.length / 65_536) }, (_, at) => at * 65_536);
  const most = event(streamEventBytesMax - 16);
  for (const cuts of [[], pieces(most)]) assertEquals(parsePieces(most, cuts).events.length, 1);
  const tooLong = event(streamEventBytesMax + 1);
  for (const cuts of [[], pieces(tooLong), [tooLong.length - 1]]) {
    assertThrows(() => parsePieces(tooLong, cuts), RangeError, `over ${streamEventBytesMax} bytes`);
  }
});

Deno.test("B3 an event of endless short lines is refused too, empty ones included", () => {
  for (const line of ["data: x\n", "data:\n"]) {
    const parser = eventStreamParser();
    const piece = encoder.encode(line.repeat(10_000));
    assertThrows(() => {
      for (let pushed = 0; pushed < 8 * streamEventBytesMax; pushed += piece.length) parser.push(piece);
    }, RangeError);
  }
});

Deno.test("B3 events do not add up: many that fit pass, however long the stream", () => {
  const parser = eventStreamParser();
  const piece = encoder.encode(`data: ${"x".repeat(100_000)}\n\n`);
  let count = 0;
  for (let pushed = 0; pushed < 3 * streamEventBytesMax; pushed += piece.length) {
    count += parser.push(piece).length;
  }
  assert(count * piece.length >= 3 * streamEventBytesMax);
});

Deno.test("B3 what our sockets encode is what they parse, whatever the text holds", () => {
  fc.assert(fc.property(fc.array(fc.string({ unit: "binary" }), { maxLength: 5 }), (texts) => {
    const bytes = encoder.encode(texts.map((text) => encodeEvent("delta", { text })).join(""));
    const parsed = parsePieces(bytes, [Math.floor(bytes.length / 2)]).events;
    assertEquals(parsed.map(({ event }) => event), texts.map(() => "delta"));
    assertEquals(parsed.map(({ data }) => JSON.parse(data).text), texts.map((text) => text));
  }));
});
