// A loopd in this process, with a real home, a real socket, the practice model's server and a fake brokerd around it.

import type { SessionId } from "../../core/ids.ts";
import type { TurnEvent, TurnOutcome } from "../../core/protocol/loop.ts";
import type { Clock } from "../../core/clock.ts";
import { loadLoopdConfig } from "../../core/config/loopd_toml.ts";
import { requestEvents, requestJson } from "../../core/wire/client.ts";
import type { HomePaths } from "../../core/home.ts";
import { type Loopd, startLoopd } from "../../loopd/runtime.ts";
import { readSessionLog, sessionLogPath } from "../../loopd/session/log.ts";
import type { SessionRecord } from "../../loopd/session/record.ts";
import { type ModelStub, type ModelStubOptions, startModelStub } from "../../tools/stubs/model.ts";
import type { Reply, Script } from "../../tools/stubs/model_script.ts";
import { type FakeBroker, type FakeBrokerOptions, startFakeBroker } from "./fake_broker.ts";
import { tempHome } from "./temp_home.ts";

export interface LoopdRig extends AsyncDisposable {
  readonly paths: HomePaths;
  readonly model: ModelStub;
  readonly broker: FakeBroker;
  readonly loopd: Loopd;
  /** What loopd reported, in order. */
  readonly events: readonly Readonly<Record<string, unknown>>[];
  /** A new chat, or the one named, made by its first message. */
  newSession(sensitivity?: string): Promise<SessionId>;
  /** One turn over loop.sock, to its `done`. */
  send(session: string, text: string, onEvent?: (event: TurnEvent) => void): Promise<TurnOutcome>;
  log(session: string): Promise<SessionRecord[]>;
  /** Stops loopd as SIGTERM does, and starts it again on the same home. `meanwhile` runs while nobody does. */
  restart(meanwhile?: () => Promise<void>): Promise<void>;
}

export interface LoopdRigOptions {
  /** TOML text put after `[inference] url`; tables of its own. */
  readonly toml?: string;
  readonly script: Script;
  readonly model?: Omit<ModelStubOptions, "script">;
  readonly broker?: FakeBrokerOptions;
  readonly clock?: Clock;
}

export async function startLoopdRig(options: LoopdRigOptions): Promise<LoopdRig> {
  const home = await tempHome();
  const { paths } = home;
  const model = await startModelStub({ ...options.model, script: options.script });
  await Deno.writeTextFile(
    paths.loopdToml,
    `[clock]\ntime_zone = "UTC"\n[inference]\nurl = "${model.url}"\n${options.toml ?? ""}\n`,
  );
  const broker = await startFakeBroker(paths.brokerSocket, options.broker);
  const faults: unknown[] = [];
  const events: Readonly<Record<string, unknown>>[] = [];
  const start = async () => {
    const config = loadLoopdConfig(paths);
    if ("faults" in config) throw new Error(JSON.stringify(config.faults));
    return await startLoopd({
      paths,
      config: config.value,
      clock: options.clock,
      onFatal: (error) => faults.push(error),
      onEvent: (event) => events.push(event),
    });
  };
  let loopd = await start();
  return {
    paths,
    model,
    broker,
    events,
    get loopd() {
      return loopd;
    },
    async newSession(sensitivity) {
      const body = sensitivity === undefined ? {} : { class: sensitivity };
      const answer = await requestJson(paths.loopSocket, { method: "POST", path: "/v1/sessions", body });
      return (answer.body as { session: SessionId }).session;
    },
    async send(session, text, onEvent = () => {}) {
      const path = `/v1/sessions/${session}/turns`;
      for await (const event of requestEvents(paths.loopSocket, { method: "POST", path, body: { text } })) {
        onEvent(event as TurnEvent);
        if (event.event === "done") return event.data as TurnOutcome;
      }
      throw new Error("the turn's stream ended without a done event");
    },
    log: (session) => readSessionLog(sessionLogPath(paths.sessions, session as SessionId)),
    async restart(meanwhile) {
      await loopd.close();
      await meanwhile?.();
      loopd = await start();
    },
    async [Symbol.asyncDispose]() {
      await loopd.close();
      await broker.close();
      await model.close();
      await home[Symbol.asyncDispose]();
      if (faults.length > 0) throw faults[0];
    },
  };
}

/** A reply that calls one core tool. */
export function calls(name: string, args: Record<string, unknown>): Reply {
  return { toolCalls: [{ name, arguments: args }] };
}

/** A reply that runs one tool of the catalog. */
export function callsTool(name: string, args: Record<string, unknown>): Reply {
  return calls("call_tool", { name, arguments: args });
}

export function says(content: string): Reply {
  return { content };
}
