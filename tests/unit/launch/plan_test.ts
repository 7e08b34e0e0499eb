// The flags of every process, word for word: who may talk to whom is decided here and nowhere else.

import { assertEquals } from "@std/assert";
import type { BrokerdConfig } from "../../../core/config/brokerd_toml.ts";
import type { LoopdConfig } from "../../../core/config/loopd_toml.ts";
import { homePaths } from "../../../core/home.ts";
import {
  type OwnEnvironment,
  personEnvironment,
  roleEnvironment,
} from "../../../tools/launch/environment.ts";
import { plan, roleArguments } from "../../../tools/launch/plan.ts";

const paths = homePaths("/h");

const loopd: LoopdConfig = {
  inference: {
    url: "http://127.0.0.1:8080",
    remote: false,
    model: "local",
    secretName: undefined,
    livenessMs: 120_000,
    maxTokens: 8_192,
    temperature: undefined,
    history: "auto",
  },
  slots: { main: 0, background: 2 },
  session: { class: "private", toolIterations: 16, resumeHours: 24 },
  tools: { resultChars: 16_000 },
  compact: { thresholdTokens: 24_000, summaryChars: 4_000 },
  broker: { timeoutMs: 200_000 },
  clock: { timeZone: undefined },
  heartbeat: undefined,
  cron: [],
  trace: { enabled: false },
};

const brokerd: BrokerdConfig = {
  consult: {
    url: "https://api.example.com/v1/chat/completions",
    model: "m",
    temperature: 0.6,
    timeoutMs: 180_000,
    secretName: "consult",
    replyBytesMax: 1_048_576,
  },
  approvals: { expireMinutes: 60 },
  honcho: undefined,
};

Deno.test("K4 loopd reaches its files, the inference server, broker.sock and loop.sock, and nothing else", () => {
  assertEquals(plan("loopd", { paths, loopd }), [
    "--allow-read=/h/loopd.toml,/h/memory,/h/sessions,/h/index.sqlite,/h/run/loop.sock,/h/run/broker.sock",
    "--allow-write=/h/memory,/h/sessions,/h/index.sqlite,/h/index.sqlite-wal,/h/index.sqlite-shm,/h/index.sqlite-journal," +
    "/h/run/loop.sock,/h/run/broker.sock",
    "--allow-net=127.0.0.1:8080,unix:/h/run/loop.sock,unix:/h/run/broker.sock",
  ]);
});

Deno.test("loopd may write spans where the owner turned them on, and only there", () => {
  const [read, write] = plan("loopd", { paths, loopd: { ...loopd, trace: { enabled: true } } });
  const [plainRead, plainWrite] = plan("loopd", { paths, loopd });
  assertEquals(read, plainRead.replace("/h/index.sqlite,", "/h/index.sqlite,/h/trace,"));
  assertEquals(write, plainWrite.replace("/h/index.sqlite-journal,", "/h/index.sqlite-journal,/h/trace,"));
});

Deno.test("loopd reads the one secret of its inference server where one is named", () => {
  const inference = { ...loopd.inference!, url: "https://[2001:db8::1]/base", secretName: "inference" };
  const [read, , net] = plan("loopd", { paths, loopd: { ...loopd, inference } });
  assertEquals(
    read,
    "--allow-read=/h/loopd.toml,/h/memory,/h/sessions,/h/index.sqlite,/h/secrets/inference,/h/run/loop.sock,/h/run/broker.sock",
  );
  assertEquals(net, "--allow-net=[2001:db8::1]:443,unix:/h/run/loop.sock,unix:/h/run/broker.sock");
});

Deno.test("C5 brokerd reaches its files, the consult host, broker.sock and owner.sock, and nothing else", () => {
  assertEquals(plan("brokerd", { paths, brokerd }), [
    "--allow-read=/h/brokerd.toml,/h/grants.toml,/h/secrets,/h/audit,/h/run/broker.sock,/h/run/owner.sock",
    "--allow-write=/h/audit,/h/run/broker.sock,/h/run/owner.sock",
    "--allow-net=api.example.com:443,unix:/h/run/broker.sock,unix:/h/run/owner.sock",
  ]);
});

Deno.test("C10 without [consult] brokerd reaches no host and no secret; with [honcho] that host, too", () => {
  assertEquals(plan("brokerd", { paths, brokerd: { ...brokerd, consult: undefined } }), [
    "--allow-read=/h/brokerd.toml,/h/grants.toml,/h/audit,/h/run/broker.sock,/h/run/owner.sock",
    "--allow-write=/h/audit,/h/run/broker.sock,/h/run/owner.sock",
    "--allow-net=unix:/h/run/broker.sock,unix:/h/run/owner.sock",
  ]);
  const honcho = { url: "http://localhost:8000", secretName: undefined, timeoutMs: 30_000 };
  assertEquals(
    plan("brokerd", { paths, brokerd: { ...brokerd, honcho } })[2],
    "--allow-net=api.example.com:443,localhost:8000,unix:/h/run/broker.sock,unix:/h/run/owner.sock",
  );
});

Deno.test("B11 bxctl reaches loop.sock and owner.sock and reads one audit directory; the practice model listens on a free port", () => {
  assertEquals(plan("bxctl", { paths }), [
    "--allow-read=/h/audit,/h/run/loop.sock,/h/run/owner.sock",
    "--allow-write=/h/run/loop.sock,/h/run/owner.sock",
    "--allow-net=unix:/h/run/loop.sock,unix:/h/run/owner.sock",
  ]);
  assertEquals(
    plan("bxctl", { paths, auditDirectory: "/kept/audit" })[0],
    "--allow-read=/kept/audit,/h/run/loop.sock,/h/run/owner.sock",
  );
  assertEquals(plan("practice", { paths }), ["--allow-net=127.0.0.1:0"]);
});

Deno.test("the console listens on one port of this device, reaches both roles, reads what they were granted and used, and writes no file", () => {
  assertEquals(plan("console", { paths, consolePort: 4870 }), [
    "--allow-read=/h/audit/launches.jsonl,/h/permissions,/h/run/loop.sock,/h/run/owner.sock",
    "--allow-write=/h/run/loop.sock,/h/run/owner.sock",
    "--allow-net=127.0.0.1:4870,unix:/h/run/loop.sock,unix:/h/run/owner.sock",
  ]);
});

Deno.test("a role is started without prompt, from the cache, in little memory, with the lock frozen, and told what its file leaves open", () => {
  const facts = { paths, root: "/code", loopd, brokerd, timeZone: "Europe/Berlin" };
  const head = [
    ...["run", "-q", "--no-prompt", "--cached-only", "--v8-flags=--max-semi-space-size=4", "--frozen"],
    ...["--config", "/code/deno.json"],
  ];
  assertEquals(roleArguments("brokerd", facts), [
    ...head,
    ...plan("brokerd", facts),
    "/code/brokerd/main.ts",
    ...["--home", "/h", "--lifeline"],
  ]);
  assertEquals(roleArguments("loopd", { ...facts, inferenceUrl: "http://127.0.0.1:4242" }), [
    ...head,
    ...plan("loopd", facts),
    "/code/loopd/main.ts",
    ...[
      "--home",
      "/h",
      "--lifeline",
      "--inference-url",
      "http://127.0.0.1:4242",
      "--time-zone",
      "Europe/Berlin",
    ],
  ]);
  const zoned = { ...facts, loopd: { ...loopd, clock: { timeZone: "Asia/Tokyo" } } };
  assertEquals(roleArguments("loopd", zoned).includes("--time-zone"), false);
});

Deno.test("a role's environment is cleared but for four variables and two that are passed on, whatever the launcher's own holds", () => {
  const own: OwnEnvironment = {
    HOME: "/home/me",
    HTTP_PROXY: "http://127.0.0.1:3128",
    OTEL_DENO: "true",
    LD_PRELOAD: "/x.so",
    TZ: "Asia/Tokyo",
    TERM: "xterm",
  };
  assertEquals(roleEnvironment({ ...own, DENO_DIR: "/d", DENO_CERT: "/ca.pem" }, "/p"), {
    DENO_DIR: "/d",
    DENO_NO_UPDATE_CHECK: "1",
    DENO_CERT: "/ca.pem",
    NO_COLOR: "1",
    DENO_AUDIT_PERMISSIONS: "/p",
  });
  assertEquals(personEnvironment({ ...own, DENO_DIR: "/d" }), {
    DENO_DIR: "/d",
    DENO_NO_UPDATE_CHECK: "1",
    TERM: "xterm",
    TZ: "Asia/Tokyo",
  });
});
