// One fuzz run: a private home, both roles under the launcher with their real flags, the stubs in place of model and cloud; workers that
// fuzz the sockets and the readers until the time is over; then what must hold of the whole: no role exited, memory stayed within its
// bound, the audit log verifies, and what left is what it allowed.

import { join } from "node:path";
import { sha256 } from "../../core/audit/chain.ts";
import { readAudit } from "../../core/audit/read.ts";
import { verifyAudit } from "../../core/audit/verify.ts";
import { UsageError } from "../../core/errors.ts";
import { homePaths } from "../../core/home.ts";
import { makePrivateHome } from "../demo/private_home.ts";
import { ownEnvironment } from "../launch/environment.ts";
import type { LaunchEvent } from "../launch/supervise.ts";
import { up } from "../launch/up.ts";
import { type ConsultRequest, startConsultEndpoint } from "../stubs/consult_endpoint.ts";
import type { Behaviour } from "../stubs/consult_behaviour.ts";
import { startModelStub } from "../stubs/model.ts";
import { fuzzAuditReader } from "./audit_reader.ts";
import { Findings } from "./findings.ts";
import { Random } from "./random.ts";
import { fuzzSessionReader, writeSession } from "./session_reader.ts";
import { fuzzSockets } from "./sockets.ts";

/** A role's resident memory, whatever is asked of it. */
export const residentBytesMax = 512 * 1_048_576;
const socketWorkers = 4;
const sampleMs = 500;

export interface FuzzOptions {
  readonly seed: number;
  readonly milliseconds: number;
  /** Ends it early. */
  readonly signal?: AbortSignal;
  readonly onProgress?: (text: string) => void;
}

export interface FuzzReport {
  readonly seed: number;
  readonly seconds: number;
  readonly counts: Readonly<Record<string, number>>;
  readonly peakMebibytes: Readonly<Record<string, number>>;
  readonly roleExits: number;
  readonly auditRecords: number;
  readonly auditExit: number;
  readonly arrived: number;
  readonly allowed: number;
  readonly findings: readonly { what: string; how: string }[];
}

export async function fuzz(
  { seed, milliseconds, signal, onProgress = () => {} }: FuzzOptions,
): Promise<FuzzReport> {
  const random = new Random(seed);
  using findings = new Findings();
  const arrived = new Map<string, number>();
  const behave = random.fork();
  await using endpoint = await startConsultEndpoint({
    behaviour: (request) => behaviour(request, arrived, behave),
  });
  await using model = await startModelStub();
  await using home = await makePrivateHome({
    loopdToml: `[clock]\ntime_zone = "UTC"\n[inference]\nurl = "${model.url}"\n`,
    brokerdToml: `[consult]\nurl = "${endpoint.url}"\nmodel = "m"\nsecret = "consult"\ntimeout_ms = 2000\n` +
      "[approvals]\nexpire_minutes = 0.01\n",
    grantsToml:
      '[[grant]]\ntool = "consult"\nmax_taint = "private"\nallow_untrusted = true\nsessions = ["chat-*"]\n' +
      '[[grant]]\ntool = "consult"\nmax_taint = "secret"\nallow_untrusted = true\nmode = "ask"\nsessions = ["job-*"]\n',
    secrets: { consult: "key-of-the-fuzz-run\n" },
  }, { prefix: "bx-fuzz-" });
  const paths = homePaths(home.paths.home);

  const pids = new Map<string, number>();
  let roleExits = 0;
  let isStopping = false;
  const onEvent = (event: LaunchEvent) => {
    if (event.event === "started") pids.set(event.role, event.pid);
    if (event.event === "line") findings.count(`lines of ${event.role}`);
    if (event.event === "exited" && !isStopping) {
      roleExits++;
      findings.add(`${event.role} exited with ${event.code} after ${event.livedMs} ms`, "");
    }
  };
  const supervisor = await up({ paths, own: ownEnvironment(), onEvent });
  if ("faults" in supervisor) throw new UsageError(supervisor.faults);
  const peaks = new Map<string, number>();
  let began = performance.now();
  const over = () => signal?.aborted || performance.now() - began >= milliseconds;
  const kept = `${paths.home}/kept-segments`;
  await Deno.mkdir(kept);
  const sampler = setInterval(() => {
    sample(pids, peaks);
    keepSegments(paths.audit, kept);
  }, sampleMs);
  try {
    await supervisor.ready;
    const sound = await writeSession(paths);
    began = performance.now();
    const shared = { findings, over };
    const workers = [
      ...Array.from(
        { length: socketWorkers },
        () => fuzzSockets(paths, { ...shared, random: random.fork() }),
      ),
      fuzzAuditReader({ ...shared, random: random.fork() }),
      fuzzSessionReader(paths, { ...shared, random: random.fork(), sound }),
      report(onProgress, { over, began, findings }),
    ];
    await Promise.all(workers);
    sample(pids, peaks);
    keepSegments(paths.audit, kept);
  } finally {
    clearInterval(sampler);
    isStopping = true;
    await supervisor.stop();
  }

  for (const [role, bytes] of peaks) {
    if (bytes > residentBytesMax) findings.add(`${role} held ${Math.round(bytes / 1_048_576)} MiB`, "");
  }
  const { exit, records, text } = await verifyAudit(paths.audit);
  if (exit !== 0) findings.add(`audit verify: exit ${exit}: ${text}`, "");
  const allowed = await allowedBodies(kept);
  for (const hash of new Set([...arrived.keys(), ...allowed.keys()])) {
    const [came, may] = [arrived.get(hash) ?? 0, allowed.get(hash) ?? 0];
    if (came !== may) findings.add(`a body arrived ${came} times and was allowed ${may} times`, hash);
  }
  const sum = (map: ReadonlyMap<string, number>) => [...map.values()].reduce((all, count) => all + count, 0);
  return {
    seed,
    seconds: Math.round((performance.now() - began) / 1_000),
    counts: findings.counts(),
    peakMebibytes: Object.fromEntries(
      [...peaks].map(([role, bytes]) => [role, Math.round(bytes / 1_048_576)]),
    ),
    roleExits,
    auditRecords: records,
    auditExit: exit,
    arrived: sum(arrived),
    allowed: sum(allowed),
    findings: findings.found,
  };
}

// Whole bodies count here; what the endpoint then does varies, so that every outcome is in the log.
function behaviour({ body }: ConsultRequest, arrived: Map<string, number>, random: Random): Behaviour {
  const hash = sha256(body);
  arrived.set(hash, (arrived.get(hash) ?? 0) + 1);
  return random.weighted<Behaviour>([
    [20, { kind: "answer" }],
    [1, { kind: "status", status: 500 }],
    [1, { kind: "redirect", status: 307, location: "/elsewhere" }],
    [1, { kind: "reset", when: "after-body" }],
    [1, { kind: "reset", when: "in-reply" }],
    [1, { kind: "html" }],
    [1, { kind: "short" }],
    [1, { kind: "two-replies" }],
    [1, { kind: "huge", bytes: 2_000_000 }],
  ]);
}

/** A second name for each segment: a prune, which is fuzzed as well, takes whole segments out of the log, never out of the count. */
function keepSegments(audit: string, kept: string): void {
  for (const { name } of Deno.readDirSync(audit)) {
    if (!/^audit-\d+\.jsonl$/.test(name)) continue;
    try {
      Deno.linkSync(join(audit, name), join(kept, name));
    } catch (error) {
      if (!(error instanceof Deno.errors.AlreadyExists || error instanceof Deno.errors.NotFound)) throw error;
    }
  }
}

/** Every intent of the log: what was, or may have been, sent. */
async function allowedBodies(dir: string): Promise<Map<string, number>> {
  const allowed = new Map<string, number>();
  for await (const shown of readAudit(dir)) {
    if (!("record" in shown) || shown.record.kind !== "intent") continue;
    const hash = String(shown.record.bodySha256);
    allowed.set(hash, (allowed.get(hash) ?? 0) + 1);
  }
  return allowed;
}

function sample(pids: ReadonlyMap<string, number>, peaks: Map<string, number>): void {
  for (const [role, pid] of pids) {
    try {
      const status = Deno.readTextFileSync(`/proc/${pid}/status`);
      const bytes = Number(/^VmHWM:\s+(\d+) kB/m.exec(status)?.[1] ?? 0) * 1_024;
      peaks.set(role, Math.max(peaks.get(role) ?? 0, bytes));
    } catch {
      // It ended meanwhile, which is counted elsewhere; or this system has no /proc, and nothing is known of its memory.
    }
  }
}

const progressMs = 15_000;

async function report(
  onProgress: (text: string) => void,
  { over, began, findings }: { over: () => boolean; began: number; findings: Findings },
): Promise<void> {
  let last = began;
  while (!over()) {
    await new Promise((resolve) => setTimeout(resolve, 200));
    if (performance.now() - last < progressMs) continue;
    last = performance.now();
    const asked = Object.entries(findings.counts()).reduce(
      (sum, [name, count]) => name.includes(".sock ") ? sum + count : sum,
      0,
    );
    onProgress(
      `${Math.round((last - began) / 1_000)} s: ${asked} requests, ${findings.found.length} findings`,
    );
  }
}
