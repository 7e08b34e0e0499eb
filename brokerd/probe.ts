// What `bx doctor` asks of brokerd: what each tool would send with, grants that no call can ever match, whether the endpoint is trusted, this
// device's clock, and how long the disk takes to make a record durable. It sends no request, records nothing and decides nothing.

import { join } from "node:path";
import { connect as connectPlain } from "node:net";
import { connect as connectSecure } from "node:tls";
import { readAuditPage } from "../core/audit/read.ts";
import { type Clock, timestamp } from "../core/clock.ts";
import { socketAddress } from "../core/config/address.ts";
import type { Grant } from "../core/config/grants_toml.ts";
import { classAtMost } from "../core/labels.ts";
import type { ProbeFinding as Finding } from "../core/protocol/common.ts";
import type { AuditLog } from "./audit_log.ts";
import type { Tool } from "./toolset.ts";

export interface ProbeFacts {
  readonly clock: Clock;
  readonly log: AuditLog;
  readonly toolset: ReadonlyMap<string, Tool>;
  /** Those in force. */
  readonly grants: readonly Grant[];
}

const connectMsMax = 5_000;
const fsyncs = 9;
/** A consult waits for two, a turn for two more at each step. */
const fsyncMsWanted = 20;
/** Of a clock that was set back a little, nobody need hear. */
const clockLagMsMax = 60_000;

export async function probe(facts: ProbeFacts): Promise<Finding[]> {
  const { toolset, grants, log, clock } = facts;
  const findings: Finding[] = [];
  for (const tool of toolset.values()) findings.push(...await toolFindings(tool));
  findings.push(...grantFindings(grants, toolset));
  findings.push(await clockFinding(log, clock));
  findings.push(await diskFinding(log, clock));
  return findings;
}

async function toolFindings({ description: { name }, endpoint, missing }: Tool): Promise<Finding[]> {
  if (endpoint === undefined) {
    return [{ check: name, ok: true, text: `is refused to everybody: ${missing.text}` }];
  }
  const url = new URL(endpoint.url);
  const key = endpoint.bearer === undefined ? "without a key" : "with the key of its secret";
  const trouble = await reach(url);
  return [
    { check: name, ok: true, text: `goes to ${url.host}, ${key}` },
    {
      check: `${name} endpoint`,
      ok: trouble === undefined,
      text: trouble ??
        (url.protocol === "https:"
          ? `${url.host} answers, and its certificate is trusted`
          : `${url.host} answers`),
      ...(trouble === undefined ? {} : {
        advice:
          "see to the network, the address in brokerd.toml, and the clock: a certificate is valid for a time",
      }),
    },
  ];
}

/** Connects and greets, sends no request; what stood in the way, in a word. */
function reach(url: URL): Promise<string | undefined> {
  const { promise, resolve } = Promise.withResolvers<string | undefined>();
  const { host, port, secure } = socketAddress(url);
  const socket = secure
    ? connectSecure({ host, port, servername: host }, () => resolve(undefined))
    : connectPlain({ host, port }, () => resolve(undefined));
  socket.setTimeout(connectMsMax, () => resolve(`${url.host} does not answer within ${connectMsMax} ms`));
  socket.on(
    "error",
    (error: Error & { code?: string }) =>
      resolve(`${url.host} cannot be reached safely (${error.code ?? error.name})`),
  );
  return promise.finally(() => socket.destroy());
}

function grantFindings(grants: readonly Grant[], toolset: ReadonlyMap<string, Tool>): Finding[] {
  if (grants.length === 0) {
    return [{ check: "grants", ok: true, text: "there is none, so every brokered call is refused" }];
  }
  const idle = grants.flatMap((grant): Finding[] => {
    const why = neverMatches(grant, grants, toolset);
    return why === undefined ? [] : [{
      check: `grant ${grant.index}`,
      ok: false,
      text: `can never match: ${why}`,
      advice: "change or remove it in grants.toml, then run bx grants reload",
    }];
  });
  const text = `${grants.length - idle.length} of ${grants.length} can match some call`;
  return [{ check: "grants", ok: true, text }, ...idle];
}

function neverMatches(
  grant: Grant,
  grants: readonly Grant[],
  toolset: ReadonlyMap<string, Tool>,
): string | undefined {
  const tool = toolset.get(grant.tool);
  if (tool === undefined) {
    return `no brokered tool is named ${grant.tool}; there are ${[...toolset.keys()].join(", ")}`;
  }
  if (tool.endpoint === undefined) return `${grant.tool} is not configured (${tool.missing.text})`;
  // The first grant that admits a call is taken, and sessions are matched by their root's id, which is never a child's.
  if (grant.sessions.every((pattern) => pattern.startsWith("sub-"))) {
    return "its sessions are children's, and a child is matched by its root's id";
  }
  const wider = grants.find((other) => other.index < grant.index && admitsAllOf(other, grant));
  return wider && `grant ${wider.index} comes first and admits all that it would`;
}

/** Cautious: true only where it is plain. */
function admitsAllOf(wide: Grant, narrow: Grant): boolean {
  return wide.tool === narrow.tool &&
    wide.perDay === undefined &&
    classAtMost(narrow.maxTaint, wide.maxTaint) &&
    (wide.allowUntrusted || !narrow.allowUntrusted) &&
    (wide.sessions.includes("*") || narrow.sessions.every((pattern) => wide.sessions.includes(pattern)));
}

async function clockFinding(log: AuditLog, clock: Clock): Promise<Finding> {
  const now = timestamp(clock);
  const { records: [newest] } = await readAuditPage(log.dir, {
    matches: () => true,
    recordsMax: 1,
    bytesMax: Number.MAX_SAFE_INTEGER,
  });
  const lagMs = newest === undefined ? 0 : Date.parse(newest.time) - clock.now();
  if (lagMs <= clockLagMsMax) return { check: "clock", ok: true, text: `${now}, after the newest record` };
  return {
    check: "clock",
    ok: false,
    text: `says ${now}, before the newest record of ${newest.time}`,
    advice: "set this device's clock: budgets count by its day, and certificates are held against it",
  };
}

async function diskFinding(log: AuditLog, clock: Clock): Promise<Finding> {
  // Named as what a start clears away, should this one not come to its end.
  const path = join(log.dir, "audit-0.jsonl.tmp");
  const bytes = new Uint8Array(1_024);
  const taken: number[] = [];
  try {
    using file = await Deno.open(path, { write: true, create: true, truncate: true, mode: 0o600 });
    for (let time = 0; time < fsyncs; time++) {
      const began = clock.monotonic();
      file.writeSync(bytes);
      await file.syncData();
      taken.push(clock.monotonic() - began);
    }
  } catch (error) {
    const text = `cannot be written (${error instanceof Error ? error.name : "unknown error"})`;
    return { check: "disk", ok: false, text, advice: "see to space and permissions of the audit folder" };
  } finally {
    await Deno.remove(path).catch(() => {});
  }
  const median = taken.toSorted((a, b) => a - b)[Math.floor(fsyncs / 2)];
  const text = `a record of 1 KB is durable after ${median.toFixed(2)} ms, median of ${fsyncs}`;
  if (median <= fsyncMsWanted) return { check: "disk", ok: true, text };
  const advice =
    "put the home on a faster disk: each step of a turn waits for it twice, a consult twice more";
  return { check: "disk", ok: false, text, advice };
}
