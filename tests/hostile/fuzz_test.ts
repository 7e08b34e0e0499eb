// A few seconds of the fuzz run from a fixed seed, so that it stays runnable and what it found once stays found. The long form is
// `deno task fuzz`.

import { assert, assertEquals } from "@std/assert";
import { fuzz } from "../../tools/fuzz/run.ts";

Deno.test("fuzzing the three sockets and the two log readers ends no role, breaks no shape and leaves a log that verifies", async () => {
  const { findings, counts, roleExits, auditExit, auditRecords, arrived, allowed } = await fuzz({
    seed: 20_261_201,
    milliseconds: 5_000,
  });
  assertEquals(findings, []);
  assertEquals([roleExits, auditExit, arrived], [0, 0, allowed]);
  // It was at work everywhere.
  for (const socket of ["broker", "owner", "loop"]) {
    for (const kind of ["sound", "content", "bytes"]) assert(counts[`${socket}.sock ${kind}`] > 0);
  }
  assert(counts["HTTP 200"] > 0 && counts["HTTP 400"] > 0 && counts["HTTP 404"] > 0);
  assert(counts["audit folders: exit 0"] > 0 && counts["audit folders: exit 10"] > 0);
  assert(counts["session logs"] > 0 && auditRecords > 0);
});
