// One loopd put together: the services in the order in which they need each other, start and stop. main.ts runs it as a process; tests run
// it in theirs.

import { type Clock, systemClock } from "../core/clock.ts";
import type { LoopdConfig } from "../core/config/loopd_toml.ts";
import { UsageError } from "../core/errors.ts";
import type { HomePaths } from "../core/home.ts";
import { listenOnSocket } from "../core/wire/server.ts";
import { PeerUnreachable } from "../core/wire/client.ts";
import { delay } from "../core/clock.ts";
import { sessionArchive } from "./archive.ts";
import { BrokerClient } from "./broker_client.ts";
import { Compactor } from "./compaction.ts";
import { freezeBaseline } from "./context/baseline.ts";
import { Holds } from "./holds.ts";
import { InferenceServer } from "./inference/server.ts";
import { MemoryFiles } from "./memory/memory_files.ts";
import { MemoryIndex } from "./memory/index.ts";
import { RootTurns } from "./root_turns.ts";
import { loopServer } from "./server.ts";
import type { Services } from "./services.ts";
import { resumeOpenTurns } from "./recovery.ts";
import { SessionStore } from "./session/store.ts";
import { SessionList } from "./session_list.ts";
import { Scheduler } from "./scheduler.ts";
import { SlotGate } from "./slots/gate.ts";
import { PrefixWatch } from "./slots/prefix_watch.ts";
import { abandonChild, runChild } from "./subagent.ts";
import { ToolOutputs } from "./tool_outputs.ts";
import { askMemoryTool } from "./toolset/ask_memory.ts";
import { callTool } from "./toolset/call_tool.ts";
import { ToolCatalog } from "./toolset/catalog.ts";
import { clockTool } from "./toolset/clock.ts";
import { coreToolNames, coreTools } from "./toolset/core_tools.ts";
import { findTool } from "./toolset/find_tool.ts";
import { memoryTool } from "./toolset/memory.ts";
import { recallTool } from "./toolset/recall.ts";
import { subagentTool } from "./toolset/subagent.ts";
import { noTracer } from "./trace/tracer.ts";
import { TraceFiles } from "./trace/files.ts";
import type { Tool } from "./turn_types.ts";

export interface LoopdOptions {
  readonly paths: HomePaths;
  readonly config: LoopdConfig;
  /** Bearer value for a protected inference server. */
  readonly inferenceSecret?: string;
  readonly clock?: Clock;
  /** A fault of our own, or one of the owner's that only shows while running: the process must end. */
  readonly onFatal: (error: unknown) => void;
  readonly onEvent?: (event: Readonly<Record<string, unknown>>) => void;
}

export interface Loopd {
  readonly services: Services;
  readonly turns: RootTurns;
  /** Settles when the turns that a restart left open have ended. */
  readonly resumed: Promise<void>;
  close(): Promise<void>;
}

/** How often a brokerd that is not there is looked for. */
const meetAgainMs = 250;

export async function startLoopd(options: LoopdOptions): Promise<Loopd> {
  const { paths, config, onFatal, clock = systemClock, onEvent = () => {} } = options;
  const timeZone = config.clock.timeZone ?? Temporal.Now.timeZoneId();
  const { main, background } = config.slots;

  const server = config.inference === undefined ? undefined : new InferenceServer({
    clock,
    config: config.inference,
    secret: options.inferenceSecret,
    slots: [main, background],
  });
  const gate = new SlotGate({
    clock,
    livenessMs: config.inference?.livenessMs ?? 120_000,
    drained: (slot, after, signal) => server?.drained(slot, after, signal) ?? Promise.resolve(),
  });
  // A loopd before us may have left requests running: no slot is used before the server shows it idle.
  for (const slot of [main, background]) gate.drain(slot);
  const memory = new MemoryFiles(paths, clock, config.session.class);
  const index = new MemoryIndex(paths.index, paths.sessions, memory);
  const holds = new Holds();
  const traceFiles = config.trace.enabled
    ? new TraceFiles({
      directory: paths.trace,
      clock,
      onFailure: (text) => onEvent({ event: "trace-failed", text }),
    })
    : undefined;
  // Loaded where it is wanted: most owners want no trace, and its hashing is a tenth of a start.
  const tracer = traceFiles === undefined ? noTracer : (await import("./trace/spans.ts")).spanTracer({
    clock,
    turnOf: (session) => holds.get(session),
    isToolName: (name): boolean =>
      coreToolNames.some((own) => own === name) || name === "subagent" || broker.offers(name),
    record: traceFiles.record,
  });
  const broker = new BrokerClient({
    tracer,
    socketPath: paths.brokerSocket,
    timeoutMs: config.broker.timeoutMs,
    clock,
    labelOf: async (session) => (await store.get(session)).label,
  });
  const catalog = new ToolCatalog(
    [subagentTool((task, context) => runChild(task, context, services)) as Tool],
    broker,
    config.tools.resultChars,
  );
  const tools = coreTools({
    clock: clockTool(clock, timeZone),
    recall: recallTool(index),
    memory: memoryTool(memory),
    ask_memory: askMemoryTool(broker),
    find_tool: findTool(catalog),
    call_tool: callTool(catalog, coreToolNames),
  });
  const store: SessionStore = new SessionStore({
    directory: paths.sessions,
    clock,
    freezeBaseline: async (label) => ({ system: await freezeBaseline(memory, label), tools: tools.json }),
    onAppend: (session) => {
      index.note(session);
      list.note(session);
    },
  });
  const services: Services = {
    config,
    clock,
    timeZone,
    store,
    gate,
    prefixWatch: new PrefixWatch(gate.history, onEvent),
    server,
    broker,
    catalog,
    coreTools: tools,
    holds,
    tracer,
    report: onEvent,
    fatal: onFatal,
    get compaction() {
      return compactor;
    },
    get outputs() {
      return outputs;
    },
    abandonChild: (turn, call, failure) => abandonChild(turn, call, failure, services),
  };
  const compactor: Compactor = new Compactor(services);
  const outputs: ToolOutputs = new ToolOutputs(services, paths.sessions);
  const turns = new RootTurns(services);
  const scheduler = new Scheduler(services, turns);
  const list = new SessionList({
    directory: paths.sessions,
    clock,
    slots: config.slots,
    holds: services.holds,
  });
  const archive = sessionArchive(paths.sessions, services, index);

  const stopped = new AbortController();
  const listener = await listenOnSocket(
    paths.loopSocket,
    loopServer({
      services,
      turns,
      scheduler,
      archive,
      list,
      sessionsDirectory: paths.sessions,
      onBug: onFatal,
    }),
  );
  const met = meetBroker(broker, clock, stopped.signal).catch((error) => {
    if (!stopped.signal.aborted) onFatal(error);
  });
  const looked = lookAtServer(services, stopped.signal).catch((error) => {
    if (!stopped.signal.aborted) onFatal(error);
  });
  const listed = list.load().catch((error) => {
    if (!stopped.signal.aborted) onFatal(error);
  });
  const resumed = looked.then(async () => {
    const resuming = resumeOpenTurns(services, turns);
    await scheduler.start();
    await resuming;
  }).catch((error) => {
    if (!stopped.signal.aborted) onFatal(error);
  });

  return {
    services,
    turns,
    resumed,
    async close() {
      stopped.abort(new Error("loopd is stopping"));
      await Promise.all([turns.stop(), scheduler.stop(), compactor.close(), outputs.close()]);
      await gate.close();
      await listener.close();
      await Promise.all([met, looked, listed, resumed]);
      await store.close();
      index.close();
      server?.close();
      await traceFiles?.close();
    },
  };
}

// brokerd starts beside us and may be later, or go and come back; only its configuration not fitting ours is fatal (C9).
async function meetBroker(broker: BrokerClient, clock: Clock, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      return void await broker.meet();
    } catch (error) {
      if (!(error instanceof PeerUnreachable)) throw error;
    }
    await delay(clock, meetAgainMs, signal);
  }
}

// A server with too few slots is refused at start (F22); one that is not there yet is looked at again before the first request.
async function lookAtServer({ server }: Services, signal: AbortSignal): Promise<void> {
  const state = await server?.look(signal);
  if (state?.kind === "too-few-slots") {
    throw new UsageError([{ text: state.text, runbook: "inference-slots" }]);
  }
}
