// Status and doctor: what is asked, one line per check, and the exit code a script can trust.

import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { bx, sessionRow, withRoles } from "./fake_roles.ts";

const status = {
  inference: { url: "http://127.0.0.1:8080", remote: false, reachable: true, totalSlots: 3 },
  broker: { reachable: false, text: "broker.sock is not served" },
  slots: [
    { slot: 0, use: "main", state: "idle", queue: [] },
    {
      slot: 2,
      use: "background",
      state: "busy",
      holder: "sub-chat-1-3",
      queue: [{ session: "heartbeat", priority: "heartbeat", waitedMs: 2_400 }],
    },
  ],
  held: [sessionRow("chat-1", { status: "waiting", cachedShare: 0.5 })],
  schedule: [{
    name: "morning",
    session: "job-morning",
    next: "2026-12-02T06:00:00.000Z",
    lastStart: null,
    lastSkip: { time: "2026-12-01T06:00:00.000Z", reason: "busy" },
  }],
  sessions: 4,
};

Deno.test("B11 status shows slots, holder, queue, schedule, inference and broker", () =>
  withRoles(async ({ home, loopd }) => {
    loopd.get("/v1/status", (c) => c.json(status));
    const { code, stdout } = await bx(["status", "--home", home]);
    assertEquals(code, 0);
    assertEquals(stdout.split("\n"), [
      "inference  http://127.0.0.1:8080  reachable, 3 slots",
      "broker     not reachable  broker.sock is not served",
      "sessions   4, 1 held",
      "",
      "slot  use         state  holder        waiting",
      "0     main        idle   -             -",
      "2     background  busy   sub-chat-1-3  heartbeat (heartbeat, 2.4 s)",
      "",
      "held    status   label    slot  cached",
      "chat-1  waiting  private  0     50 %",
      "",
      "schedule  session      next                      last start  last skip",
      "morning   job-morning  2026-12-02T06:00:00.000Z  -           2026-12-01T06:00:00.000Z busy",
      "",
    ]);
    assertEquals(JSON.parse((await bx(["status", "--json", "--home", home])).stdout), status);
  }));

Deno.test("B11 status says when texts leave the device", () =>
  withRoles(async ({ home, loopd }) => {
    loopd.get("/v1/status", (c) => c.json({ ...status, inference: { ...status.inference, remote: true } }));
    assertStringIncludes((await bx(["status", "--home", home])).stdout, "remote: texts leave this device");
  }));

const hash = "d".repeat(64);

Deno.test("B11 doctor prints one line for each check, its advice below, and exits 1 on a fault", () =>
  withRoles(async ({ home, loopd, brokerd }) => {
    const findings = [{ check: "slots", ok: true, text: "3 slots" }];
    loopd.get("/v1/hello", (c) => c.json({ protocol: 1, role: "loopd" }));
    loopd.post("/v1/probe", (c) => c.json({ findings }));
    brokerd.get("/v1/hello", (c) => c.json({ protocol: 1, role: "brokerd" }));
    brokerd.get("/v1/audit/head", (c) => c.json({ seq: 9, hash }));
    brokerd.post("/v1/probe", (c) => c.json({ findings: [{ check: "disk", ok: true, text: "1 ms" }] }));
    const sound = await bx(["doctor", "--home", home]);
    assertEquals([sound.code, sound.stderr], [0, ""]);
    assertEquals(sound.stdout.split("\n"), [
      "ok    loopd      runs",
      "ok    slots      3 slots",
      "ok    brokerd    runs",
      `ok    audit log  9 records, head 9:${hash}`,
      "      -> write the head down elsewhere, for audit verify --head",
      "ok    disk       1 ms",
      "",
    ]);
    findings.push({ check: "cache", ok: false, text: "unified\x1b", advice: "start it with -np 3" } as never);
    const faulty = await bx(["doctor", "--home", home]);
    assertEquals(faulty.code, 1);
    assertStringIncludes(faulty.stdout, "FAIL  cache      unified⟨U+001B⟩\n      -> start it with -np 3\n");
    const json = JSON.parse((await bx(["doctor", "--json", "--home", home])).stdout);
    assertEquals([json.ok, json.findings.length], [false, 6]);
  }));

Deno.test("B11 doctor exits 1, not 3, when both roles run and loopd finds its broker unfit", () =>
  withRoles(async ({ home, loopd, brokerd }) => {
    loopd.get("/v1/hello", (c) => c.json({ protocol: 1, role: "loopd" }));
    loopd.post(
      "/v1/probe",
      (c) => c.json({ findings: [{ check: "brokerd", ok: false, text: "timeouts do not fit" }] }),
    );
    brokerd.get("/v1/hello", (c) => c.json({ protocol: 1, role: "brokerd" }));
    brokerd.get("/v1/audit/head", (c) => c.json({ seq: 9, hash }));
    brokerd.post("/v1/probe", (c) => c.json({ findings: [{ check: "disk", ok: true, text: "1 ms" }] }));
    assertEquals((await bx(["doctor", "--home", home])).code, 1);
  }));

Deno.test("B11 doctor exits 1 when brokerd denies every call", () =>
  withRoles(async ({ home, loopd, brokerd }) => {
    loopd.get("/v1/hello", (c) => c.json({ protocol: 1, role: "loopd" }));
    loopd.post("/v1/probe", (c) => c.json({ findings: [] }));
    brokerd.get(
      "/v1/hello",
      (c) => c.json({ protocol: 1, role: "brokerd", denyAll: "the log does not verify" }),
    );
    brokerd.get("/v1/audit/head", (c) => c.json({ seq: 9, hash }));
    brokerd.post("/v1/probe", (c) => c.json({ findings: [{ check: "disk", ok: true, text: "1 ms" }] }));
    const { code, stdout } = await bx(["doctor", "--home", home]);
    assertEquals(code, 1);
    assertMatch(stdout, /FAIL +calls +every call is denied: the log does not verify\n.*#audit-unavailable/);
  }));

Deno.test("B11 doctor says that no role runs, points at the runbook and exits 3", async () => {
  const { code, stdout } = await bx(["doctor", "--home", "/nowhere"]);
  assertEquals(code, 3);
  assertMatch(stdout, /FAIL +loopd +loopd is not running.*#roles-not-running/);
  assertMatch(stdout, /FAIL +brokerd +brokerd is not running.*#roles-not-running/);
});
