// brokerd put together, without its sockets: the log and what it says, the grants in force, the calls. It starts and stops them in the
// one order that keeps the log true; what each does stands in its own file.

import { sha256 } from "../core/audit/chain.ts";
import type { BrokerdConfig } from "../core/config/brokerd_toml.ts";
import { type Grant, loadGrants } from "../core/config/grants_toml.ts";
import type { LoadedToml } from "../core/config/toml_file.ts";
import { type Clock, systemClock } from "../core/clock.ts";
import { describeFault } from "../core/errors.ts";
import type { HomePaths } from "../core/home.ts";
import type { ProbeFinding } from "../core/protocol/common.ts";
import { Approvals } from "./approvals.ts";
import { AuditLog, type AuditLogOptions, AuditUnavailable } from "./audit_log.ts";
import { Calls } from "./calls.ts";
import { Fold } from "./fold.ts";
import { grantContent } from "./grants.ts";
import { Ledger } from "./ledger.ts";
import { probe } from "./probe.ts";
import { makeToolset, type Tool } from "./toolset.ts";

/** What the handlers work with. */
export interface Broker {
  readonly config: BrokerdConfig;
  readonly log: AuditLog;
  readonly fold: Fold;
  readonly ledger: Ledger;
  readonly approvals: Approvals;
  readonly calls: Calls;
  readonly toolset: ReadonlyMap<string, Tool>;
  reloadGrants(): Promise<object>;
  /** What `bx doctor` asks. */
  probe(): Promise<ProbeFinding[]>;
  /** Ends the calls that run, each with its decision. New ones are refused. */
  stop(): Promise<void>;
  /** After `stop`: the last record, and the log closed. */
  close(): Promise<void>;
}

export interface BrokerOptions {
  readonly paths: HomePaths;
  readonly config: BrokerdConfig;
  readonly grants: LoadedToml<Grant[]>;
  /** The value of `[consult] secret`; wanted where there is a [consult]. */
  readonly secret: string | undefined;
  /** The value of `[honcho] secret`. */
  readonly honchoSecret?: string;
  readonly clock?: Clock;
  /** Tests: small segments, files that fail. */
  readonly audit?: Pick<AuditLogOptions, "segmentBytesMax" | "openFile">;
}

/** Ready to serve; or open and denying everything, with the reason in `log.failure`. Throws UsageError where another process holds the log. */
export async function openBroker(options: BrokerOptions): Promise<Broker> {
  const { paths, config, clock = systemClock } = options;
  const fold = new Fold();
  const log = await AuditLog.open({ dir: paths.audit, clock, fold, ...options.audit });
  let grants = options.grants;
  const toolset = makeToolset({
    config,
    consultBearer: options.secret,
    honchoBearer: options.honchoSecret,
  });
  const approvals = new Approvals({ log, clock, expireMinutes: config.approvals.expireMinutes });
  const ledger = new Ledger({
    fold,
    log,
    onRaise: (session) => approvals.void((asked) => asked.session === session, "the session's label rose"),
  });
  const calls = new Calls({ clock, log, fold, ledger, approvals, toolset, grants: () => grants.value });

  const recordConfig = () =>
    log.append({
      kind: "config",
      grantsSha256: sha256(grants.bytes),
      grants: grants.value.length,
      consultUrl: config.consult?.url,
      honchoUrl: config.honcho?.url,
    });
  const reloadGrants = async () => {
    const loaded = loadGrants(paths);
    if ("faults" in loaded) {
      return { status: "error", code: "config-fault", text: loaded.faults.map(describeFault).join("\n") };
    }
    // Recorded, then in force: no decision rests on grants that the log does not pin.
    const before = grants;
    grants = loaded;
    try {
      recordConfig();
    } catch (error) {
      grants = before;
      throw error;
    }
    const now = new Set(loaded.value.map(grantContent));
    approvals.void(({ grant }) => !now.has(grantContent(grant)), "its grant was changed");
    await log.commit();
    return { status: "ok", grants: loaded.value.length, grantsSha256: sha256(loaded.bytes) };
  };

  try {
    log.append({ kind: "start", pid: Deno.pid });
    recordConfig();
    await calls.closeOpen();
    await log.commit();
  } catch (error) {
    // brokerd lives on and denies everything: whoever asks is told why.
    if (!(error instanceof AuditUnavailable)) {
      await log.close();
      throw error;
    }
  }
  return {
    config,
    log,
    fold,
    ledger,
    approvals,
    calls,
    toolset,
    reloadGrants,
    probe: () => probe({ clock, log, toolset, grants: grants.value }),
    stop: () => calls.stop(),
    async close() {
      if (log.failure === undefined) log.append({ kind: "stop" });
      await log.close();
    },
  };
}
