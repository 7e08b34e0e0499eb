// A permission file that has grown is counted and emptied under the process that writes it, and nothing of what it says is lost.

import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { UsageError } from "../../../core/errors.ts";
import {
  countsPath,
  foldPermissionFile,
  loadCounts,
  watchPermissionFile,
} from "../../../tools/launch/permission_fold.ts";
import { appendLaunch, permissionFile, rotatePermissionFiles } from "../../../tools/launch/launch_log.ts";
import { permissionReports } from "../../../tools/launch/permissions.ts";
import { fakeClock } from "../../support/fake_clock.ts";
import { tempHome } from "../../support/temp_home.ts";

const time = "2026-12-01T00:00:00.000Z";
const argv = ["run", "--config", "/code/deno.json", "--allow-read=/a,/b"];
const line = (permission: string, value: string) => `${JSON.stringify({ v: 1, permission, value })}\n`;

async function report(paths: Awaited<ReturnType<typeof tempHome>>["paths"]) {
  const [{ granted, denied, lostBytes }] = await permissionReports(paths);
  const rows = [...granted, ...denied].map(({ permission, value, count }) =>
    `${permission} ${value} ${count}`
  );
  return { rows, lostBytes };
}

Deno.test("a file over its bound is counted and emptied, one at its bound is left alone, and permissions says the same before and after", async () => {
  await using home = await tempHome();
  const { paths } = home;
  const path = permissionFile(paths, "loopd", time);
  await appendLaunch(paths, { time, role: "loopd", argv, configSha256: "" });
  assertEquals(foldPermissionFile(path, argv, 1), false);
  const text = line("read", "/a/x").repeat(3) + line("read", "/b") + line("write", "/etc/x").repeat(2);
  await Deno.writeTextFile(path, text);
  const before = await report(paths);
  assertEquals(before.rows, ["read /a 3", "read /b 1", "write /etc/x 2"]);
  assertEquals(foldPermissionFile(path, argv, text.length), false);
  assertEquals(foldPermissionFile(path, argv, text.length - 1), true);
  assertEquals((await Deno.stat(path)).size, 0);
  assertEquals(await report(paths), before);
  assertEquals((await Deno.stat(countsPath(path))).mode! & 0o777, 0o600);
});

Deno.test("the process goes on behind a hole that takes no space, and every check is counted once", async () => {
  await using home = await tempHome();
  const { paths } = home;
  const path = permissionFile(paths, "loopd", time);
  const program = `${paths.home}/p.ts`;
  await Deno.writeTextFile(
    program,
    `for await (const _ of Deno.stdin.readable) {
      for (let at = 0; at < 1000; at++) Deno.statSync(${JSON.stringify(paths.loopdToml)});
      try { Deno.statSync("/etc/hostname"); } catch { /* refused, and written down */ }
      console.log("done");
    }`,
  );
  const flags = ["run", "-q", "--no-prompt", "--no-config", `--allow-read=${paths.loopdToml}`];
  await appendLaunch(paths, { time, role: "loopd", argv: flags, configSha256: "" });
  const child = new Deno.Command(Deno.execPath(), {
    args: [...flags, program],
    env: { DENO_AUDIT_PERMISSIONS: path },
    stdin: "piped",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  const writer = child.stdin.getWriter();
  const reader = child.stdout.getReader();
  for (let round = 1; round <= 4; round++) {
    await writer.write(new Uint8Array([1]));
    await reader.read();
    assertEquals((await report(paths)).rows, [
      `read ${paths.loopdToml} ${round * 1_000}`,
      `read /etc/hostname ${round}`,
    ]);
    assertEquals(foldPermissionFile(path, flags, 10_000), true);
  }
  await writer.close();
  await reader.cancel();
  await child.status;
  assert(loadCounts(path)!.bytes > 400_000);
  const { size, blocks } = await Deno.stat(path);
  assert(size === 0 || (blocks ?? 0) * 512 < 10_000, `${size} bytes take ${blocks} blocks`);
  assertEquals((await report(paths)).lostBytes, undefined);
});

Deno.test("a running role's file is looked at every minute until it ends, and a fault is told once", async () => {
  await using home = await tempHome();
  const { paths } = home;
  const path = permissionFile(paths, "loopd", time);
  const clock = fakeClock();
  const failures: string[] = [];
  const letGo = watchPermissionFile(path, argv, { clock, onFailure: (text) => failures.push(text) });
  await clock.advance(60_000);
  await Deno.writeTextFile(path, line("read", "/a/x".padEnd(8_000, "x")).repeat(1_100));
  await clock.advance(59_999);
  assertEquals(loadCounts(path), undefined);
  await clock.advance(1);
  assertEquals(loadCounts(path)?.granted[0].count, 1_100);
  await Deno.writeTextFile(countsPath(path), '{"v":2}');
  await clock.advance(180_000);
  assertEquals(failures.length, 1);
  letGo();
  assertEquals(clock.pending, 0);
});

Deno.test("half a line waits for its end, and lines that came between look and truncation are counted as lost bytes", async () => {
  await using home = await tempHome();
  const { paths } = home;
  const path = permissionFile(paths, "loopd", time);
  await appendLaunch(paths, { time, role: "loopd", argv, configSha256: "" });
  await Deno.writeTextFile(path, line("read", "/a") + '{"v":1,"perm');
  assertEquals([foldPermissionFile(path, argv, 1), loadCounts(path)], [false, undefined]);
  await Deno.writeTextFile(path, line("read", "/a"));
  assertEquals(foldPermissionFile(path, argv, 1), true);
  const { bytes } = loadCounts(path)!;
  // As a process leaves it that wrote 40 bytes too early to be counted and too late to be kept.
  await Deno.writeTextFile(path, "\0".repeat(bytes + 40) + line("read", "/a") + line("read", "/b"));
  assertEquals((await report(paths)).rows, ["read /a 2", "read /b 1"]);
  assertEquals(foldPermissionFile(path, argv, 1), true);
  assertEquals(await report(paths), { rows: ["read /a 2", "read /b 1"], lostBytes: 40 });
});

Deno.test("a launch record of a newer format is refused by name, one of the first form is read", async () => {
  await using home = await tempHome();
  const { paths } = home;
  const record = { time, role: "loopd", argv, configSha256: "" };
  await Deno.writeTextFile(paths.launches, `${JSON.stringify(record)}\n`);
  assertEquals((await permissionReports(paths)).length, 1);
  await Deno.writeTextFile(paths.launches, `${JSON.stringify({ v: 2, ...record, more: 1 })}\n`, {
    append: true,
  });
  const error = await assertRejects(() => permissionReports(paths), UsageError) as Error;
  assertEquals(
    error.message,
    `${paths.launches}: format version 2 is newer than this Boxmaker reads (1); use the newer one`,
  );
});

Deno.test("counts go with the file that they belong to, and those of a newer format are refused by name", async () => {
  await using home = await tempHome();
  const { paths } = home;
  for (let at = 0; at < 25; at++) {
    const path = permissionFile(paths, "loopd", `2026-12-01T00:00:${String(at).padStart(2, "0")}.000Z`);
    await Deno.writeTextFile(path, line("read", "/a"));
    foldPermissionFile(path, argv, 1);
  }
  await rotatePermissionFiles(paths, "loopd");
  const names = (await Array.fromAsync(Deno.readDir(paths.permissions))).map(({ name }) => name).sort();
  assertEquals(names.length, 38);
  assertEquals(names[0].startsWith("loopd-2026-12-01T00-00-06"), true);
  const path = permissionFile(paths, "loopd", "2026-12-01T00:00:24.000Z");
  await Deno.writeTextFile(countsPath(path), '{"v":2}');
  const error = assertThrows(() => loadCounts(path), UsageError) as Error;
  assertEquals(error.message.includes("format version 2 is newer than this Boxmaker reads (1)"), true);
});
