import { assertEquals } from "@std/assert";
import fc from "fast-check";
import { CallRanges } from "../../../brokerd/call_ranges.ts";

Deno.test("decided calls are remembered exactly in whatever order they come, in as few ranges as there are gaps", () => {
  fc.assert(fc.property(fc.array(fc.integer({ min: 1, max: 40 })), (calls) => {
    const ranges = new CallRanges();
    for (const call of calls) ranges.add(call);
    const wanted = new Set(calls);
    const listed: number[] = [];
    for (const [from, to] of ranges.ranges()) for (let call = from; call <= to; call++) listed.push(call);
    assertEquals(listed, [...wanted].sort((a, b) => a - b));
    for (let call = 1; call <= 41; call++) assertEquals(ranges.has(call), wanted.has(call));
    const gaps = [...wanted].filter((call) => !wanted.has(call - 1)).length;
    assertEquals(ranges.ranges().length, gaps);
    const copy = new CallRanges();
    for (const [from, to] of ranges.ranges().reverse()) copy.addRange(from, to);
    assertEquals(copy.ranges(), ranges.ranges());
  }));
});

Deno.test("a thousand calls in a row are one range", () => {
  const ranges = new CallRanges();
  for (let call = 1; call <= 1_000; call++) ranges.add(call);
  assertEquals(ranges.ranges(), [[1, 1_000]]);
});
