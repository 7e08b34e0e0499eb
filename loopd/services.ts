// What one loopd is made of, put together once at start and handed to the parts that need it. No global state stands anywhere else.

import type { Clock } from "../core/clock.ts";
import type { LoopdConfig } from "../core/config/loopd_toml.ts";
import type { CallId } from "../core/ids.ts";
import type { BrokerClient } from "./broker_client.ts";
import type { Holds } from "./holds.ts";
import type { InferenceServer } from "./inference/server.ts";
import type { Session } from "./session/session.ts";
import type { SessionStore } from "./session/store.ts";
import type { SlotGate } from "./slots/gate.ts";
import type { PrefixWatch } from "./slots/prefix_watch.ts";
import type { ToolCatalog } from "./toolset/catalog.ts";
import type { CoreTools } from "./toolset/core_tools.ts";
import type { Tracer } from "./trace/tracer.ts";
import type { ToolResult, Turn, TurnFailure } from "./turn_types.ts";

/** How the turn loop meets compaction; compaction.ts does it. */
export interface Compaction {
  /** Begins a new epoch where a summary is ready or due. Never fails the turn. */
  beforeRequest(turn: Turn): Promise<void>;
  /** Compacts the open turn's session now. True when a new epoch began. */
  now(turn: Turn): Promise<boolean>;
  /** Starts a summary in the background where one is due. */
  afterTurn(session: Session): void;
}

/** Where a tool's output goes that is over the cap; tool_outputs.ts keeps it. */
export interface OutputKeeper {
  /** On disk when it resolves; a short form follows when the background slot is idle. */
  keep(session: Session, call: CallId, text: string): Promise<void>;
}

export interface Services {
  readonly config: LoopdConfig;
  readonly clock: Clock;
  /** IANA name; what clock and time lines speak. */
  readonly timeZone: string;
  readonly store: SessionStore;
  readonly gate: SlotGate;
  readonly prefixWatch: PrefixWatch;
  /** Absent while no `[inference] url` is known: turns fail with that reason. */
  readonly server: InferenceServer | undefined;
  readonly broker: BrokerClient;
  readonly catalog: ToolCatalog;
  readonly coreTools: CoreTools;
  readonly holds: Holds;
  readonly compaction: Compaction;
  readonly outputs: OutputKeeper;
  /** What becomes of a call's child when the call itself ends early; `undefined` where the call has none. */
  readonly abandonChild: (
    turn: Turn,
    call: CallId,
    failure: TurnFailure,
  ) => Promise<ToolResult | undefined>;
  /** Does nothing where no trace is asked for. */
  readonly tracer: Tracer;
  /** A fault of our own: the process ends, and the launcher starts it again. */
  readonly fatal: (error: unknown) => void;
  /** Tells the owner, one line each, what no turn reports: skipped work, lost prefixes, failed compactions. */
  readonly report: (event: Readonly<Record<string, unknown>>) => void;
}
