// The turn loop, top to bottom: ask the model, keep what it said, answer its calls in order, and again, until it answers without calls (B3).
// What the loop does next follows from the session's log alone, so a turn that a restart cut is gone on with by the same code.
// It ends in exactly one `end` record; only a stopping role leaves a turn open.

import { delay } from "../core/clock.ts";
import { describeError, isStorageError, StorageError } from "../core/errors.ts";
import { parseJsonObject } from "../core/json.ts";
import { badArgumentsTriesMax, serverErrorTriesMax } from "../core/limits.ts";
import type { TurnOutcome } from "../core/protocol/loop.ts";
import { capText, isCut, neutralise } from "../core/text.ts";
import { type ModelMessage, requestMessage } from "./inference/model.ts";
import { ModelFailure } from "./inference/model_failure.ts";
import type { Services } from "./services.ts";
import type { ModelCall, Timings } from "./session/record.ts";
import type { Session } from "./session/session.ts";
import { withSlot } from "./slots/lease.ts";
import { type Lease, SlotQueueFull, SlotSilent } from "./slots/gate.ts";
import { describeIssues, parseArguments } from "./toolset/arguments.ts";
import { resumeOrRun } from "./toolset/call_tool.ts";
import { toolError } from "./toolset/results.ts";
import { Cancelled, RoleStopping, type ToolResult, type Turn, TurnFailure } from "./turn_types.ts";

/** Pause before a server that answered 5xx is asked again. */
const serverErrorPauseMs = 250;

/** Begins a turn with the user's text and runs it to its end. */
export async function beginTurn(text: string, turn: Turn, services: Services): Promise<TurnOutcome> {
  const { session } = turn;
  // A turn that its log could not end is ended now: two user messages with open calls between them would be no history.
  if (session.turnOpen) {
    await endEarly(
      turn,
      new TurnFailure("interrupted", "another message came before it was resumed"),
      services,
    );
  }
  await session.append({ kind: "user", turn: session.turn + 1, text });
  return await runTurn(turn, services);
}

/** Goes on with an open turn, from whatever its log ends with. */
export async function resumeTurn(turn: Turn, services: Services): Promise<TurnOutcome> {
  return await runTurn(turn, services, { resuming: true });
}

async function runTurn(turn: Turn, services: Services, { resuming = false } = {}): Promise<TurnOutcome> {
  const { session } = turn;
  try {
    if (resuming) await checkResumable(turn, services);
    for (;;) {
      // The first open call of a resumed turn may have acted before the restart; those behind it had not begun.
      for (let first = resuming; session.unanswered.length > 0; first = false) {
        await answerCall(session.unanswered[0], turn, services, { mayHaveActed: first });
      }
      resuming = false;
      if (session.last === "assistant") break;
      await askModel(turn, services);
      if (session.unanswered.length > 0 && session.turnIterations > turn.iterationsMax) {
        throw new TurnFailure(
          "iterations",
          `the model still asked for tools after ${turn.iterationsMax} rounds of them`,
        );
      }
    }
    if (session.lastContent.trim() === "") throw new TurnFailure("empty", "the model ended without any text");
    await session.append({ kind: "end", turn: session.turn, status: "completed" });
  } catch (error) {
    if (error instanceof RoleStopping) {
      await session.append({ kind: "pause", turn: session.turn });
      throw error;
    }
    await endEarly(turn, asTurnFailure(error), services);
  }
  services.tracer.turnEnded(turn);
  services.compaction.afterTurn(session);
  return announce(turn);
}

/** Crashes after which an open turn is not resumed: whatever ended loopd twice in it would end it a third time. */
const crashesMax = 2;

async function checkResumable(turn: Turn, services: Services): Promise<void> {
  const { session } = turn;
  const ageMs = services.clock.now() - Date.parse(session.turnStartedAt);
  const { resumeHours } = services.config.session;
  if (ageMs > resumeHours * 3_600_000) {
    throw new TurnFailure("expired", `it began ${session.turnStartedAt}, over ${resumeHours} hours ago`);
  }
  const open = session.unanswered[0];
  // A parent that waits for a child did not end loopd: the child did, and is counted itself.
  if (open !== undefined && session.children.some((spawn) => spawn.call === open.call)) return;
  if (session.lastStop === "crash" && session.turnCrashes + 1 >= crashesMax) {
    const where = open === undefined ? "a model request" : `the tool ${open.name}`;
    throw new TurnFailure(
      "interrupted",
      `loopd ended ${crashesMax} times in this turn, at last during ${where}`,
    );
  }
  await session.append({ kind: "resume", turn: session.turn, after: session.lastStop });
}

// One model message, on the turn's own slot, kept before anything it asks for is done.
async function askModel(turn: Turn, services: Services): Promise<void> {
  const { session } = turn;
  await services.compaction.beforeRequest(turn);
  await settleHistory(turn, services);
  const requested = await withRetries(turn, services, async (lease) => {
    const { tags } = await server(services).historyFinding(turn.tree.signal);
    const started = services.clock.monotonic();
    const request = () =>
      requestMessage(server(services), {
        messagesJson: session.messagesJson,
        toolsJson: session.toolsJson,
        ...(session.history === "raw" ? { rawGrammar: services.coreTools.rawGrammar[tags] } : {}),
        slot: lease.slot,
        signal: turn.tree.signal,
        onLife: lease.touch,
        onContent: (text) => turn.emit({ event: "delta", data: { text } }),
        onThinking: (text) => turn.emit({ event: "thinking", data: { text } }),
      }, { clock: services.clock, livenessMs: server(services).config.livenessMs });
    const message = await services.tracer.inference({ purpose: "turn", session, turn }, lease, request);
    const { cacheN, promptN } = message.timings;
    const lostN = lostTokens(session, message.timings);
    lease.kept({ cacheN, promptN, lostN });
    services.prefixWatch.look(session, lease.slot, { cacheN, lostN });
    return { message, lostN, queuedMs: lease.queuedMs, elapsedMs: services.clock.monotonic() - started };
  });
  const { message, lostN, queuedMs, elapsedMs } = requested;
  await session.append({
    kind: "assistant",
    turn: session.turn,
    ...(message.raw === undefined ? {} : { raw: message.raw }),
    content: message.content,
    thinking: message.thinking,
    calls: numberCalls(message, session.lastCall),
    slot: turn.slot,
    timings: message.timings,
    lostN,
    queuedMs: Math.round(queuedMs),
    firstTokenMs: Math.round(message.firstTokenMs),
    elapsedMs: Math.round(elapsedMs),
  });
}

// Raw history where the server's template keeps it exact. Within an epoch the form changes only when the server leaves no choice: every
// change costs the prefix once.
async function settleHistory({ session, tree }: Turn, services: Services): Promise<void> {
  const { mode } = await server(services).historyFinding(tree.signal);
  if (mode === session.history || (mode === "raw" && !session.atEpochStart)) return;
  await session.append({ kind: "history", mode });
}

// The law of the prefix: a byte-exact continuation finds everything cached but the last sampled token (facts 2.1). What is missing was
// computed again, whoever's doing that was.
function lostTokens(session: Session, { cacheN, promptN }: Timings): number {
  if (session.contextTokens === 0 || cacheN + promptN === 0) return 0;
  return Math.max(0, session.contextTokens - 1 - cacheN);
}

// A request that failed before its message acted on nothing, so it may be sent again: a few times where the server answered 5xx, a few
// where the model's tool arguments were no JSON. The slot is held for one request at a time, never over a pause.
async function withRetries<T>(
  turn: Turn,
  services: Services,
  request: (lease: Lease) => Promise<T>,
): Promise<T> {
  for (let tries = 1;; tries++) {
    try {
      return await onOwnSlot(turn, services, request);
    } catch (error) {
      if (!(error instanceof ModelFailure)) throw error;
      // The context is smaller than [compact] threshold_tokens supposes: one compaction may make room, a second would not.
      if (error.reason === "overflow" && tries === 1 && await services.compaction.now(turn)) continue;
      if (
        error.refused && turn.session.history === "raw" && server(services).refuseRawHistory(error.detail)
      ) {
        await settleHistory(turn, services);
        continue;
      }
      const triesMax = error.reason === "bad-arguments"
        ? badArgumentsTriesMax
        : error.mayRetry
        ? serverErrorTriesMax
        : 1;
      if (tries >= triesMax) throw error;
      if (error.mayRetry) await delay(services.clock, serverErrorPauseMs, turn.tree.signal);
    }
  }
}

async function onOwnSlot<T>(
  turn: Turn,
  services: Services,
  request: (lease: Lease) => Promise<T>,
): Promise<T> {
  turn.waitsFor = "slot";
  const place = { session: turn.session.id, priority: turn.priority, signal: turn.tree.signal };
  try {
    return await withSlot(services.gate, turn.slot, place, (lease) => {
      turn.waitsFor = undefined;
      return request(lease);
    });
  } finally {
    turn.waitsFor = undefined;
  }
}

function server(services: Services) {
  if (services.server === undefined) {
    throw new TurnFailure(
      "model-error",
      "no inference server is configured; set [inference] url in loopd.toml",
    );
  }
  return services.server;
}

function numberCalls(message: ModelMessage, lastCall: number): ModelCall[] {
  return message.calls.map((call, index) => ({ call: lastCall + 1 + index, ...call }));
}

async function answerCall(
  call: ModelCall,
  turn: Turn,
  services: Services,
  { mayHaveActed }: { mayHaveActed: boolean },
): Promise<void> {
  turn.tree.signal.throwIfAborted();
  turn.emit({ event: "call", data: { call: call.call, tool: call.name, arguments: call.arguments } });
  // A result that came is kept, also where the tree was cancelled meanwhile: it is what is known of an act.
  const result = await services.tracer.call(call, turn, () => runCall(call, turn, services, mayHaveActed));
  await keepResult(call, result, turn, services);
}

async function runCall(
  call: ModelCall,
  turn: Turn,
  services: Services,
  mayHaveActed: boolean,
): Promise<ToolResult> {
  const tool = services.coreTools.byName.get(call.name);
  if (tool === undefined) {
    const name = JSON.stringify(call.name.replace(/[^\w.-]/g, "?").slice(0, 64));
    return toolError(
      "unknown-tool",
      `no tool is named ${name} here; tools beyond the core ones run through call_tool`,
    );
  }
  const parsed = parseArguments(tool, parseJsonObject(call.arguments));
  if (!parsed.success) {
    return toolError("invalid-arguments", `${call.name}: ${describeIssues(parsed.error, tool.definition)}`);
  }
  const context = { turn, call: call.call };
  try {
    return mayHaveActed
      ? await resumeOrRun(tool, parsed.data, context)
      : await tool.run(parsed.data, context);
  } catch (error) {
    // A disk that is full or gone fails the call, not the conversation. A session's own log is another matter: nothing goes on without it.
    if (error instanceof StorageError || !isStorageError(error)) throw error;
    return toolError("storage", describeError(error));
  }
}

// Capped and neutralised, whatever tool it came from (B12); the label joins the session in the same record.
async function keepResult(
  call: ModelCall,
  result: ToolResult,
  turn: Turn,
  services: Services,
): Promise<void> {
  const { resultChars } = services.config.tools;
  const text = neutralise(result.text);
  if (isCut(text, resultChars)) await services.outputs.keep(turn.session, call.call, text);
  const kept = {
    call: call.call,
    tool: result.tool ?? call.name,
    status: result.status,
    ...(result.code === undefined ? {} : { code: result.code }),
    text: capText(text, resultChars),
    label: result.label,
  };
  await turn.session.append({ kind: "result", ...kept });
  turn.emit({ event: "result", data: kept });
}

function asTurnFailure(error: unknown): TurnFailure {
  if (error instanceof TurnFailure) return error;
  if (error instanceof Cancelled) return new TurnFailure("cancelled", error.message);
  if (error instanceof ModelFailure) return new TurnFailure(error.reason, error.detail);
  if (error instanceof SlotSilent) return new TurnFailure("silent", error.message);
  if (error instanceof SlotQueueFull) return new TurnFailure("model-error", error.message);
  throw error;
}

/** Ends the turn where it stands. Every call gets a result, so that the history stays one that a strict server accepts. */
export async function endEarly(turn: Turn, failure: TurnFailure, services: Services): Promise<void> {
  const { session } = turn;
  while (session.unanswered.length > 0) {
    const call = session.unanswered[0];
    const tool = innerToolName(call);
    const result = await services.abandonChild(turn, call.call, failure) ??
      toolError(failure.reason, `the turn ended before ${tool} did; what it had begun may still take effect`);
    await keepResult(call, { ...result, tool }, turn, services);
  }
  await session.append({
    kind: "end",
    turn: session.turn,
    status: failure.reason === "cancelled" ? "cancelled" : "failed",
    reason: failure.reason,
    detail: failure.detail,
  });
}

// What the model meant to run, for people; call_tool names it in its arguments.
function innerToolName(call: ModelCall): string {
  const inner = call.name === "call_tool" ? parseJsonObject(call.arguments)?.name : undefined;
  return typeof inner === "string" && /^[\w.-]{1,64}$/.test(inner) ? inner : call.name;
}

function announce(turn: Turn): TurnOutcome {
  const outcome = turnOutcome(turn);
  turn.emit({ event: "done", data: outcome });
  return outcome;
}

/** The object of `send --json`, from the session as it stands. */
export function turnOutcome({ session }: Turn): TurnOutcome {
  const end = session.lastEnd;
  const completed = end?.status === "completed";
  return {
    session: session.id,
    status: end?.status ?? "failed",
    content: completed ? session.lastContent : "",
    ...(end?.reason === undefined ? {} : { reason: `${end.reason}: ${end.detail ?? ""}` }),
    label: session.label,
    calls: session.turnResults.map(({ call, tool, status, code }) => ({
      call,
      tool,
      status,
      ...(code === undefined ? {} : { code }),
    })),
    usage: session.turnUsage,
  };
}
