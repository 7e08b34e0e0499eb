// Deno's record of checks held against the flags of a launch: what was used, what never, what was refused.

import { assertEquals } from "@std/assert";
import { type PermissionRow, PermissionTally } from "../../../tools/launch/permission_report.ts";

const argv = [
  "run",
  "--config",
  "/code/deno.json",
  "--allow-read=/h/memory,/h/run/loop.sock",
  "--allow-write=/h/memory",
  "--allow-net=127.0.0.1:8080,unix:/h/run/loop.sock,api.example.com:443",
  "/code/loopd/main.ts",
];

function rows(rows: readonly PermissionRow[]): string[] {
  return rows.map(({ permission, value, count }) => `${permission} ${value} ${count}`);
}

Deno.test("a check counts for the grant that covers it, in the form in which each caller is recorded", () => {
  const tally = new PermissionTally(argv);
  tally.add({ permission: "read", value: "/h/memory/notes.md" });
  tally.add({ permission: "read", value: "/h/memory" });
  tally.add({ permission: "net", value: "unix:/h/run/loop.sock" });
  tally.add({ permission: "net", value: "http://127.0.0.1:8080/v1/chat/completions" });
  tally.add({ permission: "net", value: "https://api.example.com/v1?key=x" });
  const { granted, denied } = tally.report();
  assertEquals(rows(granted), [
    "read /h/memory 2",
    "read /h/run/loop.sock 0",
    "write /h/memory 0",
    "net 127.0.0.1:8080 1",
    "net unix:/h/run/loop.sock 1",
    "net api.example.com:443 1",
  ]);
  assertEquals(denied, []);
});

Deno.test("a check that no flag covers is a denied attempt: a sibling with the same beginning, another port, a relative path", () => {
  const tally = new PermissionTally(argv);
  tally.add({ permission: "read", value: "/h/memory-of-others" });
  tally.add({ permission: "read", value: "deno.json" });
  tally.add({ permission: "net", value: "127.0.0.1:80800" });
  tally.add({ permission: "net", value: "http://api.example.com/" });
  tally.add({ permission: "env", value: "HOME" });
  tally.add({ permission: "env", value: "HOME" });
  assertEquals(rows(tally.report().denied), [
    "read /h/memory-of-others 1",
    "read /code/deno.json 1",
    "net 127.0.0.1:80800 1",
    "net api.example.com:80 1",
    "env HOME 2",
  ]);
});

Deno.test("denied attempts are listed one by one up to 200, then counted together", () => {
  const tally = new PermissionTally(argv);
  for (let port = 1; port <= 203; port++) tally.add({ permission: "net", value: `10.0.0.1:${port}` });
  const { denied } = tally.report();
  assertEquals(denied.length, 201);
  assertEquals(rows(denied.slice(-1)), ["net … 3"]);
});
