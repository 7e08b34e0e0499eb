// What one loopd is made of, put together once at start and handed to the parts that need it. No global state stands anywhere else.

import type { Clock } from "../core/clock.ts";
import type { LoopdConfig } from "../core/config/loopd_toml.ts";
import type { BrokerClient } from "./broker_client.ts";
import type { Holds } from "./holds.ts";
import type { InferenceServer } from "./inference_server.ts";
import type { SessionStore } from "./session/store.ts";
import type { SlotGate } from "./slots.ts";
import type { ToolCatalog } from "./toolset/catalog.ts";
import type { CoreTools } from "./toolset/core_tools.ts";

export interface Services {
  readonly config: LoopdConfig;
  readonly clock: Clock;
  /** IANA name; what clock and time lines speak. */
  readonly timeZone: string;
  readonly store: SessionStore;
  readonly gate: SlotGate;
  /** Absent while no `[inference] url` is known: turns fail with that reason. */
  readonly server: InferenceServer | undefined;
  readonly broker: BrokerClient;
  readonly catalog: ToolCatalog;
  readonly coreTools: CoreTools;
  readonly holds: Holds;
}
